//go:build testall

package replication

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/takeover"
)

func TestTakeoverAsksForThePublicationFirst(t *testing.T) {
	b := shared(t)
	_, err := b.now(&otherTool{b: b, slot: "nobodys"})
	replicationtest.WantStop(t, err, event.ExitUsage, "usage") // and the schema is there
	o := b.newTool()
	b.cfg.Create = false
	b.exec(`CREATE PUBLICATION p`)
	_, err = b.now(o)
	b.runFix(replicationtest.WantStop(t, err, event.ExitOperator, "publication"))
	_, err = b.now(o)
	replicationtest.WantStop(t, err, event.ExitOperator, "takeover") // begun
}

func TestTwoTakeoversOfOneSlot(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	if _, err := b.now(o); err == nil {
		t.Error("complete below our start")
	}
	first := b.cfg.Slot
	b.cfg.Slot += "_second"
	_, err := b.now(o)
	if stop := replicationtest.WantStop(t, err, event.ExitUsage, "usage"); !strings.Contains(stop.What, first) {
		t.Error(stop)
	}
	b.cfg.Slot = first
	if _, err := b.now(o); err == nil || strings.Contains(err.Error(), "already") {
		t.Errorf("the first one goes on: %v", err)
	}
}

func TestTakeoverDropsNoOtherSlot(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	k, _ := b.takePassed(o)
	o.kill()
	k.waitComplete()
	b.exec(`SELECT pg_drop_replication_slot($1)`, o.slot)
	b.exec(`SELECT pg_create_physical_replication_slot($1)`, o.slot)
	_, err := b.take(o, takeover.Options{Drop: true}).wait()
	stop := replicationtest.WantStop(t, err, event.ExitOperator, "takeover")
	if !strings.Contains(stop.What, "physical") || !o.exists() {
		t.Error(stop)
	}
	b.runFix(stop)
}
