package dlq

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// What the leader and the mirror only read takes no row lock and no transaction id: it may run in a
// session that may not write. So looking for work writes nothing, and it waits neither for the
// synchronous standby nor for a raise of the epoch.
func TestReadsLockNothing(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	r.start(Bulk{Kind: Discard})
	c := r.pool.Config()
	c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	pool, err := pgxpool.NewWithConfig(r.ctx, c)
	r.must(err)
	t.Cleanup(pool.Close)
	l, m := r.leader(), MirrorPostgres{DB: pool, Slot: r.slot, SystemID: r.system(), Epoch: r.epoch()}
	l.db.db = pool
	if err := m.NoteMirrored(r.ctx, []int64{1}); source.SQLState(err) != "25006" {
		t.Errorf("the session may write: %v", err)
	}
	r.must(r.beside(`UPDATE cdc_relay.slots SET epoch = epoch + 1`, func() error {
		jobs, err := l.jobs(r.ctx)
		deadLetters, no := m.Unmirrored(r.ctx, 0, 1, 1)
		if len(jobs) != 1 || len(deadLetters) != 1 {
			t.Errorf("%d jobs and %d dead letters", len(jobs), len(deadLetters))
		}
		return errors.Join(err, no)
	}))
}
