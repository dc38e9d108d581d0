package inbox

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// The table has its index, whatever it is called. A name that is none is a mistake in a program.
func TestSchema(t *testing.T) {
	t.Parallel()
	r := newRig(t, write, nil)
	long := strings.Repeat("ü", 31) // PostgreSQL keeps 63 bytes
	_, err := r.pool.Exec(t.Context(), Schema(long)+Schema(long))
	await.Must(t, err)
	for _, table := range []string{"", long} {
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
			Schema(wrong)
		}()
	}
}
