package dlq

import "testing"

// Looking for what is not there locks nothing: an idle leader would commit each second for it.
func TestIdleLeaderWritesNothing(t *testing.T) {
	r := setup(t)
	locked := func() string {
		return value[string](r, `SELECT xmax::text FROM cdc_relay.slots WHERE slot = $1::text`, r.slot)
	}
	l, m := r.leader(), MirrorPostgres{DB: r.pool, Slot: r.slot, SystemID: r.system(), Epoch: r.epoch()}
	look := func() {
		_, err := l.jobs(r.ctx)
		r.must(err)
		_, err = m.Unmirrored(r.ctx, 0, 1, 1)
		r.must(err)
	}
	before := locked()
	look()
	if locked() != before {
		t.Error("the slot's row was locked")
	}
	r.put(sample{})
	look()
	if locked() == before {
		t.Error("the slot's row is not locked when there is a dead letter")
	}
}
