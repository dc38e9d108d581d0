// Log lines about something that works or does not: one for each change, and one each minute.

package rabbit

import (
	"log/slog"
	"regexp"
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

// ephemeral is what differs at each connect in an error's text: the local end of a socket.
var ephemeral = regexp.MustCompile(`[^ ]+:\d+->`)

// failed is called with each failure.
func (j *journal) failed(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, why := time.Now(), ephemeral.ReplaceAllString(err.Error(), "")
	if j.since.IsZero() {
		j.since = now
	}
	if why == j.why && now.Sub(j.said) < time.Minute {
		return
	}
	j.why, j.said = why, now
	j.log.Warn(j.bad, "error", why, "since", j.since)
}

// works is called when it works, and reports whether it writes a line.
func (j *journal) works() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.since.IsZero() {
		return false
	}
	j.log.Info(j.better, "after", time.Since(j.since).Round(time.Millisecond))
	j.since, j.said, j.why = time.Time{}, time.Time{}, ""
	return true
}
