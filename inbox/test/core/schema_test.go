package core

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// The table has its index, whatever it is called. A name that is none is a mistake in a program.
func TestSchema(t *testing.T) {
	t.Parallel()
	r := newRig(t, write, nil)
	long := strings.Repeat("ü", 31) // PostgreSQL keeps 63 bytes
	_, err := r.pool.Exec(t.Context(), inbox.Schema(long)+inbox.Schema(long))
	await.Must(t, err)
	for _, table := range []string{"processed_messages", long} {
		if n := r.count(t, "SELECT count(*) FROM pg_index WHERE indrelid = $1::regclass", quoted(table)); n != 2 {
			t.Errorf("table %q has %d indexes, want 2", table, n)
		}
	}
	for _, wrong := range []string{"a.b.c", "a.", ".b"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is taken for a table", wrong)
				}
			}()
			inbox.Schema(wrong)
		}()
	}
}
