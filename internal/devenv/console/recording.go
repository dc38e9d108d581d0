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

// Await returns when the output contains all of the texts.
func (r *Recording) Await(t testing.TB, texts ...string) {
	t.Helper()
	for _, want := range texts {
		await.Until(t, want, func() bool { return strings.Contains(r.String(), want) }, func() any { return r.String() })
	}
}
