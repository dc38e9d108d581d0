package dlq

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestFilters(t *testing.T) {
	r := setup(t)
	a := r.put(sample{id: "id-a", key: "k1", aggregate: "order", kind: "created", name: "orders", routingKey: "eu.created"})
	b := r.put(sample{key: "k1", aggregate: "client", class: "transient", reason: "nacked", words: "queue # is FULL"})
	c := r.put(sample{key: "k2", kind: "removed", name: "orders", routingKey: "us.created", class: "destination", reason: "unroutable", words: "### NO_ROUTE"})
	d := r.put(sample{name: "a/b", state: Discarded})
	e := r.put(sample{noKey: true, noAggregate: true, state: Replayed})
	p := r.put(sample{state: Purged, key: "gone"})
	w1 := r.put(sample{of: Deferred, key: "k1", name: "orders", routingKey: "eu.created", reason: "nacked", words: "queue # is FULL"})
	w2 := r.put(sample{of: Deferred, key: "k3", class: "-", reason: "-"})
	asked, err := r.admin.Request(r.ctx, Action{Kind: Replay, N: b, By: by})
	r.must(err)

	for _, c := range []struct {
		name string
		f    Filter
		want []int64
	}{
		{"nothing asked for", Filter{}, []int64{e, d, c, b, a}},
		{"id", Filter{ID: []byte("id-a")}, []int64{a}},
		{"key", Filter{Key: []byte("k1")}, []int64{b, a}},
		{"key and aggregate", Filter{Key: []byte("k1"), Aggregate: []byte("client")}, []int64{b}},
		{"the empty key is not NULL", Filter{Key: []byte("")}, nil},
		{"no aggregate", Filter{NoAggregate: true}, []int64{e}},
		{"type", Filter{Type: []byte("removed")}, []int64{c}},
		{"exchange", Filter{Destination: []byte("orders")}, []int64{e, c, b, a}},
		{"exchange and routing key", Filter{Destination: []byte("orders/us.created")}, []int64{c}},
		{"a name with a slash", Filter{Destination: []byte("a/b")}, []int64{d}},
		{"class", Filter{Class: "transient"}, []int64{b}},
		{"reason", Filter{Error: "unroutable"}, []int64{c}},
		{"words", Filter{Error: "is full"}, []int64{b}},
		{"words with a number", Filter{Error: "queue 17 is"}, []int64{b}},
		{"words with a UUID", Filter{Error: "queue 6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10 is"}, []int64{b}},
		{"words that begin with a number", Filter{Error: "312 no_route"}, []int64{c}},
		{"words that several texts have", Filter{Error: "o"}, []int64{e, d, c, a}},
		{"words that nobody said", Filter{Error: "%"}, nil},
		{"open", Filter{State: Open}, []int64{c, b, a}},
		{"replaying", Filter{State: Replaying}, []int64{b}},
		{"replayed", Filter{State: Replayed}, []int64{e}},
		{"discarded", Filter{State: Discarded}, []int64{d}},
		{"purged", Filter{State: Purged}, []int64{p}},
		{"from", Filter{From: r.at.Add(-4 * time.Second)}, []int64{e, d}},
		{"to", Filter{To: r.at.Add(-6 * time.Second)}, []int64{a}},
		{"from and to", Filter{From: r.at.Add(-6 * time.Second), To: r.at.Add(-5 * time.Second)}, []int64{b}},
		{"all of it", Filter{ID: []byte("id-a"), Key: []byte("k1"), Aggregate: []byte("order"), Type: []byte("created"), Destination: []byte("orders/eu.created"), Class: "permanent", Error: "body of", State: Open, To: r.at}, []int64{a}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inner := *r
			inner.t = t
			inner.wantList(DeadLetters, c.f, c.want...)
		})
	}
	r.wantList(Deferred, Filter{}, w2, w1)
	r.wantList(Deferred, Filter{Key: []byte("k1")}, w1)
	r.wantList(Deferred, Filter{Destination: []byte("orders")}, w2, w1)
	r.wantList(Deferred, Filter{Destination: []byte("orders/eu.created"), Error: "full"}, w1)
	r.wantList(Deferred, Filter{From: r.at}, w2)
	if asked.State != RequestWaits {
		t.Errorf("the request is %+v", asked)
	}
}

func TestFiltersThatAreRefused(t *testing.T) {
	for want, c := range map[string]struct {
		of *Table
		f  Filter
	}{
		"class is \"fatal\", want one of destination, transient, permanent":           {DeadLetters, Filter{Class: "fatal"}},
		"state is \"dead\", want one of open, replaying, replayed, discarded, purged": {DeadLetters, Filter{State: "dead"}},
		"state is not asked of deferred rows: they wait, all of them":                 {Deferred, Filter{State: Open}},
		"to is 2026-01-01T00:00:00Z, which is not after from, 2026-01-01T00:00:00Z":   {DeadLetters, Filter{From: day(1), To: day(1)}},
		"aggregate is wanted and not wanted":                                          {Deferred, Filter{NoAggregate: true, Aggregate: []byte("a")}},
	} {
		var bad *BadInput
		if err := c.f.Check(c.of); !errors.As(err, &bad) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	admin := New(nil, "s")
	for _, cursor := range []string{"x", "-", "1-", "-1", "0", "5-x", "1-2-3"} {
		if _, err := admin.List(t.Context(), DeadLetters, Filter{}, cursor, 1); err == nil || !strings.HasPrefix(err.Error(), "cursor is ") {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
	for _, limit := range []int{0, -1, MaxLimit + 1} {
		if _, err := admin.List(t.Context(), DeadLetters, Filter{}, "", limit); err == nil || !strings.HasPrefix(err.Error(), "limit is ") {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

func day(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }

// An empty key is a key: taken for none, a purge of its rows would be one of all rows. It stays
// what it is in the filter of a job, which is stored as JSON; so do bytes that are no UTF-8.
func TestEmptyKeyIsOne(t *testing.T) {
	for _, value := range []string{"", "a", "\xff\x00"} {
		var in FilterInput
		if known, err := in.Set("key", value); !known || err != nil {
			t.Fatal(known, err)
		}
		f, err := in.Filter(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := json.Marshal(&f)
		if err != nil {
			t.Fatal(err)
		}
		var read Filter
		if err := json.Unmarshal(stored, &read); err != nil {
			t.Fatal(err)
		}
		for _, key := range [][]byte{f.Key, read.Key} {
			if key == nil || !bytes.Equal(key, []byte(value)) {
				t.Errorf("the key %q is %#v", value, key)
			}
		}
		if read.ID != nil || read.Aggregate != nil || read.Type != nil || read.Destination != nil {
			t.Errorf("what was not given is %+v", read)
		}
	}
}
