//go:build testall

package replication

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// other is what the relay knows of another's slot; nil: nothing.
func (r *running) other(name string) *slot.SlotSeen {
	slots := r.s.Snapshot().OtherSlots
	if i := slices.IndexFunc(slots, func(s slot.SlotSeen) bool { return s.Name == name }); i >= 0 {
		return &slots[i]
	}
	return nil
}

func behind(s slot.SlotSeen) time.Duration {
	if s.BehindSince.IsZero() {
		return 0
	}
	return s.Checked.Sub(s.BehindSince)
}

// Slots of other programs, in another database, one of them read and not confirmed, one not read,
// one that follows: each is told as it is. Behind is a slot as long as there is WAL that it has not
// confirmed; that it is active says nothing of it.
func TestOtherSlots(t *testing.T) {
	t.Parallel()
	p := servers.QuietPostgres(t)
	b := newBench(t, p.Database(t))
	elsewhere := &bench{t: t, url: p.Database(t)}
	elsewhere.conn = elsewhere.connect()
	database := elsewhere.text(`SELECT current_database()`)
	elsewhere.exec(`SELECT pg_create_logical_replication_slot('read', 'test_decoding')`)
	elsewhere.exec(`SELECT pg_create_logical_replication_slot('stalled', 'pgoutput')`)
	elsewhere.exec(`SELECT pg_create_logical_replication_slot('follows', 'test_decoding')`)
	elsewhere.exec(`SELECT pg_create_physical_replication_slot('physical')`)
	reader, err := elsewhere.replicate("read", "reader")
	await.Must(t, err)

	r := b.streaming()
	await.Until(t, "the slots to be seen", func() bool { return r.other("read") != nil })
	elsewhere.exec(`CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 100)`)

	await.Until(t, "two to be behind, though nothing more is written, and the one that follows not to be", func() bool {
		elsewhere.exec(`SELECT pg_replication_slot_advance('follows', pg_current_wal_lsn())`)
		return behind(*r.other("read")) > 0 && behind(*r.other("stalled")) > 0 && behind(*r.other("follows")) == 0
	})
	for name, want := range map[string]string{
		"read": "test_decoding active=true", "stalled": "pgoutput active=false", "follows": "test_decoding active=false",
	} {
		s := r.other(name)
		if got := fmt.Sprintf("%s active=%t", s.Plugin, s.Active()); got != want || s.Database != database || s.WALStatus != "reserved" || s.Restart == 0 || s.Current < s.ConfirmedFlush {
			t.Errorf("%s is told as %s, %+v, want %s", name, got, s, want)
		}
	}
	if snap := r.s.Snapshot(); snap.OtherTotal != 3 || len(snap.OtherSlots) != 3 {
		t.Errorf("it sees %d slots of %d, want the 3 logical ones that are not ours: %+v", len(snap.OtherSlots), snap.OtherTotal, snap.OtherSlots)
	}

	// The one that is read is there once it confirms. Of very many those are shown that keep the
	// most.
	for first := 1; first <= 100; first += 10 {
		elsewhere.exec(`SELECT pg_create_logical_replication_slot('many_' || i, 'test_decoding') FROM generate_series($1::int, $1 + 9) i`, first)
	}
	await.Until(t, "all to be seen, and one that was read and has confirmed", func() bool {
		at, err := pglogrepl.ParseLSN(elsewhere.text(`SELECT pg_current_wal_lsn()::text`))
		await.Must(t, err)
		await.Must(t, pglogrepl.SendStandbyStatusUpdate(await.Context(t), reader, pglogrepl.StandbyStatusUpdate{WALWritePosition: at}))
		read := r.other("read")
		return r.s.Snapshot().OtherTotal == 103 && (read == nil || behind(*read) == 0)
	})
	if n := len(r.s.Snapshot().OtherSlots); n != slot.MaxOtherSlots || r.other("stalled") == nil {
		t.Errorf("of 103 slots %d are shown, want %d: the one that is stalled is among them: %t", n, slot.MaxOtherSlots, r.other("stalled") != nil)
	}
	r.endClean()
	elsewhere.exec(`SELECT pg_drop_replication_slot('physical')`)
}

// The size of the tables is that of all their parts, and is not waited for while somebody alters
// one.
func TestTableBytes(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE parts (id bigint PRIMARY KEY, t text) PARTITION BY RANGE (id);
		CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (100);
		CREATE TABLE high PARTITION OF parts FOR VALUES FROM (100) TO (1000) PARTITION BY RANGE (id);
		CREATE TABLE higher PARTITION OF high FOR VALUES FROM (100) TO (1000);
		INSERT INTO parts SELECT i, repeat(md5(i::text), 1000) FROM generate_series(0, 199) i;
		CREATE SCHEMA "Odd"; CREATE TABLE "Odd"."a.b" (t text); INSERT INTO "Odd"."a.b" VALUES ('x')`)
	pool := b.pool()
	size := func(tables ...string) int64 {
		t.Helper()
		bytes, err := slot.TableBytes(await.Context(t), pool, tables)
		await.Must(t, err)
		if bytes == nil {
			return -1
		}
		return *bytes
	}
	var parts, odd int64
	await.Must(t, b.conn.QueryRow(await.Context(t), `SELECT pg_total_relation_size('low') + pg_total_relation_size('higher'), pg_total_relation_size('"Odd"."a.b"')`).Scan(&parts, &odd))
	if parts < 100_000 || odd == 0 {
		t.Fatalf("the parts have %d bytes, the other table %d", parts, odd)
	}
	if got := size(`"public"."parts"`); got != parts {
		t.Errorf("the parts have %d bytes, want %d", got, parts)
	}
	if got := size(`"public"."parts"`, `"Odd"."a.b"`, `"public"."nowhere"`); got != parts+odd {
		t.Errorf("all have %d bytes, want %d", got, parts+odd)
	}
	if got := size(`"public"."nowhere"`); got != -1 {
		t.Errorf("a table that is not there has %d bytes", got)
	}
	unlock := b.begin(`LOCK TABLE higher`)
	defer unlock()
	if _, err := slot.TableBytes(await.Context(t), pool, []string{`"public"."parts"`}); source.SQLState(err) != "55P03" {
		t.Errorf("a table that is locked: %v", err)
	}
}

// When nobody reads the slot it matters most what it keeps: a relay that may not replicate any
// more, and one that has stopped and stays up to say so, go on telling how the slots stand, theirs
// and those of others.
func TestSlotsOfARelayThatDoesNotStream(t *testing.T) {
	t.Parallel()
	t.Run("waiting", func(t *testing.T) {
		b, role, owner := asRole(t, "REPLICATION")
		b.init(setup.InitOptions{URL: owner, Role: role})
		r := b.runBeside()
		b.exec(`ALTER ROLE ` + role + ` NOREPLICATION`)
		b.exec(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
		r.waitPhase(slot.Waiting)
		r.tellsOfSlots()
	})
	t.Run("stopped", func(t *testing.T) {
		b := shared(t)
		b.stays = true
		r := b.runBeside()
		b.exec(`DROP PUBLICATION p`)
		b.wantStop(r.wait(), event.ExitOperator, "publication")
		r.tellsOfSlots()
		b.exec(`SELECT pg_drop_replication_slot($1)`, b.cfg.Slot)
		await.Until(t, "nothing to be said of a slot that is gone", func() bool { return r.s.Snapshot().Slot == slot.SlotSeen{} })
	})
}

// runBeside is a run with another's slot beside, once both are seen.
func (b *bench) runBeside() *running {
	b.t.Helper()
	b.exec(`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, b.cfg.Slot+"_x")
	r := b.streaming()
	await.Until(b.t, "both slots to be seen", func() bool { return r.s.Snapshot().Slot.Active() && r.other(b.cfg.Slot+"_x") != nil })
	return r
}

// tellsOfSlots writes WAL, which both slots must be told to keep.
func (r *running) tellsOfSlots() {
	r.b.t.Helper()
	written, err := pglogrepl.ParseLSN(r.b.text(`SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1000000))::text`))
	await.Must(r.b.t, err)
	keeps := func(s *slot.SlotSeen) bool {
		return s != nil && !s.Active() && s.Current >= written && s.Restart < written
	}
	await.Until(r.b.t, "both slots to be told as they are, read by nobody", func() bool {
		own := r.s.Snapshot().Slot
		return keeps(&own) && keeps(r.other(r.b.cfg.Slot+"_x"))
	}, func() any { return r.s.Snapshot() })
}

// All relays of a slot have one name for PostgreSQL: a standby says which of them leads. It sees
// the other slots too: it may be the only relay that answers.
func TestStandbyNamesTheLeader(t *testing.T) {
	b := shared(t)
	leader := b.settledRun("a")
	standby := b.another().run()
	standby.waitPhase(slot.Standby)
	pid := b.text(`SELECT active_pid::text FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
	says := func(name string) {
		t.Helper()
		want := fmt.Sprintf("slot is active for cdc-relay/%s (%s, backend %s)", b.cfg.Slot, name, pid)
		await.Until(t, want, func() bool { return standby.s.Snapshot().Why == want }, func() any { return standby.s.Snapshot() })
	}
	says(slot.RelayName(&b.cfg))
	// A leader writes its name after it has got the slot.
	b.exec(`UPDATE cdc_relay.slots SET leader = 'vm-3 pid 26170 at https://vm-3:8464'`)
	says("vm-3 pid 26170 at https://vm-3:8464")
	if got := standby.s.Snapshot().Leader; got != "vm-3 pid 26170 at https://vm-3:8464" {
		t.Errorf("the leader is %q", got)
	}
	b.exec(`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, b.cfg.Slot+"_x")
	await.Until(t, "the other slot to be seen", func() bool { return standby.other(b.cfg.Slot+"_x") != nil })
	await.Until(t, "the table to be measured", func() bool { return standby.s.Snapshot().TableBytes != nil })
	if standby.other(b.cfg.Slot) != nil {
		t.Error("its own slot is among the others")
	}
	standby.endClean()
	leader.endClean()
}
