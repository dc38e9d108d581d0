package retention

import (
	"strings"
	"testing"
	"time"
)

// The rows of these tests are named by what becomes of them: gone, or kept and why.

func TestOnlySettledRowsAreDeleted(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.put("gone 1", "gone 2")
	if got := r.left(); len(got) != 2 {
		t.Fatalf("%q are left while it is not known what is settled", got)
	}
	r.settle(r.slot)
	r.put("kept")
	r.want(r.left(), "kept")
	r.exec(`UPDATE public.outbox SET at = now()`) // by another transaction
	r.want(r.left(), "kept")
	r.settle(r.slot)
	r.want(r.left())
}

// TestUndeliveredRowsAreKept: what is settled because it is deferred or dead has its row.
func TestUndeliveredRowsAreKept(t *testing.T) {
	long := strings.Repeat("x", 300)
	r := newRig(t, 0, outboxTable)
	r.put("deferred", "dead", "replayed", "other slot", "copy", long+"deferred", long+"gone", "")
	tooLong := strings.Repeat("y", longestID+1)
	r.exec(`INSERT INTO public.outbox (id) VALUES (NULL), ($1)`, tooLong)
	r.addSlot("other")
	r.exec(`UPDATE cdc_relay.slots SET sends = '{}' WHERE slot = 'other'`)
	r.settle(r.slot)
	r.hold("retry", r.slot, "deferred", "")
	r.hold("dead_letter", r.slot, "dead", "open")
	r.hold("dead_letter", r.slot, "replayed", "replayed")
	r.hold("retry", "other", "other slot", "")
	r.hold("retry", r.slot, long+"deferred", "")
	r.exec(`UPDATE cdc_relay.retry SET system_id = '1' WHERE convert_from(id, 'UTF8') = 'other slot'`)
	must := func(want ...string) {
		t.Helper()
		r.must(r.runPass())
		var got string
		r.must(r.pool.QueryRow(r.ctx, `SELECT coalesce(string_agg(coalesce(replace(id, $1, 'long '), 'NULL'), ', ' ORDER BY id), '') FROM public.outbox`, long).Scan(&got))
		if got != strings.Join(want, ", ") {
			t.Fatalf("%s are left, want %s", got, strings.Join(want, ", "))
		}
	}
	must("dead", "deferred", "other slot", "long deferred", tooLong, "NULL")
	r.exec(`DELETE FROM cdc_relay.retry`)
	r.exec(`UPDATE cdc_relay.dead_letter SET state = 'discarded'`)
	must() // none of them can be the id of something that waits
}

// TestRowsOfAGapAreKept: cdc-relay recover reads them from the table.
func TestRowsOfAGapAreKept(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.put("gone before")
	from := r.next()
	r.put("kept in the gap")
	until := r.next()
	r.put("gone after")
	r.settle(r.slot)
	r.exec(`INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason, from_xid, until_xid)
		SELECT $1, system_identifier, 1, 'f', 'r', $2::text::xid8, $3::text::xid8 FROM pg_control_system()`, r.slot, from, until)
	r.want(r.left(), "kept in the gap")
	r.exec(`UPDATE cdc_relay.gap SET recovered_at = now(), left_out = true`)
	r.want(r.left(), "kept in the gap")
	r.exec(`UPDATE cdc_relay.gap SET left_out = false`)
	r.want(r.left())
	r.put("kept, of a gap without an end")
	r.settle(r.slot)
	r.exec(`UPDATE cdc_relay.gap SET from_xid = NULL, until_xid = NULL, recovered_at = NULL`)
	r.want(r.left(), "kept, of a gap without an end")
}

// TestEverySlotCounts: a row is deleted when all who send its table have settled it.
func TestEverySlotCounts(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.addSlot("second")
	r.put("a")
	r.settle("second")
	r.put("b")
	r.settle(r.slot)
	r.want(r.left(), "b")
	if got := r.Snapshot().HeldBy; got != "second" {
		t.Errorf("rows are held by %q, want the second slot", got)
	}
	overdue := r.Snapshot().Overdue
	r.must(r.pass(r.ctx)) // with nothing to look at
	if s := r.Snapshot(); s.HeldBy != "second" || overdue.IsZero() || !s.Overdue.Equal(overdue) {
		t.Errorf("after a pass that looks at nothing the status is %+v", s)
	}
	r.settle("second")
	for state, change := range map[string]string{
		"adopted":           `UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = 'second'`,
		"of another system": `UPDATE cdc_relay.slots SET state = 'ready', system_id = '1' WHERE slot = 'second'`,
		"not known":         `UPDATE cdc_relay.progress SET settled_xid = NULL WHERE slot = 'second'`,
		"without progress":  `DELETE FROM cdc_relay.progress WHERE slot = 'second'`,
	} {
		r.exec(change)
		r.must(r.pass(r.ctx))
		began := time.Now()
		if got := r.left(); len(got) != 1 {
			t.Errorf("%q are left while the second slot is %s", got, state)
		}
		if s := r.Snapshot(); s.HeldBy != "second" || s.Overdue.IsZero() || s.Overdue.After(began) {
			t.Errorf("while the second slot is %s the status is %+v", state, s)
		}
	}
	r.exec(`UPDATE cdc_relay.slots SET sends = '{"tables": {"\"public\".\"other\"": {"oid": 1}}}' WHERE slot = 'second'`)
	r.want(r.left())
	if s := r.Snapshot(); s.HeldBy != "" || !s.Overdue.IsZero() {
		t.Errorf("when nothing is left to delete the status is %+v", s)
	}
}

// TestRowsFromBeforeAreKept: nobody has had them sent. Where it is not known since when a table is
// sent, as a version before retention has written the record, no row counts as sent.
func TestRowsFromBeforeAreKept(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.put("kept")
	r.exec(`UPDATE cdc_relay.slots SET sends = sends #- '{tables,"\"public\".\"outbox\"",since}'`)
	r.settle(r.slot)
	r.want(r.left(), "kept")
	r.exec(`UPDATE cdc_relay.slots SET sends = jsonb_set(sends, '{tables,"\"public\".\"outbox\"",since}', $1::text::jsonb)`, r.next())
	r.put("gone")
	r.settle(r.slot)
	r.want(r.left(), "kept")
	r.addSlot("second") // which has had it sent
	r.settle("second")
	r.want(r.left())
}

func TestAgeByAColumn(t *testing.T) {
	r := newRig(t, time.Hour, outboxTable+`; CREATE INDEX ON outbox (at)`)
	r.exec(`INSERT INTO public.outbox VALUES ('gone', now() - interval '61 minutes'), ('kept', now() - interval '59 minutes'), ('kept for ever', 'infinity'), ('kept without', NULL), ('really gone', '-infinity')`)
	r.settle(r.slot)
	r.want(r.left(), "kept", "kept for ever", "kept without")
	// a row without a time is as old as the moment from which on it is known
	now, ended := r.now()
	r.samples = samples{{at: now.Add(-time.Hour), xid: ended}}
	r.want(r.left(), "kept", "kept for ever")
}

// TestFencedLeaderDeletesNothing: it ends, also when it has found rows under its own epoch.
func TestFencedLeaderDeletesNothing(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.put("kept")
	r.settle(r.slot)
	p := &pass{Retention: r.Retention, failed: map[uint32]bool{}, said: map[string]bool{}}
	t.Cleanup(p.closeConn)
	r.must(p.prepare(r.ctx))
	r.exec(`UPDATE cdc_relay.slots SET epoch = 2`)
	for _, l := range r.leaves {
		sql, args := p.rows(l)
		gone, err := p.batch(r.ctx, l.name, sql.remove(), append(args, tid(0), tid(1)))
		if err == nil || !strings.Contains(err.Error(), "fenced") || gone != 0 {
			t.Errorf("a former leader has deleted %d rows, error %v", gone, err)
		}
	}
	if err := r.runPass(); err == nil || !strings.Contains(err.Error(), "fenced") {
		t.Errorf("a pass of a former leader ends with %v", err)
	}
	r.want(r.ids(), "kept")
}
