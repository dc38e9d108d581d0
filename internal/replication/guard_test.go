package replication

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

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
