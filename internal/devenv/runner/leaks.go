// A test's search for personal data in the logs, errors and answers of relays.

package runner

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/sentinel"
)

// shows reports whether a path of the admin server is there to show what was asked for, keys and
// payloads among it.
func shows(path string) bool {
	for _, p := range []string{"/api/v1/dead-letters", "/api/v1/deferred", "/api/v1/events"} {
		if strings.HasPrefix(path, p) {
			return true
		}
	}
	return false
}

// leaks remember the first leak of a relay's answers.
type leaks struct {
	mu    sync.Mutex
	first error
}

func (l *leaks) look(path, body string) {
	if shows(path) {
		return
	}
	err := sentinel.Leak(path, body)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = err
	}
}

// lookForLeaks asks a relay that runs for what CheckLeaks searches. One that is stopped is asked
// before.
func (r *Relay) lookForLeaks(more ...string) {
	if !r.Running() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, path := range append(more, "/metrics", "/api/v1/status", "/readyz", "/healthz", "/api/v1/slots") {
		if _, _, err := r.Get(ctx, path); err != nil {
			return // it is frozen, or ends just now
		}
	}
}

// CheckLeaks fails the test when what the relay has said so far has personal data: its log, metrics
// and status, and all that was asked of its admin server before.
func (r *Relay) CheckLeaks(t testing.TB) {
	t.Helper()
	// it connects to both sides, which is too dear for the end of each relay
	r.lookForLeaks("/api/v1/check")
	r.leaks.mu.Lock()
	first := r.leaks.first
	r.leaks.mu.Unlock()
	for _, err := range []error{first, sentinel.Leak("the relay's log", r.Log())} {
		if err != nil {
			t.Error(err)
		}
	}
}
