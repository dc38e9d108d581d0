package replication

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

// openInsert inserts a row and leaves its transaction open.
func (b *bench) openInsert(id string) (commit func()) {
	b.t.Helper()
	return b.begin(`INSERT INTO outbox VALUES ($1, '{}')`, id)
}

// waitCreating returns once the creation of the slot has begun, which then waits for the open
// transaction.
func (b *bench) waitCreating() {
	b.t.Helper()
	await.Until(b.t, "CREATE_REPLICATION_SLOT to wait for the open transaction", func() bool {
		return b.text(`SELECT count(*)::text FROM pg_stat_activity
			WHERE backend_type = 'walsender' AND datname = current_database() AND wait_event_type = 'Lock'`) != "0"
	})
}

func TestFirstStartRefusesARowWhoseTransactionWasOpen(t *testing.T) {
	b := shared(t)
	commit := b.openInsert("open")
	r := b.run()
	b.waitCreating()
	commit()
	b.wantStop(r.wait(), event.ExitUsage, "backfill", "already has 1 rows")
	if v, err := slot.ReadView(await.Context(t), b.conn, b.cfg.Slot); err != nil || v != nil {
		t.Errorf("the slot was left behind: %v %v", v, err)
	}
}

// What is committed after the slot was made is delivered, also when its transaction is slow.
func TestFirstStartCountsARowWhoseTransactionWasOpen(t *testing.T) {
	b := shared(t)
	b.cfg.NoBackfill = true
	commit := b.openInsert("open")
	r := b.run()
	b.waitCreating()
	commit()
	r.waitPhase(slot.Streaming)
	commit = b.openInsert("slow")
	b.insert("fast")
	r.waitSeen("fast")
	commit()
	r.waitSeen("slow")
	left := b.logs.FilterMessageSnippet("before the slot was created are not sent").All()
	if len(left) != 1 || left[0].ContextMap()["rows"] != int64(1) {
		t.Errorf("log: %v", left)
	}
	r.endClean()
	b.wantBefore("outbox", "open")
}

// wantBefore wants these rows of a table, and no others, to be from before what the slot sends.
func (b *bench) wantBefore(table string, ids ...string) {
	b.t.Helper()
	got := b.text(`SELECT coalesce(string_agg(id, ' ' ORDER BY id), '') FROM `+table+` t, cdc_relay.slots
		WHERE slot = $1 AND pg_visible_in_snapshot(t.xmin::text::xid8, (sends->'tables'->$2->>'first')::pg_snapshot)`, b.cfg.Slot, `"public"."`+table+`"`)
	if want := strings.Join(ids, " "); got != want {
		b.t.Errorf("of %s %q are from before the slot, want %q", table, got, want)
	}
}

// unfinished is what a crash leaves behind in our tables before, or just after, the slot is
// created.
func (b *bench) unfinished() {
	b.t.Helper()
	await.Must(b.t, slot.BeginCreating(await.Context(b.t), b.withSchema(), &b.cfg, slot.Identity{SystemID: "1", Timeline: 1, Database: "x"}))
}

func TestUnfinishedCreationIsMadeAgain(t *testing.T) {
	b := shared(t)
	b.unfinished()
	b.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, b.cfg.Slot)
	b.insert("asked for by nobody")
	r := b.run()
	b.wantStop(r.wait(), event.ExitUsage, "backfill")
}

// The connection on which the slot is being made is lost, and the server goes on making it. What it
// made then must not be taken for a slot that somebody made by hand: nobody has asked about the
// rows before it.
func TestFirstStartLosesItsConnection(t *testing.T) {
	b := shared(t)
	p := b.through()
	commit := b.openInsert("open")
	r := b.run()
	b.waitCreating()
	p.Reset()
	await.Until(t, "the relay to have noticed", func() bool { return r.s.Snapshot().Phase == slot.Waiting })
	commit()
	b.wantStop(r.wait(), event.ExitUsage, "backfill")
}

// Two relays that both find no slot: one makes it and leads, the other stands by.
func TestTwoFirstStartsMakeOneSlot(t *testing.T) {
	b := shared(t)
	one, two := b.run(), b.run()
	await.Until(t, "one leads, one stands by", func() bool {
		p, q := one.s.Snapshot().Phase, two.s.Snapshot().Phase
		return p == slot.Streaming && q == slot.Standby || p == slot.Standby && q == slot.Streaming
	})
	leader, standby := one, two
	if two.s.Snapshot().Phase == slot.Streaming {
		leader, standby = two, one
	}
	b.insert("a")
	leader.waitSeen("a")
	leader.endClean()
	standby.waitPhase(slot.Streaming)
	b.insert("b")
	standby.waitSeen("b")
	b.wantSeen("b") // a clean stop repeats nothing
	standby.endClean()
	if n := b.logs.FilterMessage("slot created").Len(); n != 1 {
		t.Errorf("the slot was created %d times", n)
	}
}
