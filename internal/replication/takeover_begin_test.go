package replication

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/takeover"
)

// A slot of ours that is there before the takeover may be older than its publication: rows may be
// hidden from it that the other slot has. It is refused, until it is dropped. What source.create
// says is about a start, and no matter here.
func TestTakeoverWithASlotThatIsThereAlready(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	b.cfg.Create = false
	b.exec(`CREATE PUBLICATION p`)
	b.createSlot("pgoutput")
	b.insert("hidden")
	b.exec(`ALTER PUBLICATION p ADD TABLE outbox`)
	_, err := b.now(o)
	b.runFix(replicationtest.WantStop(t, err, event.ExitOperator, "takeover"))
	_, err = b.now(o)
	if stop := replicationtest.WantStop(t, err, event.ExitOperator, "takeover"); !strings.Contains(stop.What, "below the start") {
		t.Errorf("it has not begun: %s", stop)
	}
	if err := setup.Init(await.Context(t), b.cfg, setup.InitOptions{}); err != nil {
		t.Errorf("init, which a takeover may ask to run: %v", err)
	}
}

// Two takeovers of one slot that begin at the same time: each has only its own slot's lock, and
// neither sees a row of the other one in its first check.
func TestTwoTakeoversBeginTogether(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	_, err := b.now(&otherTool{b: b, slot: "nobodys"})
	replicationtest.WantStop(t, err, event.ExitUsage, "usage") // and the schema is there
	b.exec(`CREATE PUBLICATION p FOR TABLE outbox`)
	var both [2]*takeover.Takeover
	for i := range both {
		c := b.cfg
		c.Slot = fmt.Sprintf("%s_%d", b.cfg.Slot, i)
		both[i] = b.takeover(&c, o)
		if c.Tables, err = publication.FindTables(await.Context(t), both[i].Pool, &c, true); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		var errs [2]error
		var running sync.WaitGroup
		for i, m := range both {
			running.Go(func() {
				errs[i] = slot.Locked(await.Context(t), m.Pool, m.C, m.Mark)
			})
		}
		running.Wait()
		if rows := b.text(`SELECT count(*)::text FROM cdc_relay.slots`); rows != "1" {
			t.Fatalf("%s take the place of one slot: %v", rows, errs)
		}
		first := slices.Index(errs[:], nil)
		if first < 0 {
			t.Fatal(errs)
		}
		replicationtest.WantStop(t, errs[1-first], event.ExitUsage, "usage")
		b.exec(`DELETE FROM cdc_relay.slots`)
	}
}
