package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// sight is what one look at the relay has found: its status or, when it does not answer, what the database knows.
type sight struct {
	at       time.Time
	status   *ops.Status
	silence  error         // why there is no status
	database *databaseView // nil: the database has not answered
	cause    error         // why it has not; nil: not yet
}

// The states in words of a relay that does not answer, beside ops.StateStopped.
const (
	stateSilent  = "not answering" // somebody holds the slot
	stateUnknown = "unknown"       // the database does not answer either
)

// words is the state in words, and why.
func (s *sight) words() (state, why string) {
	switch {
	case s.status != nil:
		return s.status.State, s.status.Why
	case s.database != nil:
		return s.database.State, s.database.Why
	case s.cause != nil:
		return stateUnknown, "the relay " + s.relay() + "; nor does the database: " + s.cause.Error()
	}
	return stateUnknown, "the relay " + s.relay() + "; the database is being asked"
}

// relay says why there is no status.
func (s *sight) relay() string {
	var answered *relayAnswer
	if errors.As(s.silence, &answered) {
		return "does not answer with its status: " + answered.text
	}
	return "does not answer: " + s.silence.Error()
}

// json is what --json prints of it.
func (s *sight) json() any {
	switch {
	case s.status != nil:
		return s.status
	case s.database != nil:
		return s.database
	}
	state, why := s.words()
	return struct {
		State string    `json:"state"`
		Why   string    `json:"why"`
		Now   time.Time `json:"now"`
		Relay string    `json:"relay"`
	}{state, why, s.at.UTC(), s.relay()}
}

const (
	// The database is asked seldom, and the less often the longer it takes: it counts rows for it.
	databaseEvery = 5 * time.Second
	databaseShare = 10 // of the time between two looks, one part for the look
)

// databaseLooks asks the database beside the relay, so that one that is silent too holds up nothing.
type databaseLooks struct {
	ask func(context.Context) (*databaseView, error)

	mu   sync.Mutex
	view *databaseView
	err  error
	busy bool
	next time.Time
}

// latest is what it has said last. A new look is begun when it is time.
func (d *databaseLooks) latest(ctx context.Context) (*databaseView, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); !d.busy && !now.Before(d.next) {
		d.busy = true
		go d.look(ctx, now)
	}
	return d.view, d.err
}

func (d *databaseLooks) look(ctx context.Context, began time.Time) {
	within, cancel := context.WithTimeout(ctx, askDatabase)
	defer cancel()
	view, err := d.ask(within)
	d.mu.Lock()
	defer d.mu.Unlock()
	took := time.Since(began)
	d.view, d.err, d.busy, d.next = view, err, false, began.Add(max(databaseEvery, databaseShare*took))
}

// forget has the next silence of the relay begin with a new look.
func (d *databaseLooks) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.view, d.err, d.next = nil, nil, time.Time{}
}
