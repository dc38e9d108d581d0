//go:build testall

package replication

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
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
		stop := replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "slot_foreign")
		if name := other.text(`SELECT current_database()`); !strings.Contains(stop.What, name) {
			t.Errorf("%s is not named: %s", name, stop.What)
		}
	}
	if got := b.count(); got != "1 slots, 0 publications, 1 schemas" {
		t.Error(got)
	}
}

// A line says why it takes long to count the rows of a large table, here over a slow line.
func TestLongCountIsNamed(t *testing.T) {
	b := shared(t)
	p := b.through()
	tx, _ := b.openInsert("open")
	r := b.run()
	b.waitCreating()
	p.Delay(300 * time.Millisecond)
	if err := tx.Commit(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the line", func() bool { return b.logs.FilterMessageSnippet("counting the rows").Len() == 1 })
	p.Delay(0)
	replicationtest.WantStop(t, r.wait(), event.ExitUsage, "backfill")
}

// Only the connection on which the slot is made is lost: the row that says creating stays, because
// the slot may come to be.
func TestCreationWithoutAnAnswerStaysUnfinished(t *testing.T) {
	b := shared(t)
	tx, _ := b.openInsert("open")
	defer tx.Rollback(context.Background())
	direct := b.cfg
	p := b.through()
	ctx := await.Context(t)
	pool, err := source.ConnectPool(&direct)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := schema.Ensure(ctx, pool, &direct); err != nil {
		t.Fatal(err)
	}
	if direct.Tables, err = publication.FindTables(ctx, pool, &direct, true); err != nil {
		t.Fatal(err)
	}
	stream, err := source.ConnectStream(ctx, &b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	created := make(chan error, 1)
	go func() {
		created <- slot.CreateSlot(ctx, pool, stream, &direct, slot.Identity{SystemID: "1", Timeline: 1, Database: "x"}, publication.State{}, true)
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
