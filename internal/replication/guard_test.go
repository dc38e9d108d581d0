package replication

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// A percentage of max_slot_wal_keep_size where that is not limited is a fault of the configuration,
// for check, init and run. With a size, check says what the guard costs.
func TestGuardsLimits(t *testing.T) {
	b := shared(t)
	b.cfg.Guard = source.Guard{Percent: 50, MaxBytes: 1 << 30}
	const says = "guard.defer_at is 50% of max_slot_wal_keep_size, which is -1"
	_, err := check.Run(await.Context(t), b.cfg)
	b.wantStop(err, event.ExitUsage, "config", says)
	b.wantStop(setup.Init(await.Context(t), b.cfg, setup.InitOptions{}), event.ExitUsage, "config", says)
	b.wantStop(b.run().wait(), event.ExitUsage, "config", says)

	b.cfg.Guard = source.Guard{DeferAt: 1 << 20, MaxBytes: 1 << 30}
	b.init(setup.InitOptions{})
	b.wantLine(check.LevelOK, "disk guard", "no insert into the outbox")
	pool := b.pool()
	if _, err := survey.ReadDisk(await.Context(t), pool, b.cfg.Slot, source.Guard{Percent: 1}); err == nil {
		t.Error("the limit of a server without one is known")
	}
	before, err := survey.ReadDisk(await.Context(t), pool, b.cfg.Slot, b.cfg.Guard)
	await.Must(t, err)
	b.exec(`SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000))`)
	after, err := survey.ReadDisk(await.Context(t), pool, b.cfg.Slot, b.cfg.Guard)
	await.Must(t, err)
	if after.Retained < before.Retained+900_000 || after.DeferAt != 1<<20 || after.Own < 4*8192 {
		t.Errorf("the disk has %+v, and had %+v before a megabyte of WAL", after, before)
	}
}
