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
	mu    sync.Mutex
	text  strings.Builder
	ended bool
	err   error // with which it has ended
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

// End says that nothing more is written, and why. Await then waits for nothing any more.
func (r *Recording) End(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.err = true, err
}

// soFar returns the output, and what End has said.
func (r *Recording) soFar() (text string, ended bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String(), r.ended, r.err
}

// Await returns when the output contains all of the texts. It goes on for as long as something is
// written: a look at the output takes no longer on a busy machine, and what writes does.
func (r *Recording) Await(t testing.TB, texts ...string) {
	t.Helper()
	for _, want := range texts {
		for seen, ended, err := r.soFar(); !strings.Contains(seen, want); {
			if ended {
				t.Fatalf("ended with %v, without %q:\n%s", err, want, seen)
			}
			before := len(seen)
			await.Until(t, want, func() bool {
				seen, ended, err = r.soFar()
				return ended || len(seen) > before
			}, func() any { return seen })
		}
	}
}
