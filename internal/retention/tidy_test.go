package retention

import (
	"testing"
	"time"
)

// TestPartsAreMerged: what was recorded in the same ten minutes of one chunk is one part.
func TestPartsAreMerged(t *testing.T) {
	r := newRig(t, time.Hour, outboxTable)
	r.put("a", "b", "c", "kept")
	for _, id := range []string{"a", "b", "c"} {
		r.deliver(r.slot, id)
	}
	r.exec(`UPDATE cdc_relay.sent SET at = date_bin('10 minutes', now(), '2000-01-01') - interval '11 minutes'`)
	r.deliver(r.slot, "kept")
	r.must(r.tidy(r.ctx))
	if n := r.parts(); n != 2 {
		t.Errorf("%d parts are left, want the merged one and the new one", n)
	}
	r.exec(`UPDATE cdc_relay.sent SET at = at - interval '1 hour' WHERE at < now() - interval '2 minutes'`)
	r.want(r.left(), "kept")
}

// TestOrphansGo: parts whose rows somebody else has deleted, or whose table is gone.
func TestOrphansGo(t *testing.T) {
	r := newRig(t, time.Hour, partitioned)
	r.put("a", "b")
	r.deliverAs(r.slot, "outbox", "a")
	r.deliverAs(r.slot, "new", "b")
	r.exec(`UPDATE cdc_relay.sent SET at = now() - interval '2 hours'`)
	r.cfg.Delete = false
	await := func(want int, after string) {
		t.Helper()
		r.must(r.look(r.ctx))
		r.must(r.look(r.ctx))
		r.must(r.tidy(r.ctx))
		if n := r.parts(); n != want {
			t.Fatalf("after %s %d parts are left, want %d", after, n, want)
		}
	}
	await(2, "nothing")
	r.exec(`DROP TABLE public.new`)
	await(1, "the partition was dropped")
	r.exec(`DELETE FROM public.outbox`)
	await(0, "the rows were deleted")
}

// TestPurgedDeadLettersGo: once nothing of their transactions is in the table, they need no digest.
func TestPurgedDeadLettersGo(t *testing.T) {
	r := newRig(t, time.Hour, partitioned)
	r.put("a")
	r.hold("dead_letter", "a", "purged")
	r.exec(`UPDATE cdc_relay.dead_letter SET digest = 1, relation = 'public.outbox'::regclass, tx = (SELECT tx::text::bigint FROM public.outbox)`)
	want := func(want int) {
		t.Helper()
		r.must(r.look(r.ctx))
		r.must(r.look(r.ctx))
		r.must(r.tidy(r.ctx))
		var left int
		r.must(r.cfg.Pool.QueryRow(r.ctx, `SELECT count(digest) FROM cdc_relay.dead_letter WHERE slot = $1`, r.slot).Scan(&left))
		if left != want {
			t.Errorf("%d digests are left, want %d", left, want)
		}
	}
	want(1)
	r.exec(`DELETE FROM public.outbox`)
	want(0)
}
