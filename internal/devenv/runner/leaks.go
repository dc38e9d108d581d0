// A test's search for personal data in the logs, errors and answers of relays.

package runner

import (
	"strings"
	"sync"

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
