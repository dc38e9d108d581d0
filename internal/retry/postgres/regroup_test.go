package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// placing is the bench of the next leader, whose sink is of a kind: "keyed", or one whose routes
// have no routing key. Its names begin with its template and end with the first byte of the column
// "to".
func (b *bench) placing(kind, template string) (next *bench, found *[]store.Switch) {
	b.Helper()
	found = new([]store.Switch)
	return b.with(func(c *store.Config) {
		c.Epoch, c.Columns = b.raise(b.c.Slot), []string{"to"}
		c.Places = &store.Places{Sink: kind, Templates: template, Keyed: kind == "keyed", Switched: func(s store.Switch) { *found = append(*found, s) }}
		c.Places.Route = func(ev *event.Event) (r event.Route) {
			if to := ev.Columns[0]; to != nil {
				r.Name = append([]byte(template), to[0])
			}
			if c.Places.Keyed {
				r.RoutingKey = ev.Type
			}
			return r
		}
	}), found
}

// deferTo defers rows of one key, each as the leader of b places it.
func (b *bench) deferTo(rows ...*store.Row) {
	b.Helper()
	for _, row := range rows {
		row.Event.Route, row.ExchangeOrTopic, row.Dest = nil, 0, 0
		route := b.c.Places.Route(&row.Event)
		if row.Event.Route = &route; row.Event.Fault == nil {
			row.ExchangeOrTopic, row.Dest = sink.ExchangeOrTopicOf(route.Name), 5
		}
		row.Group, row.Ordered = b.c.Scope.Group(&row.Event, row.ExchangeOrTopic)
	}
	b.deferRow(rows...)
}

// wantPlaces compares where rows go, and that the groups are those of the names.
func (b *bench) wantPlaces(w *database, rows []*store.Row, want func(*store.Row) string) {
	b.Helper()
	for _, row := range rows {
		var name, key *string
		var exchangeOrTopic, group int64
		w.scan(`SELECT encode(route_name, 'escape'), encode(routing_key, 'escape'), exchange_or_topic, ordering_group FROM cdc_relay.retry WHERE n = $1
			UNION ALL SELECT encode(route_name, 'escape'), encode(routing_key, 'escape'), exchange_or_topic, ordering_group FROM cdc_relay.dead_letter WHERE n = $1`,
			[]any{row.N}, &name, &key, &exchangeOrTopic, &group)
		got, of := "nowhere", uint64(0)
		if name != nil {
			if got = *name; row.Event.Fault == nil {
				of = sink.ExchangeOrTopicOf([]byte(*name))
			}
		}
		if key != nil {
			got += "/" + *key
		}
		equal(b, fmt.Sprintf("place of row %d", row.N), got, want(row))
		in, _ := b.c.Scope.Group(&row.Event, of)
		equal(b, fmt.Sprintf("exchange and group of row %d", row.N), [2]uint64{uint64(exchangeOrTopic), uint64(group)}, [2]uint64{of, in})
	}
}

// testAnotherSink: each row and open dead letter that was deferred for another kind of sink is
// placed again, however large it is and wherever a page ends: a key's rows are in order then,
// whatever exchanges they were for. What is there already is not placed twice, and the way back is
// the same.
func testAnotherSink(b *bench, w *database) {
	keyed, said := b.placing("keyed", "exchange ")
	keyed.regroup()
	rows := keyed.rows(60, "k", 1, 1)
	for i, row := range rows { // 15 MiB of keys, in two exchanges
		row.Event.Key, row.Event.Aggregate, row.Event.Columns = []byte(big), []byte(big), [][]byte{fmt.Append(nil, i%2)}
	}
	large, damaged, faulty, dead, closed := rows[7], rows[11], rows[13], rows[58], rows[59]
	large.Event.Columns[0] = []byte("7" + strings.Repeat("x", int(standardLimits.largeFrom)))
	faulty.Event.Fault, faulty.Event.Raw = errors.New("no id"), []byte("{}")
	dead.Dead, closed.Dead = true, true
	keyed.deferTo(rows...)
	w.exec(`UPDATE cdc_relay.retry SET columns = '\xff' WHERE n = ` + fmt.Sprint(damaged.N))
	keyed.answer(keyed.Ask(keyed.c, store.Discard, closed.N, event.Route{}), true, sink.Outcome{})
	waits := keyed.Ask(keyed.c, store.Replay, dead.N, event.Route{Name: []byte("exchange 0")})
	before := func(row *store.Row) string { return "exchange " + string(row.Event.Columns[0][:1]) + "/created" }
	keyed.wantPlaces(w, rows, before)

	topics, found := keyed.placing("topics", "topic ")
	topics.regroup()
	equal(b, "what was found", *found, []store.Switch{{From: "keyed", Sink: true, Placed: 59}})
	after := func(row *store.Row) string {
		switch row {
		case closed:
			return before(row)
		case damaged:
			return "nowhere"
		}
		return "topic " + string(row.Event.Columns[0][:1])
	}
	topics.wantPlaces(w, rows, after)
	var even []*store.Row
	for i, row := range rows[:58] {
		if i%2 == 0 {
			even = append(even, row)
		}
	}
	topics.wantRows(even[0].Event.Hash^sink.ExchangeOrTopicOf([]byte("topic 0")), even...)
	state, result := w.Asked(waits)
	equal(b, "the replay to an exchange", state+": "+result, "failed: it names a place of keyed, and the relay sends to topics now: request it again")
	equal(b, "audit of it", len(w.audit(dead.N)), 1)

	again, _ := topics.placing("topics", "topic ")
	again.c.Places.Route = nil // everything is recorded
	again.regroup()
	// Two leaders that left no record, the second by the same templates: its rows are as they
	// should be, and those of the first are known by their form.
	older, _ := again.placing("keyed", "exchange ")
	late := older.row("late", 1, 1)
	late.Event.Columns = [][]byte{[]byte("1")}
	older.deferTo(late)
	again.raise(b.c.Slot)
	w.exec(`UPDATE cdc_relay.slots SET grouped_by = 'key', grouped_epoch = epoch WHERE slot = $1`, b.c.Slot)
	again, found = again.placing("topics", "topic ")
	again.regroup()
	equal(b, "what was found without a record", *found, []store.Switch{{Placed: 1}})
	again.wantPlaces(w, append(slices.Clone(rows), late), after)

	back, found := again.placing("keyed", "exchange ")
	back.regroup()
	equal(b, "what was found on the way back", *found, []store.Switch{{From: "topics", Sink: true, Placed: 60}})
	equal(b, "what the first leader found", len(*said), 0)
}

// testOtherTemplates: rows keep the place that they were given by other templates of the same sink.
// That is said once. A row that had no place gets one as soon as there is one.
func testOtherTemplates(b *bench, w *database) {
	old, _ := b.placing("keyed", "exchange ")
	old.regroup()
	rows := old.rows(3, "k", 1, 1)
	for i, row := range rows {
		row.Event.Columns = [][]byte{fmt.Append(nil, i)}
	}
	rows[1].Dead, rows[2].Event.Type = true, nil
	old.deferTo(rows...)
	next, found := old.placing("keyed", "other ")
	next.regroup()
	equal(b, "what was found", *found, []store.Switch{{From: "keyed", Templates: true, Placed: 1, Kept: 2}})
	next.wantPlaces(w, rows, func(row *store.Row) string {
		return map[*store.Row]string{rows[0]: "exchange 0/created", rows[1]: "exchange 1/created", rows[2]: "other 2"}[row]
	})
	next, found = next.placing("keyed", "other ")
	next.regroup()
	equal(b, "what was found again", len(*found), 0)
}

// testSecretOfKeys: rows of keys that were made to have one digest are one ordering group without a
// secret, and each key's own under one, also of large rows and of dead letters that block. Under
// another secret everything is grouped again.
func testSecretOfKeys(b *bench, w *database) {
	of := func(aggregate, key string) *store.Row {
		row := b.row("", 1, 1)
		row.Event.Aggregate, row.Event.Key = []byte(aggregate), []byte(key)
		row.Event.Hash = event.HashKey(row.Event.Aggregate, row.Event.Key)
		row.Group, row.Ordered = b.c.Scope.Group(&row.Event, 1)
		return row
	}
	const made, bank = "AVP_vyf6ZAD46voja//0!j_", "acct-000000000000000001"
	large := strings.Repeat("x", int(standardLimits.largeFrom))
	rows := []*store.Row{of("ads", made), of("bank", bank), of("ads", made), of("bank", bank), of("ads", large)}
	dead := of("ads", made)
	dead.Dead = true
	b.regroup()
	b.deferRow(append(slices.Clone(rows), dead)...)
	shared := rows[0].Group
	b.wantRows(shared, rows[:4]...)

	under := func(keys *event.KeyHash) *bench {
		next := b.with(func(c *store.Config) { c.Epoch, c.Keys = b.raise(b.c.Slot), keys })
		next.regroup()
		return next
	}
	first := event.NewKeyHash([16]byte{1})
	for _, keys := range []*event.KeyHash{first, event.NewKeyHash([16]byte{2}), first} {
		as := under(keys)
		group := func(aggregate, key string) uint64 { return keys.Of([]byte(aggregate), []byte(key)) ^ 1 }
		as.wantRows(group("bank", bank), rows[1], rows[3])
		as.wantRows(group("ads", large), rows[4])
		run := as.runs(all, group("ads", made))[0]
		equal(b, "rows of the made key", fmt.Sprint(numbers(run.Rows)), fmt.Sprint(numbers([]*store.Row{rows[0], rows[2]})))
		equal(b, "hash of a row that is read", run.Rows[0].Event.Hash, keys.Of([]byte("ads"), []byte(made)))
		blocking := as.with(func(c *store.Config) { c.Block = true })
		equal(b, "blocked", blocking.runs(all, group("ads", made))[0].Blocked && !blocking.runs(all, group("bank", bank))[0].Blocked, true)
		if len(as.runs(all, shared)[0].Rows) > 0 {
			b.Error("there are rows by the digest without a secret")
		}
	}
}
