package postgres

import (
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A row is in the sent set once it is delivered from the retry table, or its dead letter is
// replayed: with the statement that removes it, and not before. What becomes of it otherwise
// records nothing.
func testSent(b *bench, w *database) {
	from := func(row *store.Row, tx uint64) *store.Row {
		row.Event.Origin = event.Origin{Relation: 42, Tx: tx}
		return row
	}
	waits, delivered, dies, unknown := from(b.row("k", 1, 1), 9), from(b.row("l", 1, 1), 10), from(b.row("m", 1, 1), 8200), b.row("n", 1, 1)
	dead, discarded := from(b.row("o", 1, 1), 11), from(b.row("p", 1, 1), 12)
	dead.Dead, discarded.Dead = true, true
	b.deferRow(waits, delivered, dies, unknown, dead, discarded)
	want := func(rows ...*store.Row) {
		b.Helper()
		var recorded int
		w.scan(`SELECT coalesce(sum(cardinality(digests)), 0) FROM cdc_relay.sent WHERE slot = $1`, []any{b.c.Slot}, &recorded)
		if recorded != len(rows) {
			b.Errorf("%d rows are recorded, want %d", recorded, len(rows))
		}
		for _, row := range rows {
			o := row.Event.Origin
			digest, _ := sent.Digest(o.Tx, row.Event.ID, nil)
			var there bool
			w.scan(sent.HasSQL, []any{b.c.Slot, []uint32{o.Relation}, sent.Chunk(o.Tx), digest}, &there)
			if !there {
				b.Errorf("row %s is not recorded", row.Event.ID)
			}
		}
	}
	want()
	runs, err := b.Read(await.Context(b.T), wants(delivered.Group), 1, all, all)
	b.must(err)
	if got := runs[0].Rows[0].Event.Origin; got != delivered.Event.Origin {
		b.Errorf("the row is read with origin %+v", got)
	}
	b.must(b.Apply(await.Context(b.T), []store.Result{
		{Row: delivered}, {Row: unknown}, {Row: waits, Kind: store.Backoff, Class: sink.Transient, Reason: sink.NoExchange}, {Row: dies, Kind: store.Dead, Class: sink.Permanent, Reason: sink.TooLarge},
	}))
	want(delivered)
	for kind, row := range map[store.RequestKind]*store.Row{store.Replay: dies, store.Discard: discarded} {
		b.answer(b.Ask(b.c, kind, row.N, event.Route{}), true, sink.Outcome{State: sink.Confirmed})
	}
	want(delivered, dies)
	id := b.Ask(b.c, store.Replay, dead.N, event.Route{})
	b.answer(id, false, sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}})
	want(delivered, dies)
}
