package retention

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/sent"
)

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
	r.must(r.look(r.ctx))
	r.must(r.countUnsent(r.ctx))
	if r.Unsent() != nil {
		t.Error("it is counted although nothing is settled")
	}
	settled = r.seen.at
	r.put("d, still to be sent")
	want(3)
	settled = 1
	r.must(r.look(r.ctx))
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
