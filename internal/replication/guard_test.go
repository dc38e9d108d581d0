package replication

import (
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// emptied wants the cost of an event to be that of the rows that were written, though all are
// deleted and their space is still there; a value in TOAST counts.
func (b *bench) emptied() {
	b.t.Helper()
	write := func(rows int, payload string, inserts int) {
		b.exec(`INSERT INTO outbox SELECT lpad(n::text, 20, '0'), jsonb_build_object('fill', `+payload+`) FROM generate_series(1, $1) n`, rows)
		b.exec(`ANALYZE outbox`)
		b.exec(`DELETE FROM outbox`)
		b.exec(`VACUUM outbox`)
		b.exec(`ANALYZE outbox`) // which finds nothing
		await.Until(b.t, "the statistics", func() (done bool) {
			b.scan(&done, `SELECT n_tup_ins = $1 FROM pg_stat_user_tables WHERE relname = 'outbox'`, inserts)
			return done
		})
	}
	says := func(want string) {
		b.t.Helper()
		if f := b.finding("disk guard"); !strings.Contains(f.Detail, want) {
			b.t.Errorf("the line is %+v, want %q", f, want)
		}
	}
	write(400, `repeat('x', 300)`, 400)
	says("takes about 1401 B")
	write(100, `(SELECT string_agg(md5(random()::text || n || g), '') FROM generate_series(1, 1000) g)`, 500)
	says("takes about 7899 B")
}

// rowsNeed wants the count of the rows to be theirs: of those that are deleted until a vacuum, and
// no contents that are not there.
func (b *bench) rowsNeed(pool *pgxpool.Pool) {
	b.t.Helper()
	const each = 1024
	need := func(limit int64) int64 {
		b.t.Helper()
		n, err := survey.ReadRows(await.Context(b.t), pool, guard.Limits{MaxBytes: limit})
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
