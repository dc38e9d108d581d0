//go:build testall

package retention

import (
	"fmt"
	"testing"
	"time"
)

// TestTimesOutOfRange: a row whose time cannot be reckoned with keeps no others.
func TestTimesOutOfRange(t *testing.T) {
	r := newRig(t, time.Hour, `CREATE TABLE outbox (id text, at date)`)
	r.exec(`INSERT INTO public.outbox VALUES ('gone', '2000-01-01'), ('kept', 'infinity'), ('kept 2', '5874897-01-01'), ('gone 2', '4713-01-01 BC')`)
	r.settle(r.slot)
	r.want(r.left(), "kept", "kept 2")
	r.exec(`ALTER TABLE public.outbox ALTER at TYPE timestamp USING '2000-01-01'; INSERT INTO public.outbox VALUES ('kept', 'infinity'), ('kept 2', '294276-12-31')`)
	r.settle(r.slot)
	r.want(r.left(), "kept", "kept 2")
	if z := r.onlyZone(); z.due.Before(time.Now()) || z.due.After(time.Now().Add(2*time.Hour)) {
		t.Errorf("the table is looked at again at %s", z.due)
	}
}

// TestSlotOfAPartition: whoever sends a partition, by its name or by what was its name, sends rows
// of the table.
func TestSlotOfAPartition(t *testing.T) {
	r := newRig(t, 0, partitioned)
	r.addSlot("second")
	r.put("a", "b")
	r.settle(r.slot)
	for _, sends := range []string{`{"tables": {"\"public\".\"Old\"": {"oid": 1, "since": 1}}}`, fmt.Sprintf(`{"tables": {"\"x\".\"y\"": {"oid": %d, "since": 1}}}`, r.oid(`"Old"`))} {
		r.exec(`UPDATE cdc_relay.slots SET sends = $1::text::jsonb WHERE slot = 'second'`, sends)
		if got := r.left(); len(got) != 2 {
			t.Errorf("%q are left while a second slot sends %s", got, sends)
		}
	}
	r.settle("second")
	r.want(r.left())
}

// TestRowsFromBeforeAttachedAreKept: nobody was sent what a table had before it was a partition.
func TestRowsFromBeforeAttachedAreKept(t *testing.T) {
	r := newRig(t, 0, `CREATE TABLE outbox (id text, at timestamptz) PARTITION BY RANGE (id);
		CREATE TABLE old PARTITION OF outbox FOR VALUES FROM (MINVALUE) TO ('m')`)
	r.put("gone")
	r.exec(`CREATE TABLE public.filled (LIKE public.outbox); INSERT INTO public.filled VALUES ('x kept')`)
	r.exec(`BEGIN; INSERT INTO public.filled VALUES ('y kept');
		ALTER TABLE public.outbox ATTACH PARTITION public.filled FOR VALUES FROM ('m') TO (MAXVALUE); COMMIT`)
	r.put("z gone")
	r.settle(r.slot)
	r.want(r.left(), "x kept", "y kept")
	r.put("a gone")
	r.exec(`ALTER TABLE public.outbox DETACH PARTITION public.old`)
	r.exec(`INSERT INTO public.old VALUES ('b kept')`)
	r.exec(`ALTER TABLE public.outbox ATTACH PARTITION public.old FOR VALUES FROM (MINVALUE) TO ('m')`)
	r.put("c gone")
	r.settle(r.slot)
	// "a gone" is sent, and cannot be told from those that are not
	r.want(r.left(), "a gone", "b kept", "x kept", "y kept")
}

// TestDetachedWhileAtWork: nothing is deleted from what is no partition any more.
func TestDetachedWhileAtWork(t *testing.T) {
	r := newRig(t, 0, partitioned)
	r.put("a")
	r.settle(r.slot)
	p := &pass{Retention: r.Retention, failed: map[uint32]bool{}, said: map[string]bool{}}
	t.Cleanup(p.closeConn)
	r.must(p.prepare(r.ctx))
	r.exec(`ALTER TABLE public.outbox DETACH PARTITION public."Old"`)
	l := r.leaves[r.oid(`"Old"`)]
	sql, args := p.rows(l)
	gone, err := p.batch(r.ctx, l.name, sql.remove(), append(args, tid(0), tid(1)))
	r.must(err)
	if gone != 0 {
		t.Errorf("%d rows of a table that is no partition are deleted", gone)
	}
}
