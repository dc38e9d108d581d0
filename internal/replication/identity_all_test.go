//go:build testall

package replication

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
)

// Where the relay makes no slot, the fixes say how to.
func TestSlotDroppedThatIsNotMadeAgain(t *testing.T) {
	b := shared(t)
	b.settledRun("a").endClean()
	b.cfg.Create = false
	b.dropSlot()
	stop := replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "slot_lost")
	adopt, makeSlot, found := strings.Cut(stop.Fix, "source.create is false: ")
	if !found {
		t.Fatal(stop.Fix)
	}
	b.runFix(&event.Stop{Fix: adopt})
	if stop := replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "slot_missing"); stop.Fix != makeSlot {
		t.Errorf("the loss is accepted, and the fix is %q, not %q", stop.Fix, makeSlot)
	}
	b.exec(makeSlot)
	b.goesOn("b")
}

func TestSlotOfAnotherKind(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(b *bench){
		"test_decoding": func(b *bench) { b.createSlot("test_decoding") },
		"physical":      func(b *bench) { b.exec(`SELECT pg_create_physical_replication_slot($1)`, b.cfg.Slot) },
		"database":      func(b *bench) { b.createSlotElsewhere() },
	} {
		t.Run(name+" before the first start", func(t *testing.T) {
			b := shared(t)
			make(b)
			stop := replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "slot_foreign")
			if !strings.Contains(stop.What, name) {
				t.Errorf("%s is not named: %s", name, stop.What)
			}
			b.exec(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND slot_type = 'physical'`, b.cfg.Slot)
		})
		t.Run(name+" in the place of ours", func(t *testing.T) {
			b := shared(t)
			b.settledRun("a").endClean()
			b.dropSlot()
			make(b)
			replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "slot_foreign")
			b.exec(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND slot_type = 'physical'`, b.cfg.Slot)
		})
	}
}

func TestSlotRecreatedAfterACleanStop(t *testing.T) {
	slotRecreated(t, map[string]func(b *bench, r *running, p *netproxy.Proxy) error{
		"after a clean stop": func(b *bench, r *running, _ *netproxy.Proxy) error {
			r.endClean()
			b.recreate()
			return b.run().wait()
		},
	})
}
