//go:build testall

package replication

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

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

// rowsNeed wants the count of the rows to be theirs: of those that are deleted until a vacuum, and
// no contents that are not there.
func (b *bench) rowsNeed(pool *pgxpool.Pool) {
	b.t.Helper()
	const each = 1024
	need := func(limit int64) int64 {
		b.t.Helper()
		n, err := slot.ReadRows(await.Context(b.t), pool, guard.Limits{MaxBytes: limit})
		await.Must(b.t, err)
		return n
	}
	const columns = `n, slot, system_id, incarnation, commit_lsn, idx, ordering_group, exchange_or_topic, dest, hash, keyed, ordered, attempts, bytes, deferred_at, class, reason, error, destination, commit_time, event_time, payload_kind`
	const values = `n, 's', 's', 1, '0/1', n, 1, 2, 3, 4, true, true, 0, 500, now(), 'c', 'r', '', 'd', now(), now(), 0`
	b.exec(`INSERT INTO cdc_relay.dead_letter (` + columns + `, state, left_out) SELECT ` + values + `, s, o FROM
		(VALUES (1, 'open', NULL), (2, 'purged', NULL), (3, 'open', 'public.outbox')) v (n, s, o)`)
	if got := need(1 << 30); got != 3*each+500 {
		b.t.Errorf("the rows need %d bytes, want %d", got, 3*each+500)
	}
	if got := need(0); got != each+500 {
		b.t.Errorf("the first row needs %d bytes, want %d", got, each+500)
	}
	b.exec(`DELETE FROM cdc_relay.dead_letter`)
	counted := func(want int64) func() bool {
		return func() bool {
			b.exec(`SELECT 1`) // before 15 a session tells what it did only when a statement ends
			return need(1<<30) == want
		}
	}
	await.Until(b.t, "the statistics", counted(3*each))
	await.Until(b.t, "the statistics after a vacuum", func() bool {
		b.exec(`VACUUM cdc_relay.dead_letter`) // leaves the rows while another test makes a slot
		return counted(0)()
	})
}
