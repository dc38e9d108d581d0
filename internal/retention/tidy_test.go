package retention

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/sent"
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
	r.must(r.tidySent(r.ctx))
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
		r.must(r.lookAtEnd(r.ctx))
		r.must(r.lookAtEnd(r.ctx))
		r.must(r.tidySent(r.ctx))
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
		r.must(r.lookAtEnd(r.ctx))
		r.must(r.lookAtEnd(r.ctx))
		r.must(r.tidySent(r.ctx))
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

// TestUnsent: what waits or was sent is not counted, nor what the slot may still send.
func TestUnsent(t *testing.T) {
	r := newRig(t, time.Hour, partitioned)
	want := func(want int64) {
		t.Helper()
		r.must(r.countUnsent(r.ctx))
		if got, known := r.Unsent()["public.outbox"]; got != want || !known {
			t.Errorf("%d rows are unsent, want %d", got, want)
		}
	}
	r.put("a sent", "a unsent", "c unsent", "c deferred", "c dead", "c purged")
	r.deliver(r.slot, "a sent")
	r.hold("retry", "c deferred", "")
	r.hold("dead_letter", "c dead", "open")
	var settled pglogrepl.LSN
	r.cfg.Settled = func() pglogrepl.LSN { return settled }
	r.must(r.lookAtEnd(r.ctx))
	r.must(r.countUnsent(r.ctx))
	if r.Unsent() != nil {
		t.Error("it is counted although nothing is settled")
	}
	settled = r.lastLook.at
	r.put("d, still to be sent")
	want(3)
	settled = 1
	r.must(r.lookAtEnd(r.ctx))
	r.exec(`INSERT INTO public.outbox VALUES ('without', now(), NULL)`)
	want(4)
	r.exec(`UPDATE cdc_relay.dead_letter SET tx = 3, relation = 'public.outbox'::regclass`)
	want(5) // it is another row's of the id
	r.exec(`UPDATE cdc_relay.dead_letter d SET tx = o.tx::text::bigint, relation = 1 FROM public.outbox o WHERE o.id = 'c dead'`)
	want(5) // another table's
	r.exec(`UPDATE cdc_relay.dead_letter d SET id = NULL, state = 'purged', relation = 'public.outbox'::regclass, digest = ` + sent.DigestSQL("tx", "id"))
	want(4)
	r.exec(`DELETE FROM public.outbox WHERE id LIKE '%unsent'`)
	want(2)
	r.exec(`DELETE FROM public.outbox`)
	want(0)
}
