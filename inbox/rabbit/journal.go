// Log lines about something that works or does not: one for each change, and one each minute.

package rabbit

import (
	"log/slog"
	"sync"
	"time"
)

// journal is about one thing.
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
