// Waiting until the leader has carried out a request or a job.

package operate

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

const (
	minPoll = 100 * time.Millisecond // between the first two polls; later ones are further apart
	maxPoll = time.Second
)

// waitUntil polls done for at most wait. It does not wait when no relay holds the slot, unless the
// time was given on the command line. An interrupt ends the wait and leaves the request. runs
// reports whether a relay holds the slot.
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

// waitForRequests waits for the end of requests, and writes it into them.
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

// waitForJob waits for the end of a job, and shows its progress.
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
