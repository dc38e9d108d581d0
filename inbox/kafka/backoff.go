// Pauses before something is tried again, and the log lines about it.

package kafka

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// backoff makes pauses that grow from 100 ms to 10 s.
type backoff struct{ next time.Duration }

func (b *backoff) pause(ctx context.Context) error {
	b.next = min(max(2*b.next, 100*time.Millisecond), 10*time.Second)
	timer := time.NewTimer(b.next/2 + rand.N(b.next/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// journal writes log lines about something that works or does not: one for each change, and one
// each minute.
type journal struct {
	log         *slog.Logger
	bad, better string // texts of the lines

	mu    sync.Mutex
	since time.Time // of the first failure; zero: it works
	said  time.Time
	why   string
}

// failed is called with each failure.
func (j *journal) failed(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, why := time.Now(), err.Error()
	if j.since.IsZero() {
		j.since = now
	}
	if why == j.why && now.Sub(j.said) < time.Minute {
		return
	}
	j.why, j.said = why, now
	j.log.Warn(j.bad, "error", err, "since", j.since)
}

// works is called when it works.
func (j *journal) works(details ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.since.IsZero() {
		return
	}
	j.log.Info(j.better, append(details, "after", time.Since(j.since).Round(time.Millisecond))...)
	j.since, j.said, j.why = time.Time{}, time.Time{}, ""
}
