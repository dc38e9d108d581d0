// The result of an action: how a command waits for it, prints it as text or JSON, and turns it into
// an exit code.

package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// The time between two looks at whether a request was carried out.
const (
	minPoll = 100 * time.Millisecond // between the first two looks; it grows after each
	maxPoll = time.Second
)

// waitUntil calls done again and again for at most wait. It does not wait when no relay holds the
// slot, unless asked is true: the time is from the command line. An interrupt ends the wait, and
// the request stays. runs reports whether a relay holds the slot.
func (d *adminClient) waitUntil(ctx context.Context, wait time.Duration, asked bool, done func(context.Context) (bool, error)) (runs bool, err error) {
	if runs, err = d.RelayRuns(ctx); err != nil || wait == 0 || !runs && !asked {
		return runs, err
	}
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	within, stop := signal.NotifyContext(within, os.Interrupt)
	defer stop()
	for tick := minPoll; ; tick = min(tick*5/4, maxPoll) {
		if ended, err := done(ctx); ended || err != nil {
			return true, err
		}
		select {
		case <-within.Done():
			return d.RelayRuns(ctx)
		case <-time.After(tick):
		}
	}
}

// waitForRequests waits until requests have ended, and writes their outcome into list.
func (d *adminClient) waitForRequests(ctx context.Context, list []dlq.Request, wait time.Duration, asked bool) (runs bool, err error) {
	if len(list) == 0 {
		return true, nil
	}
	return d.waitUntil(ctx, wait, asked, func(ctx context.Context) (bool, error) {
		var open []int64
		for _, r := range list {
			if r.State == dlq.RequestWaits {
				open = append(open, r.ID)
			}
		}
		if len(open) == 0 {
			return true, nil
		}
		now, err := d.Requests(ctx, open)
		for _, r := range now {
			if i := slices.IndexFunc(list, func(old dlq.Request) bool { return old.ID == r.ID }); i >= 0 {
				r.Again = list[i].Again
				list[i] = r
			}
		}
		return err == nil && !slices.ContainsFunc(list, func(r dlq.Request) bool { return r.State == dlq.RequestWaits }), err
	})
}

// waitForJob waits for the end of a job, and calls progress at each look.
func (d *adminClient) waitForJob(ctx context.Context, j dlq.Job, wait time.Duration, asked bool, progress func(dlq.Job)) (_ dlq.Job, runs bool, err error) {
	runs, err = d.waitUntil(ctx, wait, asked, func(ctx context.Context) (bool, error) {
		var err error
		if j, err = d.Job(ctx, j.ID); err != nil {
			return false, err
		}
		progress(j)
		return j.State != dlq.JobRuns, nil
	})
	return j, runs, err
}

// result collects the outcome of an action, prints it, and makes the exit code of it.
type result struct {
	action
	out  io.Writer // escapes what a terminal would obey
	line command.Progress
	json bool

	requests []dlq.Request
	errors   []rowError // of rows that do not allow the action
	notes    []string   // about rows for which nothing is to be done
	dryRun   bool       // nothing is requested
	matched  int        // in a dry run, the rows that allow the action
}

// rowError says why a row does not allow the action.
type rowError struct {
	N     int64  `json:"n"`
	Error string `json:"error"`
	err   error
}

// addRowError adds an error that is about one row. It returns false for any other error.
func (res *result) addRowError(n int64, err error) bool {
	var done *dlq.Done
	var missing *dlq.NotFound
	var not *dlq.NotNow
	switch {
	case errors.As(err, &done):
		res.notes = append(res.notes, done.Error())
	case errors.As(err, &missing), errors.As(err, &not):
		res.errors = append(res.errors, rowError{n, err.Error(), err})
	default:
		return false
	}
	return true
}

// addDryRun adds what a dry run has found about one row.
func (res *result) addDryRun(n int64, err error) {
	switch {
	case err == nil:
		res.matched++
	case !res.addRowError(n, err):
		res.errors = append(res.errors, rowError{n, err.Error(), err})
	}
}

// noun returns the word for the rows of the action: deferred row or dead letter.
func (res *result) noun() string {
	if res.kind == dlq.Retry || res.kind == dlq.ToDeadLetter {
		return "deferred row"
	}
	return "dead letter"
}

// report prints the outcome for rows that were named by their numbers. Its error (exit 1) means
// that something was not done.
func (res *result) report(runs bool) error {
	if res.json {
		if err := command.JSON(res.out, struct {
			Requests []dlq.Request `json:"requests"`
			Errors   []rowError    `json:"errors"`
			Notes    []string      `json:"notes"`
			DryRun   bool          `json:"dry_run"`
			Matched  int           `json:"matched"`
			Running  bool          `json:"relay_running"`
		}{append([]dlq.Request{}, res.requests...), append([]rowError{}, res.errors...), append([]string{}, res.notes...), res.dryRun, res.matched + len(res.requests), runs}); err != nil {
			return err
		}
	} else {
		res.reportText(runs)
	}
	failed := len(res.errors)
	for _, r := range res.requests {
		if r.State == dlq.RequestFailed || r.State == dlq.RequestCancelled {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	if len(res.requests)+len(res.errors) == 1 {
		return res.singleError()
	}
	return &event.Stop{Code: event.ExitFailure, Reason: "partly", What: fmt.Sprintf("%s was not done for %d of %s", commandName(res.kind), failed, command.Count(len(res.requests)+len(res.errors)+len(res.notes), res.noun()))}
}

// singleError returns the error for the only row that was named.
func (res *result) singleError() error {
	if len(res.errors) == 1 {
		return res.errors[0].err
	}
	return &event.Stop{Code: event.ExitFailure, Reason: "failed", What: res.failureText(&res.requests[0])}
}

func (res *result) failureText(r *dlq.Request) string {
	if r.State == dlq.RequestCancelled {
		return fmt.Sprintf("%s of %s %d was cancelled", commandName(r.Kind), res.noun(), r.N)
	}
	stays := ""
	if r.Kind == dlq.Replay {
		stays = "; it stays open"
	}
	return fmt.Sprintf("%s of %s %d failed: %s%s", commandName(r.Kind), res.noun(), r.N, command.Clean(r.Result), stays)
}

func (res *result) reportText(runs bool) {
	waiting := 0
	for i := range res.requests {
		r := &res.requests[i]
		switch r.State {
		case dlq.RequestDone:
			fmt.Fprintf(res.out, "%s %d is %s\n", res.noun(), r.N, res.done)
		case dlq.RequestWaits:
			waiting++
			again := ""
			if r.Again {
				again = fmt.Sprintf(", already requested by %s", command.Clean(r.Who))
			}
			fmt.Fprintf(res.out, "%s of %s %d%s: request %d\n", commandName(r.Kind), res.noun(), r.N, again, r.ID)
		default:
			if len(res.requests)+len(res.errors) > 1 {
				fmt.Fprintln(res.out, res.failureText(r))
			}
		}
	}
	for _, note := range res.notes {
		fmt.Fprintln(res.out, command.Clean(note))
	}
	if len(res.requests)+len(res.errors) > 1 || res.matched > 0 {
		for _, e := range res.errors {
			fmt.Fprintln(res.out, command.Clean(e.Error))
		}
	}
	if res.matched > 0 {
		fmt.Fprintf(res.out, "%s would apply to %s; nothing was changed\n", commandName(res.kind), command.Count(res.matched, res.noun()))
	}
	res.reportQueued(waiting, runs)
}

// reportQueued says why requests are not carried out yet.
func (res *result) reportQueued(n int, runs bool) {
	switch {
	case n == 0:
	case !runs:
		fmt.Fprintln(res.out, "queued, no relay running: carried out when one starts")
	default:
		fmt.Fprintln(res.out, "queued: not carried out yet; `show` reports the outcome")
	}
}

// bulkDryRun prints how many rows a bulk request would apply to.
func (res *result) bulkDryRun(n int64) error {
	if res.json {
		return command.JSON(res.out, map[string]any{"dry_run": true, "matched": n})
	}
	_, err := fmt.Fprintf(res.out, "%s would apply to %s; nothing was changed\n", commandName(res.kind), res.countText(n))
	return err
}

func (res *result) countText(n int64) string {
	if res.kind == dlq.Purge || res.kind == dlq.ResendRows {
		return command.Count(uint64(n), "row")
	}
	return command.Count(uint64(n), res.noun())
}

// progress shows on a terminal how far a job is.
func (res *result) progress(j dlq.Job) {
	if !res.json {
		res.line.Show(jobLine(&j))
	}
}

func jobLine(j *dlq.Job) string {
	skipped := "skipped, because another request waits"
	if j.Kind == dlq.ResendRows {
		skipped = "left out, because they wait already or are dead letters"
	}
	line := fmt.Sprintf("job %d%s: %s of %s done", j.ID, command.If(j.State == dlq.JobCancelled, " was cancelled"), command.Thousands(uint64(j.Done)), command.Thousands(uint64(j.Matched)))
	for _, part := range []struct {
		n    int64
		what string
	}{{j.Failed, "failed"}, {j.Skipped, skipped}} {
		if part.n > 0 {
			line += fmt.Sprintf(", %s %s", command.Thousands(uint64(part.n)), part.what)
		}
	}
	return line
}

// reportJob prints the outcome of a bulk request. Its error (exit 1) means that some of it failed.
func (res *result) reportJob(j dlq.Job, runs bool) error {
	res.line.Clear()
	if res.json {
		if err := command.JSON(res.out, struct {
			dlq.Job
			Running bool `json:"relay_running"`
		}{j, runs}); err != nil {
			return err
		}
	} else {
		switch {
		case j.ID == 0:
			fmt.Fprintf(res.out, "nothing to %s: no row matches\n", commandName(res.kind))
		case j.State != dlq.JobRuns:
			fmt.Fprintln(res.out, jobLine(&j))
		case !runs:
			fmt.Fprintf(res.out, "job %d: %s of %s is queued, no relay running: carried out when one starts\n", j.ID, commandName(j.Kind), res.countText(j.Matched))
		default:
			fmt.Fprintf(res.out, "%s; the relay continues with it\n", jobLine(&j))
		}
		for _, f := range j.Failures {
			fmt.Fprintf(res.out, "failed: %s %d: %s\n", res.noun(), f.N, command.Clean(f.Result))
		}
		if j.ID != 0 && j.State == dlq.JobRuns {
			fmt.Fprintf(res.out, "`cdc-relay dead-letters job %d` shows progress; --cancel stops it\n", j.ID)
		}
	}
	if j.State == dlq.JobFailed {
		return &event.Stop{Code: event.ExitFailure, Reason: "failed", What: fmt.Sprintf("job %d failed, nothing is sent: %s", j.ID, command.Clean(j.Result))}
	}
	if j.Failed > 0 {
		return &event.Stop{Code: event.ExitFailure, Reason: "partly", What: fmt.Sprintf("job %d: %s failed for %s", j.ID, commandName(j.Kind), res.countText(j.Failed))}
	}
	return nil
}
