//go:build testall

package dlq

import (
	"fmt"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// An interval that was accepted as missing has rows that nobody can tell from delivered ones.
func TestEventInAnAcceptedGap(t *testing.T) {
	r := withSlot(t)
	before, _ := r.sent()
	id, xid := r.sent()
	after, last := r.sent()
	r.recorded(last+1, last+1, 0x100)
	r.exec(`INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason, from_xid, until_xid)
		SELECT slot, system_id, 1, 'f00d', 'a test', $2::text::xid8, $3::text::xid8 FROM cdc_relay.slots WHERE slot = $1`, r.slot, fmt.Sprint(xid), fmt.Sprint(last))
	r.wantEvent(before, nil, EventDelivered, "")
	r.wantEvent(id, nil, EventAccepted, "finding f00d")
	r.wantEvent(after, nil, EventDelivered, "")
	r.exec(`UPDATE cdc_relay.gap SET from_xid = NULL, until_xid = NULL`)
	r.wantEvent(after, nil, EventAccepted, "finding f00d")
	r.exec(`UPDATE cdc_relay.gap SET recovered_at = now()`)
	r.wantEvent(id, nil, EventDelivered, "")
}

// A row of another system says nothing of an event here: nobody sends it.
func TestEventOfACopy(t *testing.T) {
	r := withSlot(t)
	id, _ := r.sent()
	foreign := []int64{r.put(sample{id: "copied", of: Deferred}), r.put(sample{id: "both"}), r.put(sample{id: id, of: Deferred})}
	r.exec(`UPDATE cdc_relay.retry SET system_id = '7'`)
	r.exec(`UPDATE cdc_relay.dead_letter SET system_id = '7'`)
	own := r.put(sample{id: "both"})
	for _, w := range []struct{ id, state, why string }{
		{"copied", EventNotThere, fmt.Sprintf("row %d of it is of another system", foreign[0])},
		{"both", EventDeadLetter, fmt.Sprintf("dead letter %d: open", own)},
		{id, EventNotSeen, fmt.Sprintf("row %d of it is of another system", foreign[2])},
	} {
		if e := r.wantEvent(w.id, nil, w.state, w.why); len(e.Rows) == 0 {
			t.Errorf("%s is %+v, without its row", w.id, e)
		}
	}
}

// Transactions at the edges of the bounds.
func TestEventBounds(t *testing.T) {
	row := &outboxRow{xid: 100, seen: 0x500}
	for _, c := range []struct {
		p      progress
		relay  pglogrepl.LSN
		yes    bool
		before pglogrepl.LSN
	}{
		{p: progress{}},
		{p: progress{settledXID: 100}},
		{p: progress{settledXID: 101}, yes: true},
		{p: progress{settledXID: 101, endedXID: 101, endedAt: 0x400}, yes: true, before: 0x400},
		{p: progress{endedXID: 101, endedAt: 0x400, confirmed: 0x3ff}},
		{p: progress{endedXID: 101, endedAt: 0x400, confirmed: 0x400}, yes: true, before: 0x400},
		{p: progress{endedXID: 100, endedAt: 0x400, confirmed: 0x400}},
		{p: progress{catalogXID: 101, confirmed: 0x600}, yes: true, before: 0x500},
		{p: progress{catalogXID: 100, confirmed: 0x4ff}},
		{p: progress{confirmed: 0x500}, yes: true, before: 0x500},
		{p: progress{confirmed: 0x4ff}, relay: 0x4ff},
		{p: progress{}, relay: 0x500, yes: true, before: 0x500},
	} {
		if yes, before := c.p.settled(row, Relay{Settled: c.relay}); yes != c.yes || before != c.before {
			t.Errorf("%+v, the relay at %s: %v before %s, want %v before %s", c.p, c.relay, yes, before, c.yes, c.before)
		}
	}
	if yes, _ := (&progress{confirmed: 1}).settled(&outboxRow{xid: 1}, Relay{Settled: 1}); yes {
		t.Error("a row of which the end of the WAL is not known is settled")
	}
}

// The slot's own position tells it: at the end of the WAL at once, and otherwise once the server
// has moved catalog_xmin.
func TestEventBehindTheSlot(t *testing.T) {
	r := withSlot(t)
	id, _ := r.sent()
	r.recorded(0, 0, 0)
	await.Until(t, "the slot to be at the end of the WAL", func() bool {
		r.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_insert_lsn())`, r.slot)
		return r.event(id, nil).State == EventDelivered
	}, func() any { return r.event(id, nil) })
	await.Until(t, "catalog_xmin to pass the row, behind which the WAL goes on", func() bool {
		r.exec(`CHECKPOINT`)
		r.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.slot)
		r.sent()
		return r.event(id, nil).State == EventDelivered
	}, func() any { return r.event(id, nil) })
	later, _ := r.sent()
	r.wantEvent(later, nil, EventNotSeen, "")
}
