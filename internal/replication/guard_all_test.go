//go:build testall

package replication

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

// A percentage of max_slot_wal_keep_size where that is not limited is a fault of the configuration:
// init and run end with it, and check has a line of it. With a size, check says what is
// left of it.
func TestGuardsLimits(t *testing.T) {
	b := shared(t)
	b.cfg.Guard = guard.Limits{Percent: 50, MaxBytes: 1 << 30}
	const says = "guard.defer_at is 50% of max_slot_wal_keep_size, which is -1"
	b.wantLine(check.LevelFail, "disk guard", says)
	b.wantLine(check.LevelOK, "wal_level", "logical") // the other lines are there
	b.wantStop(setup.Init(await.Context(t), b.cfg, setup.InitOptions{}), event.ExitUsage, "config", says)
	b.wantStop(b.run().wait(), event.ExitUsage, "config", says)

	b.cfg.Guard = guard.Limits{DeferAt: 1 << 20, MaxBytes: 1 << 30}
	b.init(setup.InitOptions{})
	b.wantLine(check.LevelOK, "disk guard", "its limits fit")
	pool := b.pool()
	if _, err := slot.ReadDisk(await.Context(t), pool, b.cfg.Slot, guard.Limits{Percent: 1}); err == nil {
		t.Error("the limit of a server without one is known")
	}
	before, err := slot.ReadDisk(await.Context(t), pool, b.cfg.Slot, b.cfg.Guard)
	await.Must(t, err)
	b.exec(`SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000000))`)
	after, err := slot.ReadDisk(await.Context(t), pool, b.cfg.Slot, b.cfg.Guard)
	await.Must(t, err)
	if after.Retained < before.Retained+900_000 || after.DeferAt != 1<<20 || after.Own < 4*8192 {
		t.Errorf("the disk has %+v, and had %+v before a megabyte of WAL", after, before)
	}
	if f := b.finding("disk guard"); !strings.Contains(f.Detail, " MiB of guard.max_bytes is left") {
		b.t.Errorf("the line is %+v", f)
	}
	b.rowsNeed(pool)
}
