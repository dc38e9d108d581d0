package dlq

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// groups are those of a table, each as its value and count.
func (r *rig) groups(of *Table, by, state string) (out []string) {
	r.t.Helper()
	list, err := r.admin.Groups(r.ctx, of, by, state)
	r.must(err)
	for _, g := range list.Items {
		out = append(out, fmt.Sprintf("%s %d %v %s", shownID(g.Value), g.Count, g.OrMore, g.Oldest.Format("05")))
	}
	return out
}

// Rows are counted by what they have in common, with their oldest: by an index, to a limit.
func TestGroups(t *testing.T) {
	r := setup(t)
	for _, s := range []sample{
		{reason: "nacked", class: "transient", name: "orders", routingKey: "eu"},
		{reason: "nacked", class: "permanent", name: "orders", routingKey: "eu"},
		{reason: "too_large", kind: "paid"},
		{reason: "nacked", class: "transient", state: Discarded, name: "orders", routingKey: "eu"},
		{of: Deferred, name: "topic", dest: 1},
		{of: Deferred, name: "topic", dest: 2},
		{of: Deferred, name: "x", routingKey: "k", dest: 3},
	} {
		r.put(s)
	}
	r.exec(`UPDATE cdc_relay.dead_letter SET type = NULL WHERE reason = 'too_large'`)
	r.exec(`UPDATE cdc_relay.retry SET type = NULL WHERE routing_key = 'k'`)
	// it waits behind another
	r.exec(`UPDATE cdc_relay.retry SET class = '', reason = '', error = '' WHERE dest = 2`)
	for _, c := range []struct {
		of        *Table
		by, state string
		want      []string
	}{
		{DeadLetters, "reason", "", []string{"nacked 2 false 01", "too_large 1 false 03"}},
		{DeadLetters, "reason", Discarded, []string{"nacked 1 false 04"}},
		{DeadLetters, "destination", "", []string{"orders/eu 2 false 01", "orders 1 false 03"}},
		{DeadLetters, "destination", Discarded, []string{"orders/eu 1 false 04"}},
		{DeadLetters, "type", Open, []string{"created 2 false 01", "- 1 false 03"}},
		{DeadLetters, "type", Replayed, nil},
		{Deferred, "destination", "", []string{"topic 2 false 05", "x/k 1 false 07"}},
		{Deferred, "type", "", []string{"created 2 false 05", "- 1 false 07"}},
		{Deferred, "reason", "", []string{"too_large 2 false 05", "- 1 false 06"}},
	} {
		if got := r.groups(c.of, c.by, c.state); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s by %s, state %q: %q, want %q", c.of.name, c.by, c.state, got, c.want)
		}
	}
	// A group has the broker's own words, of the first row that has any: the first may wait behind
	// another.
	r.exec(`UPDATE cdc_relay.retry SET error = '' WHERE route_name = 'topic'`)
	r.exec(`UPDATE cdc_relay.retry SET reason = 'no_exchange', error = '# NOT_FOUND', error_text = '404 NOT_FOUND' WHERE n = $1`,
		r.put(sample{of: Deferred, name: "topic", dest: 1}))
	for by, value := range map[string]string{"destination": "topic", "type": "created", "reason": "no_exchange"} {
		list, err := r.admin.Groups(r.ctx, Deferred, by, "")
		r.must(err)
		i := slices.IndexFunc(list.Items, func(g Group) bool { return shownID(g.Value) == value })
		if g := list.Items[max(i, 0)]; i < 0 || g.Reason != "no_exchange" || g.Error != "# NOT_FOUND" || g.ErrorText != "404 NOT_FOUND" || list.More {
			t.Errorf("by %s the group is %+v", by, g)
		}
	}
	r.exec(`INSERT INTO cdc_relay.dead_letter (slot, system_id, incarnation, commit_lsn, idx, n, ordering_group, exchange_or_topic, dest, hash, keyed, ordered, attempts, bytes,
			deferred_at, died_at, class, reason, error, destination, route_name, type, commit_time, event_time, payload_kind)
		SELECT $1, 's', 1, '0/0', g, 1000 + g, 1, 1, 1, 1, g < 0, false, 0, 1, now(), '2026-11-20T12:00:30Z'::timestamptz + g * interval '1 s', 'permanent', 'invalid', '', '', 'many', 'many', now(), now(), 0
		FROM generate_series(1, 10001) g`, r.slot)
	for _, by := range GroupNames {
		value := map[string]string{"reason": "invalid", "destination": "many", "type": "many"}[by]
		if got := r.groups(DeadLetters, by, ""); len(got) < 2 || got[0] != value+" 10000 true 31" {
			t.Errorf("by %s: %q, want more than 10,000 of %s first", by, got, value)
		}
	}
	for _, bad := range [][]string{{"key", ""}, {"reason", Purged}, {"reason", Replaying}} {
		if _, err := r.admin.Groups(r.ctx, DeadLetters, bad[0], bad[1]); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// What waits for a destination, or for a whole exchange or topic, is counted to a limit, with the
// oldest commit. Rows of another system wait for nobody here.
func TestCountWaiting(t *testing.T) {
	r := setup(t)
	hours := func(n int) time.Time { return time.Now().Add(-time.Duration(n) * time.Hour) }
	copied := r.put(sample{of: Deferred, dest: 2, at: hours(9)})
	r.put(sample{of: Deferred, dest: 2, at: hours(3)})
	r.put(sample{of: Deferred, dest: 2, at: hours(1)})
	r.put(sample{of: Deferred, dest: -5, at: hours(5)})
	r.exec(`UPDATE cdc_relay.retry SET system_id = 'another' WHERE n = $1`, copied)
	r.exec(`INSERT INTO cdc_relay.retry (slot, system_id, incarnation, commit_lsn, idx, n, ordering_group, exchange_or_topic, dest, hash, keyed, ordered, attempts, bytes,
			class, reason, error, destination, commit_time, event_time, payload_kind)
		SELECT $1, $2, 1, '0/0', g, 1000 + g, 1, 7, 1, 1, g < 0, false, 0, 1, '', '', '', '', now() - interval '2 hours', now(), 0
		FROM generate_series(1, 10001) g`, r.slot, r.system())
	one, whole, many, none := sink.Place{ExchangeOrTopic: 1, Dest: 2}, sink.Place{ExchangeOrTopic: 1}, sink.Place{ExchangeOrTopic: 7}, sink.Place{ExchangeOrTopic: 8}
	got, err := CountWaiting(r.ctx, r.pool, r.slot, r.system(), []sink.Place{one, whole, many, none})
	r.must(err)
	for place, want := range map[sink.Place]struct {
		events int
		more   bool
		hours  int
	}{one: {2, false, 3}, whole: {3, false, 5}, many: {10_000, true, 2}, none: {}} {
		w, counted := got[place]
		if !counted || w.Events != want.events || w.OrMore != want.more || w.Oldest.IsZero() != (want.hours == 0) || want.hours > 0 && int(time.Since(w.Oldest).Round(time.Hour).Hours()) != want.hours {
			t.Errorf("for %+v waits %+v, want %+v", place, w, want)
		}
	}
	if got, err := CountWaiting(r.ctx, nil, r.slot, "s", nil); err != nil || got != nil {
		t.Errorf("without places it is %v, %v", got, err)
	}
}
