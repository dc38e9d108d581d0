//go:build testall

package replication

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// An unfinished creation of ours is no right to a slot of that name in another database of the
// cluster.
func TestUnfinishedCreationLeavesTheSlotOfAnotherDatabase(t *testing.T) {
	b := shared(t)
	b.unfinished()
	other := b.createSlotElsewhere()
	for range 2 {
		stop := b.wantStop(b.run().wait(), event.ExitOperator, "slot_foreign")
		if name := other.text(`SELECT current_database()`); !strings.Contains(stop.What, name) {
			t.Errorf("%s is not named: %s", name, stop.What)
		}
	}
	b.wantCount("1 slots, 0 publications, 1 schemas")
}

// Only the connection on which the slot is made is lost: the row that says creating stays, because
// the slot may come to be.
func TestCreationWithoutAnAnswerStaysUnfinished(t *testing.T) {
	b := shared(t)
	commit := b.openInsert("open")
	defer commit()
	pool, direct := b.prepared(), b.cfg
	p := b.through()
	ctx := await.Context(t)
	stream, err := source.ConnectStream(ctx, &b.cfg)
	await.Must(t, err)
	created := make(chan error, 1)
	go func() {
		created <- slot.CreateSlot(ctx, pool, stream, &direct, slot.Identity{SystemID: "1", Timeline: 1, Database: "x"}, schema.Sends{}, true)
	}()
	b.waitCreating()
	p.Reset()
	if err := <-created; err == nil {
		t.Error("created")
	}
	if rec, err := slot.ReadRecord(ctx, pool, b.cfg.Slot); err != nil || rec == nil || rec.State != slot.StateCreating {
		t.Errorf("record: %+v, %v", rec, err)
	}
}

// Where the relay makes no slot, the fixes say how to.
func TestSlotDroppedThatIsNotMadeAgain(t *testing.T) {
	b := shared(t)
	b.goesOn("a")
	b.cfg.Create = false
	b.dropSlot()
	stop := b.wantStop(b.run().wait(), event.ExitOperator, "slot_lost")
	adopt, makeSlot, found := strings.Cut(stop.Fix, "source.create is false: ")
	if !found {
		t.Fatal(stop.Fix)
	}
	b.runFix(&event.Stop{Fix: adopt})
	if stop := b.wantStop(b.run().wait(), event.ExitOperator, "slot_missing"); stop.Fix != makeSlot {
		t.Errorf("the loss is accepted, and the fix is %q, not %q", stop.Fix, makeSlot)
	}
	b.exec(makeSlot)
	b.goesOn("b")
}

func TestSlotOfAnotherKind(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(b *bench){
		"test_decoding": func(b *bench) { b.createSlot("test_decoding") },
		"physical": func(b *bench) {
			b.exec(`SELECT pg_create_physical_replication_slot($1)`, b.cfg.Slot)
			b.t.Cleanup(func() { b.exec(`SELECT pg_drop_replication_slot($1)`, b.cfg.Slot) })
		},
		"database": func(b *bench) { b.createSlotElsewhere() },
	} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, first start %t", name, first), func(t *testing.T) {
				b := shared(t)
				if !first {
					b.goesOn("a")
					b.dropSlot()
				}
				make(b)
				for _, refused := range []error{b.run().wait(), setup.Init(await.Context(t), b.cfg, setup.InitOptions{})} {
					b.wantStop(refused, event.ExitOperator, "slot_foreign", name, "choose another source.slot")
				}
			})
		}
	}
}

// Below the flush limit, but above what this process reported.
func TestSlotMovedByHandWhileTheStreamIsCut(t *testing.T) {
	b := shared(t)
	p := b.through()
	r := b.settledRun("a")
	b.current().Hold()
	b.insert("skipped")
	r.waitSeen("skipped")
	p.Cut()
	b.waitFree()
	b.exec(`UPDATE cdc_relay.progress SET max_flush_lsn = pg_current_wal_insert_lsn()`)
	b.exec(`SELECT pg_replication_slot_advance($1, (SELECT max_flush_lsn FROM cdc_relay.progress))`, b.cfg.Slot)
	await.Must(t, p.Restore())
	b.wantStop(r.wait(), event.ExitOperator, "slot_moved")
}

// A relay that runs makes no slot in its place: what was committed meanwhile would not be in it.
func TestSlotDroppedWhileTheStreamIsCut(t *testing.T) {
	b := shared(t)
	p := b.through()
	r := b.settledRun("a")
	p.Cut()
	b.dropSlot()
	b.insert("lost")
	await.Must(t, p.Restore())
	b.wantStop(r.wait(), event.ExitOperator, "slot_lost", b.cfg.Slot)
	b.wantText("0", `SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
}
