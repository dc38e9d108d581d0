// An output for tests.

package console

import (
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// Recording is an output that can be read while it is written.
type Recording struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds to the output.
func (r *Recording) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

// String is all of the output.
func (r *Recording) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// Await returns when the output contains all of the texts. It goes on for as long as something is
// written: a look at the output takes no longer on a busy machine, and what writes does.
func (r *Recording) Await(t testing.TB, texts ...string) {
	t.Helper()
	for _, want := range texts {
		for seen := r.String(); !strings.Contains(seen, want); {
			before := len(seen)
			await.Until(t, want, func() bool { seen = r.String(); return len(seen) > before }, func() any { return seen })
		}
	}
}
