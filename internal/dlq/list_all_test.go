//go:build testall

package dlq

import (
	"fmt"
	"strings"
	"testing"
)

// What any event may have as its key: it is found, shown, and does not break the answer.
func TestKeysOfAnyKind(t *testing.T) {
	r := setup(t)
	for _, key := range []string{"a\x00b", strings.Repeat("k", 128<<10), "\\x00ff", "ключ", "\x1b[2J", "\xff\xfe"} {
		n := r.put(sample{key: key})
		w := r.put(sample{of: Deferred, key: key})
		r.wantList(DeadLetters, Filter{Key: []byte(key)}, n)
		r.wantList(Deferred, Filter{Key: []byte(key)}, w)
		shown, err := r.admin.Show(r.ctx, DeadLetters, n, true)
		r.must(err)
		if *shown.Key != key {
			t.Errorf("key %.20q is shown as %.20q", key, *shown.Key)
		}
		job, err := r.admin.Start(r.ctx, Bulk{Kind: Purge, Filter: Filter{Key: []byte(key)}, By: by})
		r.must(err)
		r.expand()
		if got := value[string](r, `SELECT string_agg(n::text, ' ' ORDER BY id) FROM cdc_relay.request WHERE job = $1`, job.ID); got != both(w, n) {
			t.Errorf("the purge of %.20q asks about %s, want %s", key, got, both(w, n))
		}
	}
}

func both(a, b int64) string { return fmt.Sprint(a, " ", b) }
