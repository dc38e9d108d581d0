//go:build testall

package replication

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// The same, when it was the relay that died, and another one is started while the server is still
// at it.
func TestFirstStartAfterACrashInTheFirstStart(t *testing.T) {
	b := shared(t)
	p := b.through()
	commit := b.openInsert("open")
	r := b.run()
	b.waitCreating()
	r.crash(p)
	creating := func() int { return b.logs.FilterMessageSnippet("creating the slot waits").Len() }
	before := creating()
	next := b.run()
	// For the server to be done with it; or, when the client's request to cancel it still came
	// through, for its own creation.
	await.Until(t, "the relay to wait", func() bool { return next.s.Snapshot().Phase == slot.Waiting || creating() > before })
	commit()
	b.wantStop(next.wait(), event.ExitUsage, "backfill")
}

// Somebody else takes the name between our check and CREATE_REPLICATION_SLOT.
func TestNameTakenBeforeTheCreation(t *testing.T) {
	t.Parallel()
	create := func(b *bench) (*slot.Record, error) {
		ctx, pool := await.Context(b.t), b.prepared()
		stream, err := source.ConnectStream(ctx, &b.cfg)
		await.Must(b.t, err)
		defer source.CloseStream(stream)
		id, err := slot.Identify(ctx, stream)
		await.Must(b.t, err)
		created := slot.CreateSlot(ctx, pool, stream, &b.cfg, id, schema.Sends{}, true)
		rec, err := slot.ReadRecord(ctx, pool, b.cfg.Slot)
		await.Must(b.t, err)
		return rec, created
	}
	t.Run("another database's", func(t *testing.T) {
		b := shared(t)
		b.createSlotElsewhere()
		if _, err := create(b); source.SQLState(err) != "42710" {
			t.Error(err)
		}
		b.wantStop(b.run().wait(), event.ExitOperator, "slot_foreign")
	})
	// It may be our own, of an attempt whose answer was lost: nobody has asked about the rows
	// before it.
	t.Run("this database's", func(t *testing.T) {
		b := shared(t)
		b.insert("before")
		b.createSlot("pgoutput")
		rec, err := create(b)
		if source.SQLState(err) != "42710" || rec == nil || rec.State != slot.StateCreating {
			t.Errorf("record %+v, error %v", rec, err)
		}
		b.wantStop(b.run().wait(), event.ExitUsage, "backfill")
	})
}
