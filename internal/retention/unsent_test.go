package retention

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
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
	r.exec(`DELETE FROM public.outbox WHERE id LIKE '%unsent'`)
	want(2)
	r.exec(`DELETE FROM public.outbox`)
	want(0)
}
