// The result of an action: printed, as JSON, and as exit code.

package operate

import (
	"errors"
	"fmt"
	"io"

	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// result collects and reports the outcome of an action.
type result struct {
	action
	out  io.Writer
	line output.Progress
	json bool

	requests []dlq.Request
	errors   []rowError // of rows that do not allow the action
	notes    []string   // rows for which there is nothing to do
	dryRun   bool       // nothing is requested
	matched  int        // of a dry run: rows that allow the action
}

// rowError is a row that does not allow the action.
type rowError struct {
	N     int64  `json:"n"`
	Error string `json:"error"`
	err   error
}

// addRowError takes an error that is about one row; false for any other.
func (a *result) addRowError(n int64, err error) bool {
	var done *dlq.Done
	var missing *dlq.NotFound
	var not *dlq.NotNow
	switch {
	case errors.As(err, &done):
		a.notes = append(a.notes, done.Error())
	case errors.As(err, &missing), errors.As(err, &not):
		a.errors = append(a.errors, rowError{n, err.Error(), err})
	default:
		return false
	}
	return true
}

// addDryRun takes what a dry run found about one row.
func (a *result) addDryRun(n int64, err error) {
	switch {
	case err == nil:
		a.matched++
	case !a.addRowError(n, err):
		a.errors = append(a.errors, rowError{n, err.Error(), err})
	}
}

// noun is what the rows are called.
func (a *result) noun() string {
	if a.kind == dlq.Retry || a.kind == dlq.ToDeadLetter {
		return "deferred row"
	}
	return "dead letter"
}

// report shows the outcome for rows that were named by their numbers. Its error (exit 1) means that
// something was not done.
func (a *result) report(runs bool) error {
	if a.json {
		if err := output.JSON(a.out, struct {
			Requests []dlq.Request `json:"requests"`
			Errors   []rowError    `json:"errors"`
			Notes    []string      `json:"notes"`
			DryRun   bool          `json:"dry_run"`
			Matched  int           `json:"matched"`
			Running  bool          `json:"relay_running"`
		}{append([]dlq.Request{}, a.requests...), append([]rowError{}, a.errors...), append([]string{}, a.notes...), a.dryRun, a.matched + len(a.requests), runs}); err != nil {
			return err
		}
	} else {
		a.reportText(runs)
	}
	failed := len(a.errors)
	for _, r := range a.requests {
		if r.State == dlq.RequestFailed || r.State == dlq.RequestCancelled {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	if len(a.requests)+len(a.errors) == 1 {
		return a.singleError()
	}
	return &event.Stop{Code: event.ExitFailure, Reason: "partly", What: fmt.Sprintf("%s was not done for %d of %s", commandName(a.kind), failed, output.Count(len(a.requests)+len(a.errors)+len(a.notes), a.noun()))}
}

// singleError is the error about the only row.
func (a *result) singleError() error {
	if len(a.errors) == 1 {
		return a.errors[0].err
	}
	return &event.Stop{Code: event.ExitFailure, Reason: "failed", What: a.failureText(&a.requests[0])}
}

func (a *result) failureText(r *dlq.Request) string {
	if r.State == dlq.RequestCancelled {
		return fmt.Sprintf("%s of %s %d was cancelled", commandName(r.Kind), a.noun(), r.N)
	}
	stays := ""
	if r.Kind == dlq.Replay {
		stays = "; it stays open"
	}
	return fmt.Sprintf("%s of %s %d failed: %s%s", commandName(r.Kind), a.noun(), r.N, output.Clean(r.Result), stays)
}

func (a *result) reportText(runs bool) {
	waiting := 0
	for i := range a.requests {
		r := &a.requests[i]
		switch r.State {
		case dlq.RequestDone:
			fmt.Fprintf(a.out, "%s %d is %s\n", a.noun(), r.N, a.done)
		case dlq.RequestWaits:
			waiting++
			again := ""
			if r.Again {
				again = fmt.Sprintf(", already requested by %s", output.Clean(r.Who))
			}
			fmt.Fprintf(a.out, "%s of %s %d%s: request %d\n", commandName(r.Kind), a.noun(), r.N, again, r.ID)
		default:
			if len(a.requests)+len(a.errors) > 1 {
				fmt.Fprintln(a.out, a.failureText(r))
			}
		}
	}
	for _, note := range a.notes {
		fmt.Fprintln(a.out, note)
	}
	if len(a.requests)+len(a.errors) > 1 || a.matched > 0 {
		for _, e := range a.errors {
			fmt.Fprintln(a.out, output.Clean(e.Error))
		}
	}
	if a.matched > 0 {
		fmt.Fprintf(a.out, "%s would apply to %s; nothing was changed\n", commandName(a.kind), output.Count(a.matched, a.noun()))
	}
	a.reportQueued(waiting, runs)
}

// reportQueued explains why something is not done yet.
func (a *result) reportQueued(n int, runs bool) {
	switch {
	case n == 0:
	case !runs:
		fmt.Fprintln(a.out, "queued, no relay running: carried out when one starts")
	default:
		fmt.Fprintln(a.out, "queued: not carried out yet; `show` reports the outcome")
	}
}

// bulkDryRun shows how many rows a bulk request would apply to.
func (a *result) bulkDryRun(n int64) error {
	if a.json {
		return output.JSON(a.out, map[string]any{"dry_run": true, "matched": n})
	}
	_, err := fmt.Fprintf(a.out, "%s would apply to %s; nothing was changed\n", commandName(a.kind), a.countText(n))
	return err
}

func (a *result) countText(n int64) string {
	if a.kind == dlq.Purge {
		return output.Count(uint64(n), "row")
	}
	return output.Count(uint64(n), a.noun())
}

// progress shows on a terminal how far a job is.
func (a *result) progress(j dlq.Job) {
	if !a.json {
		a.line.Show(jobLine(&j))
	}
}

func jobLine(j *dlq.Job) string {
	line := fmt.Sprintf("job %d%s: %s of %s done", j.ID, output.If(j.State == dlq.JobCancelled, " was cancelled"), output.Thousands(uint64(j.Done)), output.Thousands(uint64(j.Matched)))
	for _, part := range []struct {
		n    int64
		what string
	}{{j.Failed, "failed"}, {j.Skipped, "skipped, because another request waits"}} {
		if part.n > 0 {
			line += fmt.Sprintf(", %s %s", output.Thousands(uint64(part.n)), part.what)
		}
	}
	return line
}

// reportJob shows the progress of a bulk request. Its error (exit 1) means that some of it failed.
func (a *result) reportJob(j dlq.Job, runs bool) error {
	a.line.Clear()
	if a.json {
		if err := output.JSON(a.out, struct {
			dlq.Job
			Running bool `json:"relay_running"`
		}{j, runs}); err != nil {
			return err
		}
	} else {
		switch {
		case j.ID == 0:
			fmt.Fprintf(a.out, "nothing to %s: no row matches\n", commandName(a.kind))
		case j.State != dlq.JobRuns:
			fmt.Fprintln(a.out, jobLine(&j))
		case !runs:
			fmt.Fprintf(a.out, "job %d: %s of %s is queued, no relay running: carried out when one starts\n", j.ID, commandName(j.Kind), a.countText(j.Matched))
		default:
			fmt.Fprintf(a.out, "%s; the relay continues with it\n", jobLine(&j))
		}
		for _, f := range j.Failures {
			fmt.Fprintf(a.out, "failed: %s %d: %s\n", a.noun(), f.N, output.Clean(f.Result))
		}
		if j.ID != 0 && j.State == dlq.JobRuns {
			fmt.Fprintf(a.out, "`cdc-relay dead-letters job %d` shows progress; --cancel stops it\n", j.ID)
		}
	}
	if j.Failed > 0 {
		return &event.Stop{Code: event.ExitFailure, Reason: "partly", What: fmt.Sprintf("job %d: %s failed for %s", j.ID, commandName(j.Kind), a.countText(j.Failed))}
	}
	return nil
}
