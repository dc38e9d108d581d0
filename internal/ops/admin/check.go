// GET /api/v1/check: one check at a time, its answer shared.

package admin

import (
	"context"
	"net/http"
	"time"
)

// One check at a time asks the database and the broker, and its answer is shared for a while:
// frequent requests cannot keep them busy. Both bounds together, and what a check takes to close
// what it has opened, are less than writeBound.
const (
	checkFresh = 10 * time.Second
	checkBound = 20 * time.Second
	checkTurn  = 5 * time.Second
)

// findings are what a check has found, and when.
type findings struct {
	CheckedAt time.Time `json:"checked_at"`
	Findings  any       `json:"findings"`
}

// checks are the checks of the API: the newest, and whose turn it is.
type checks struct {
	turn   chan struct{} // of capacity 1: a lock on newest
	newest findings
}

func (a *api) check(w http.ResponseWriter, r *http.Request) {
	if a.cfg.API.Check == nil {
		writeProblem(w, http.StatusServiceUnavailable, "there is nothing to check")
		return
	}
	wait, cancel := context.WithTimeout(r.Context(), checkTurn)
	defer cancel()
	select {
	case a.checks.turn <- struct{}{}:
		defer func() { <-a.checks.turn }()
	case <-wait.Done():
		w.Header().Set("Retry-After", "10")
		writeProblem(w, http.StatusServiceUnavailable, "another check is under way and takes long; try again")
		return
	}
	if time.Since(a.checks.newest.CheckedAt) >= checkFresh {
		// One that has hung up does not end it: it could begin another one at once.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), checkBound)
		defer cancel()
		found, err := a.cfg.API.Check(ctx)
		if err != nil {
			writeProblem(w, http.StatusServiceUnavailable, "check: "+err.Error())
			return
		}
		a.checks.newest = findings{time.Now().UTC(), found}
	}
	writeJSON(w, http.StatusOK, a.checks.newest)
}
