package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// answer says what became of what was asked for.
type answer struct {
	act
	out, errs io.Writer
	json      bool

	asked  []dlq.Request
	errors []rowError // of rows that do not allow it
	noted  []string   // rows for which there is nothing to do
	dry    bool       // nothing is asked for
	woulds int        // of a dry run: rows that allow it
	shown  int        // characters of the line of progress
}

// rowError is a row that does not allow what is asked for.
type rowError struct {
	N     int64  `json:"n"`
	Error string `json:"error"`
	err   error
}

// refused takes an error that is about one row; false for any other.
func (a *answer) refused(n int64, err error) bool {
	var done *dlq.Done
	var missing *dlq.NotFound
	var not *dlq.NotNow
	switch {
	case errors.As(err, &done):
		a.noted = append(a.noted, done.Error())
	case errors.As(err, &missing), errors.As(err, &not):
		a.errors = append(a.errors, rowError{n, err.Error(), err})
	default:
		return false
	}
	return true
}

// would takes what a dry run found about one row.
func (a *answer) would(n int64, err error) {
	switch {
	case err == nil:
		a.woulds++
	case !a.refused(n, err):
		a.errors = append(a.errors, rowError{n, err.Error(), err})
	}
}

// noun is what the rows are called.
func (a *answer) noun() string {
	if a.kind == dlq.Retry || a.kind == dlq.Bury {
		return "parked row"
	}
	return "dead letter"
}

// end tells of rows that were named by their numbers. Its error is of exit 1 when something was not done.
func (a *answer) end(runs bool) error {
	if a.json {
		if err := printJSON(a.out, struct {
			Requests []dlq.Request `json:"requests"`
			Errors   []rowError    `json:"errors"`
			Notes    []string      `json:"notes"`
			DryRun   bool          `json:"dry_run"`
			Matched  int           `json:"matched"`
			Running  bool          `json:"relay_running"`
		}{append([]dlq.Request{}, a.asked...), append([]rowError{}, a.errors...), append([]string{}, a.noted...), a.dry, a.woulds + len(a.asked), runs}); err != nil {
			return err
		}
	} else {
		a.text(runs)
	}
	failed := len(a.errors)
	for _, r := range a.asked {
		if r.State == dlq.RequestFailed || r.State == dlq.RequestCancelled {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	if len(a.asked)+len(a.errors) == 1 {
		return a.one()
	}
	return &outbox.Stop{Code: outbox.ExitFailure, Reason: "partly", What: fmt.Sprintf("%s was not done for %d of %s", a.kind, failed, count(len(a.asked)+len(a.errors)+len(a.noted), a.noun()))}
}

// one is the error about the only row.
func (a *answer) one() error {
	if len(a.errors) == 1 {
		return a.errors[0].err
	}
	return &outbox.Stop{Code: outbox.ExitFailure, Reason: "failed", What: a.failure(&a.asked[0])}
}

func (a *answer) failure(r *dlq.Request) string {
	if r.State == dlq.RequestCancelled {
		return fmt.Sprintf("%s of %s %d was cancelled", r.Kind, a.noun(), r.N)
	}
	stays := ""
	if r.Kind == dlq.Replay {
		stays = "; it stays open"
	}
	return fmt.Sprintf("%s of %s %d failed: %s%s", r.Kind, a.noun(), r.N, clean(r.Result), stays)
}

func (a *answer) text(runs bool) {
	waiting := 0
	for i := range a.asked {
		r := &a.asked[i]
		switch r.State {
		case dlq.RequestDone:
			fmt.Fprintf(a.out, "%s %d is %s\n", a.noun(), r.N, a.done)
		case dlq.RequestWaits:
			waiting++
			again := ""
			if r.Again {
				again = fmt.Sprintf(", which %s has asked for already", clean(r.Who))
			}
			fmt.Fprintf(a.out, "%s of %s %d%s: request %d\n", r.Kind, a.noun(), r.N, again, r.ID)
		default:
			if len(a.asked)+len(a.errors) > 1 {
				fmt.Fprintln(a.out, a.failure(r))
			}
		}
	}
	for _, note := range a.noted {
		fmt.Fprintln(a.out, note)
	}
	if len(a.asked)+len(a.errors) > 1 || a.woulds > 0 {
		for _, e := range a.errors {
			fmt.Fprintln(a.out, clean(e.Error))
		}
	}
	if a.woulds > 0 {
		fmt.Fprintf(a.out, "%s would be asked for: %s; nothing was changed\n", a.kind, count(a.woulds, a.noun()))
	}
	a.waits(waiting, runs)
}

// waits says why something is not done yet.
func (a *answer) waits(n int, runs bool) {
	switch {
	case n == 0:
	case !runs:
		fmt.Fprintln(a.out, "queued, no relay running: it is carried out when one starts")
	default:
		fmt.Fprintln(a.out, "queued: the relay has not carried it out yet; `show` tells what becomes of it")
	}
}

// wouldAll tells what a bulk request would be about.
func (a *answer) wouldAll(n int64) error {
	if a.json {
		return printJSON(a.out, map[string]any{"dry_run": true, "matched": n})
	}
	_, err := fmt.Fprintf(a.out, "%s would be asked for: %s; nothing was changed\n", a.kind, a.many(n))
	return err
}

func (a *answer) many(n int64) string {
	if a.kind == dlq.Purge {
		return count(uint64(n), "row")
	}
	return count(uint64(n), a.noun())
}

// progress shows on a terminal how far a job is, in one line that is written again and again.
func (a *answer) progress(j dlq.Job) {
	if a.json || !onTerminal(a.errs) {
		return
	}
	line := jobLine(&j)
	fmt.Fprintf(a.errs, "\r%s%s", line, strings.Repeat(" ", max(a.shown-len(line), 0)))
	a.shown = len(line)
}

// clear takes the line of progress away, at its end or when nobody waits for that any more.
func (a *answer) clear() {
	if a.shown > 0 {
		fmt.Fprintf(a.errs, "\r%s\r", strings.Repeat(" ", a.shown))
	}
}

func jobLine(j *dlq.Job) string {
	line := fmt.Sprintf("job %d%s: %s of %s done", j.ID, ifSet(j.State == dlq.JobCancelled, " was cancelled"), thousands(uint64(j.Done)), thousands(uint64(j.Matched)))
	for _, part := range []struct {
		n    int64
		what string
	}{{j.Failed, "failed"}, {j.Skipped, "skipped, because another request waits"}} {
		if part.n > 0 {
			line += fmt.Sprintf(", %s %s", thousands(uint64(part.n)), part.what)
		}
	}
	return line
}

// job tells how far a bulk request is. Its error is of exit 1 when some of it failed.
func (a *answer) job(j dlq.Job, runs bool) error {
	a.clear()
	if a.json {
		if err := printJSON(a.out, struct {
			dlq.Job
			Running bool `json:"relay_running"`
		}{j, runs}); err != nil {
			return err
		}
	} else {
		switch {
		case j.ID == 0:
			fmt.Fprintf(a.out, "nothing to %s: the filter chooses no row that allows it\n", a.kind)
		case j.State != dlq.JobRuns:
			fmt.Fprintln(a.out, jobLine(&j))
		case !runs:
			fmt.Fprintf(a.out, "job %d: %s of %s is queued, no relay running: it is carried out when one starts\n", j.ID, j.Kind, a.many(j.Matched))
		default:
			fmt.Fprintf(a.out, "%s; the relay goes on with it\n", jobLine(&j))
		}
		for _, f := range j.Failures {
			fmt.Fprintf(a.out, "such as %s %d: %s\n", a.noun(), f.N, clean(f.Result))
		}
		if j.ID != 0 && j.State == dlq.JobRuns {
			fmt.Fprintf(a.out, "cdc-relay deadletters job %d tells how far it is; --cancel ends it\n", j.ID)
		}
	}
	if j.Failed > 0 {
		return &outbox.Stop{Code: outbox.ExitFailure, Reason: "partly", What: fmt.Sprintf("job %d: %s failed for %s", j.ID, j.Kind, a.many(j.Failed))}
	}
	return nil
}
