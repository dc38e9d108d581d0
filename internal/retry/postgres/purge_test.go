package postgres

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// says gives a row the error text of a rejection.
func says(row *store.Row, text string) *store.Row {
	row.Class, row.Reason, row.Text, row.Destination = sink.Destination, sink.NoExchange, text, `exchange "e"`
	return row
}

// Nothing is left of a purged row but its position and what says nothing of the event, however it
// became a dead letter.
func testPurgedRows(b *bench, w *database) {
	direct, moved, deferred := says(b.row("person", 1, 1), "no person"), says(b.row("person", 1, 1), "no person"), says(b.row("person", 1, 1), "no person")
	direct.Dead = true
	for _, row := range []*store.Row{direct, moved, deferred} {
		row.Event.Origin = event.Origin{Relation: 7, Tx: 5}
	}
	b.deferRow(direct, moved, deferred)
	b.answer(b.Ask(b.c, store.DeadLetter, moved.N, event.Route{}), true, sink.Outcome{})
	for _, row := range []*store.Row{direct, moved, deferred} {
		b.answer(b.Ask(b.c, store.Purge, row.N, event.Route{}), true, sink.Outcome{})
		digest, _ := sent.Digest(5, row.Event.ID, nil)
		var n int64
		if !w.scan(`UPDATE cdc_relay.dead_letter SET relation = NULL, tx = NULL, digest = NULL WHERE n = $1 AND relation = 7 AND tx = 5 AND digest = $2 RETURNING n`, []any{row.N, digest}, &n) {
			b.Error("a purged row does not tell which row of the outbox it was")
		}
		var left string
		w.scan(`SELECT (to_jsonb(d) - '{slot,system_id,incarnation,commit_lsn,idx,n,deferred_at,died_at,closed_at,commit_time,event_time,state,class,reason,
			attempts,payload_kind,first_failed_at,failed_at}'::text[])::text FROM cdc_relay.dead_letter d WHERE n = $1`, []any{row.N}, &left)
		for _, v := range []string{": null", ": 0", ": false", `: ""`} {
			left = strings.ReplaceAll(left, v, ":")
		}
		if i := strings.Index(strings.ReplaceAll(left, ":,", ""), ": "); i >= 0 || strings.Contains(left, "person") {
			b.Errorf("left of a purged row: %s", left)
		}
	}
}

// The results of a purged row's replays are purged with it; others' requests stay as they are.
func testPurgedRequests(b *bench, w *database) {
	deadLetter, kept := says(b.row("anna", 1, 1), "not anna's"), says(b.row("bob", 1, 1), "no e")
	deadLetter.Dead, kept.Dead = true, true
	b.deferRow(deadLetter, kept)
	to := event.Route{Name: []byte("to-anna"), RoutingKey: []byte("anna")}
	failed := b.Ask(b.c, store.Replay, deadLetter.N, to)
	b.answer(failed, false, sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.Invalid, Text: "anna is no name"}})
	others := b.Ask(b.c, store.Replay, kept.N, to)
	b.answer(others, false, sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Destination, Reason: sink.NoExchange, Text: "no e"}})
	// Together with a replay that is refused.
	again := b.Ask(b.c, store.Replay, kept.N, event.Route{})
	_, err := b.Answer(await.Context(b.T), []store.Answer{
		{Request: b.request(again), Outcome: sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.Invalid, Text: "no e"}}},
		{Request: b.request(b.Ask(b.c, store.Purge, deadLetter.N, event.Route{}))},
	})
	b.must(err)
	b.wantWhere("purged", deadLetter)
	b.wantAsked(failed, "failed", store.TextPurged)
	b.wantAsked(others, "failed", "no_exchange: no e")
	var left string
	w.scan(`SELECT coalesce(string_agg(r::text, ' '), '') FROM cdc_relay.request r WHERE slot = $1 AND n <> $2 AND (route_name IS NOT NULL OR routing_key IS NOT NULL)`, []any{b.c.Slot, kept.N}, &left)
	equal(b, "requests that name a place", left, "")
	equal(b, "audit", b.audit(deadLetter.N)[0], "ann, replay, "+deadLetter.Event.Position.String()+", why, invalid")
}
