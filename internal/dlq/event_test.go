package dlq

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

const maxLSN = pglogrepl.LSN(1<<64 - 1)

func (r *rig) event(id string, ask func(context.Context) Relay) *Event {
	r.t.Helper()
	if ask == nil {
		ask = says(Relay{})
	}
	e, err := r.admin.Event(r.ctx, id, []Outbox{
		{Schema: "public", Table: "no such table", ID: []string{"id"}, Transaction: []string{"tx"}},
		{Schema: "public", Table: "outbox", ID: []string{"event_id", "id"}, Transaction: []string{"xid", "tx"}},
	}, ask)
	r.must(err)
	return e
}

// hold reads the slot, as a relay does, until the test ends or free is called.
func (r *rig) hold() (free func()) {
	r.t.Helper()
	config, err := pgconn.ParseConfig(r.cfg.URL)
	r.must(err)
	config.RuntimeParams["replication"] = "database"
	conn, err := pgconn.ConnectConfig(r.ctx, config)
	r.must(err)
	free = func() { _ = conn.Close(context.Background()) }
	r.t.Cleanup(free)
	r.must(pglogrepl.StartReplication(r.ctx, conn, r.slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names '" + r.slot + "'"},
	}))
	return free
}

func (r *rig) wantEvent(id string, ask func(context.Context) Relay, state, why string) *Event {
	r.t.Helper()
	e := r.event(id, ask)
	if e.State != state || !strings.Contains(e.Why, why) {
		r.t.Errorf("%s is %+v, want %s: %s", id, e, state, why)
	}
	return e
}

func says(relay Relay) func(context.Context) Relay {
	return func(context.Context) Relay { return relay }
}

// insert inserts a row of the outbox, and returns its id and its transaction's.
func (r *rig) insert() (id string, xid int64) {
	r.t.Helper()
	r.must(r.pool.QueryRow(r.ctx, `INSERT INTO public.outbox VALUES (gen_random_uuid(), 'a', 'k', 't') RETURNING id::text, pg_current_xact_id()::text::bigint`).Scan(&id, &xid))
	return id, xid
}

// deliver records that the row was delivered, as one of the table outbox.
func (r *rig) deliver(id string) {
	r.t.Helper()
	r.exec(`WITH rows AS (SELECT tableoid AS relation, tx::text::bigint AS tx, convert_to(id::text, 'UTF8') AS id FROM public.outbox WHERE id = $2::uuid) `+
		sent.InsertRowsSQL("rows", "$1"), r.slot, id)
}

// advance puts the slot to the end of the WAL, behind a row that was not sent: until others write
// more, it is known that the slot is past it.
func (r *rig) advance(id string) {
	r.t.Helper()
	r.exec(`INSERT INTO cdc_relay.progress (slot, max_flush_lsn, reported, good) VALUES ($1, 'FFFFFFFF/FFFFFFFF', '0/0', '0/0') ON CONFLICT DO NOTHING`, r.slot)
	await.Until(r.t, "the slot to be at the end of the WAL", func() bool {
		r.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_insert_lsn())`, r.slot)
		e := r.event(id, nil)
		return e.State == EventUnknown && strings.Contains(e.Why, "the slot is past its transaction")
	}, func() any { return r.event(id, nil) })
}

func TestEventWithARow(t *testing.T) {
	r := setup(t)
	r.wantEvent("nobody's", nil, EventNotThere, "deleted, or never written")
	r.wantEvent("00000000-0000-0000-0000-000000000000", nil, EventNotThere, "deleted, or never written")
	n := r.put(sample{id: "dead"})
	r.wantEvent("dead", nil, EventDeadLetter, fmt.Sprintf("dead letter %d: open", n))
	first := r.put(sample{id: "dead", of: Deferred, backoff: true})
	e := r.wantEvent("dead", nil, EventDeferred, fmt.Sprintf("deferred row %d: refused, too_large: body of # bytes; it is tried again at 2", first))
	if e.NextAttempt == nil || e.Behind != nil || len(e.Rows) != 2 || e.CommittedAt == nil {
		t.Errorf("it is %+v", e)
	}
	r.put(sample{id: "behind", of: Deferred})
	r.exec(`UPDATE cdc_relay.retry SET reason = '', class = '' WHERE id = 'behind'`)
	e = r.wantEvent("behind", nil, EventDeferred, fmt.Sprintf(": it waits behind deferred row %d", first))
	if e.Behind == nil || *e.Behind != first {
		t.Errorf("it is behind %v", e.Behind)
	}
	r.exec(`DELETE FROM cdc_relay.retry WHERE n = $1`, first)
	r.wantEvent("behind", nil, EventDeferred, fmt.Sprintf("its destination, orders, is tried again and takes it; with dead_letters.on_dead_letter: block it waits until dead letter %d is", n))
	r.admin.OnDeadLetter = "block"
	r.wantEvent("behind", nil, EventDeferred, fmt.Sprintf(": it waits until dead letter %d is replayed or discarded", n))
	r.admin.OnDeadLetter = "continue"
	if e := r.wantEvent("behind", nil, EventDeferred, "its destination, orders, is tried again"); strings.Contains(e.Why, "block") {
		t.Errorf("nothing waits for a dead letter: %s", e.Why)
	}
	r.admin.OnDeadLetter = ""
	r.exec(`UPDATE cdc_relay.dead_letter SET state = 'discarded'`)
	if e := r.wantEvent("behind", nil, EventDeferred, "its destination, orders, is tried again"); strings.Contains(e.Why, "block") {
		t.Errorf("it waits for a dead letter that is closed: %s", e.Why)
	}
	r.put(sample{id: "sent again", state: Replayed})
	r.wantEvent("sent again", nil, EventDelivered, "replayed")
}

// A row is delivered when the sent set has it, and nothing else makes it so.
func TestEventWithoutARow(t *testing.T) {
	r := withSlot(t)
	id, _ := r.insert()
	r.wantEvent(id, nil, EventNotSeen, "no relay leads")
	// one that streams from another database, of which this one is a copy
	r.wantEvent(id, says(Relay{Streaming: true, Settled: maxLSN}), EventNotSeen, "no relay leads")
	free := r.hold()
	r.wantEvent(id, nil, EventInFlight, "a relay reads the slot")
	r.wantEvent(id, says(Relay{Streaming: true, InFlight: 7}), EventInFlight, "the relay has 7 events in flight")
	r.wantEvent(id, says(Relay{Streaming: true, Settled: 0x100}), EventNotSeen, "has read up to 0/100")
	r.wantEvent(id, says(Relay{Streaming: true, Settled: maxLSN}), EventInFlight, "a relay reads the slot")
	free()
	await.Until(t, "the slot to be free", func() bool {
		return value[bool](r, `SELECT NOT active FROM pg_replication_slots WHERE slot_name = $1`, r.slot)
	})
	if e := r.wantEvent(id, nil, EventNotSeen, ""); e.Table != "public.outbox" || e.CommittedAt != nil {
		t.Errorf("without track_commit_timestamp it is %+v", e)
	}
	r.advance(id)
	r.deliver(id)
	r.exec(`UPDATE cdc_relay.sent SET relation = relation::bigint + 1`)
	if e := r.event(id, nil); e.State == EventDelivered {
		t.Errorf("what was sent of another table counts: %+v", e)
	}
	r.deliver(id)
	r.wantEvent(id, nil, EventDelivered, "the broker has confirmed it")
	if e := r.wantEvent(strings.ToUpper(id), nil, EventDelivered, ""); e.ID != id {
		t.Errorf("it has the id %s, want %s", e.ID, id)
	}
	r.put(sample{id: id})
	r.wantEvent(strings.ToUpper(id), nil, EventDeadLetter, "")
	r.exec(`DELETE FROM cdc_relay.dead_letter`)
	for _, none := range []string{"18446744073709551615", "9223372036854775808"} {
		r.exec(`UPDATE public.outbox SET tx = $1::text::xid8`, none)
		r.wantEvent(id, nil, EventUnknown, "its row does not have the transaction")
	}
	r.exec(`UPDATE public.outbox SET tx = NULL`)
	r.wantEvent(id, nil, EventUnknown, "its row does not have the transaction")
	r.exec(`ALTER TABLE public.outbox DROP COLUMN tx CASCADE`)
	r.wantEvent(id, nil, EventUnknown, "cdc-relay init --add-transaction-column")
}

// What does not count: another system's record, a slot that is not where the relay has left it, and
// one that is not there.
func TestEventOfASlotThatMoved(t *testing.T) {
	r := withSlot(t)
	id, _ := r.insert()
	r.advance(id)
	r.exec(`UPDATE cdc_relay.progress SET max_flush_lsn = '0/1'`)
	r.wantEvent(id, nil, EventNotSeen, "no relay leads")
	r.exec(`UPDATE cdc_relay.progress SET max_flush_lsn = 'FFFFFFFF/FFFFFFFF'`)
	r.advance(id)
	r.exec(`UPDATE cdc_relay.slots SET system_id = '7'`)
	r.wantEvent(id, nil, EventNotSeen, "no relay leads")
	r.exec(`SELECT pg_drop_replication_slot($1)`, r.slot)
	r.wantEvent(id, nil, EventNotSeen, "is not in this database")
	r.deliver(id)
	r.wantEvent(id, nil, EventDelivered, "") // it was, whatever has become of the slot
}

// A relay that is asked before the event is recorded is asked again. An event that it defers
// between its word and the look into the retry table is deferred.
func TestEventWhileTheRelayWorks(t *testing.T) {
	r := withSlot(t)
	id, _ := r.insert()
	r.hold()
	asked := 0
	r.wantEvent(id, func(context.Context) Relay {
		if asked++; asked == 3 {
			r.deliver(id)
		}
		return Relay{Streaming: true, InFlight: 1, Settled: 0x100}
	}, EventDelivered, "the broker has confirmed it")
	if asked != 3 {
		t.Errorf("the relay was asked %d times, want 3", asked)
	}
	r.wantEvent(id, func(context.Context) Relay {
		r.put(sample{id: id, of: Deferred})
		return Relay{Streaming: true, Settled: maxLSN}
	}, EventDeferred, "refused, too_large")
}
