// Package work is what consumers share: tasks by key, the pauses before something is tried again,
// and the log lines about what works or does not.
package work

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"regexp"
	"sync"
	"time"
)

// Backoff makes pauses that grow. The zero value begins with 50 ms and ends with 10 s.
type Backoff struct {
	Min, Max time.Duration
	length   time.Duration
}

// Pause waits, and returns why ctx has ended if it does before.
func (b *Backoff) Pause(ctx context.Context) error {
	b.length = min(max(2*b.length, cmp.Or(b.Min, 50*time.Millisecond)), cmp.Or(b.Max, 10*time.Second))
	timer := time.NewTimer(b.length/2 + rand.N(b.length/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Reset lets the pauses begin again with the shortest.
func (b *Backoff) Reset() { b.length = 0 }

// Journal writes a line for each reason why one thing does not work, again each minute, and one
// when it works again.
type Journal struct {
	log              *slog.Logger
	failing, working string // the texts of its lines

	mu       sync.Mutex
	since    time.Time            // of the first failure; zero: it works
	loggedAt map[string]time.Time // when a reason was logged last
}

// NewJournal makes a journal of something that works, with the texts of its lines.
func NewJournal(log *slog.Logger, failing, working string) *Journal {
	return &Journal{log: log, failing: failing, working: working, loggedAt: map[string]time.Time{}}
}

// ephemeral is what differs at each connect in an error's text: the local end of a socket.
var ephemeral = regexp.MustCompile(`[^ ]+:\d+->`)

// Failed is called with each failure.
func (j *Journal) Failed(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, why := time.Now(), ephemeral.ReplaceAllString(err.Error(), "")
	if j.since.IsZero() {
		j.since = now
	}
	maps.DeleteFunc(j.loggedAt, func(_ string, at time.Time) bool { return now.Sub(at) >= time.Minute })
	if _, ok := j.loggedAt[why]; ok {
		return
	}
	j.loggedAt[why] = now
	j.log.Warn(j.failing, "error", why, "since", j.since)
}

// Works is called when it works, and returns whether that is new and a line.
func (j *Journal) Works() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.since.IsZero() {
		return false
	}
	j.log.Info(j.working, "after", time.Since(j.since).Round(time.Millisecond))
	j.since = time.Time{}
	clear(j.loggedAt)
	return true
}
