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

// Backoff makes pauses that grow, before something is tried again. The zero value begins with 50 ms
// and ends with 10 s.
type Backoff struct {
	Min, Max time.Duration
	length   time.Duration
}

// Pause waits for the next pause. When ctx ends first, it returns the cause.
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

// Reset lets the pauses begin again with the shortest one.
func (b *Backoff) Reset() { b.length = 0 }

// Journal logs failures of one thing, such as the connection to a broker. It writes a line for each
// reason, but for the same reason at most once a minute, and one line when the thing works again.
type Journal struct {
	log              *slog.Logger
	failing, working string // the texts of its two lines

	mu       sync.Mutex
	since    time.Time            // when the first failure came; zero while the thing works
	loggedAt map[string]time.Time // when each reason was last logged
}

// NewJournal makes a journal. failing and working are the texts of its lines.
func NewJournal(log *slog.Logger, failing, working string) *Journal {
	return &Journal{log: log, failing: failing, working: working, loggedAt: map[string]time.Time{}}
}

// ephemeral matches the part of an error's text that differs at each connect, the local end of a
// socket, so that such errors count as the same reason.
var ephemeral = regexp.MustCompile(`[^ ]+:\d+->`)

// Failed is called at each failure. It writes a line unless this reason was logged within the last
// minute.
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

// Works is called when the thing works. It writes a line, and returns true, if the thing has failed
// before.
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
