//go:build testall

package dlq

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// What any event may have as its key: it is found, shown, and does not break the answer.
func TestKeysOfAnyKind(t *testing.T) {
	r := setup(t)
	for _, key := range []string{"a\x00b", strings.Repeat("k", 60<<10), "\\x00ff", "ключ", "\x1b[2J", "\xff\xfe"} {
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

// An index has the beginning of a long value: rows that differ behind it are distinguished.
func TestFiltersOnLongValues(t *testing.T) {
	r := setup(t)
	long := strings.Repeat("x", 300)
	a := r.put(sample{id: long + "a", key: long + "a", aggregate: long + "a", kind: long + "a", name: long, routingKey: "a"})
	b := r.put(sample{id: long + "b", key: long + "b", aggregate: long + "b", kind: long + "b", name: long, routingKey: "b", class: "transient"})
	for suffix, want := range map[string]int64{"a": a, "b": b} {
		value := long + suffix
		for _, f := range []Filter{
			{ID: []byte(value)},
			{Key: []byte(value)},
			{Aggregate: []byte(value)},
			{Type: []byte(value)},
			{Destination: []byte(long + "/" + suffix)},
			{Destination: []byte(long + "/" + suffix), State: Open},
		} {
			r.wantList(DeadLetters, f, want)
		}
	}
	r.wantList(DeadLetters, Filter{Destination: []byte(long)}, b, a)
	r.wantList(DeadLetters, Filter{Destination: []byte(long + "/c")})
}

// A page ends among dead letters of one moment, and new ones come in between: each is seen once, in
// order.
func TestPagesOverEqualTimes(t *testing.T) {
	r := setup(t)
	var want []int64
	for range 10 {
		want = append([]int64{r.put(sample{at: r.at})}, want...)
	}
	r.wantList(DeadLetters, Filter{}, want...)
	r.wantList(DeadLetters, Filter{Error: "body"}, want...)
	first, err := r.admin.List(r.ctx, DeadLetters, Filter{}, "", 4)
	r.must(err)
	r.put(sample{at: r.at})
	r.put(sample{at: r.at.Add(time.Hour)})
	second, err := r.admin.List(r.ctx, DeadLetters, Filter{}, first.Next, 4)
	r.must(err)
	if second.Rows[0].N != want[4] || second.Rows[3].N != want[7] {
		t.Errorf("the second page is %+v, want %v", second.Rows, want[4:8])
	}
}
