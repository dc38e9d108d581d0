package postgres

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// reclaims is a store for which every size is worth reclaiming, in a database of its own.
func reclaims(t *testing.T) (*bench, *database) {
	w := newDatabase(t, servers.SharedPostgres(t), "")
	b := newBench(t, w)
	b.Store.(*Store).limits.reclaimFrom = 1
	return b, w
}

func (b *bench) wantReclaimed(what string, want store.Reclaimed) {
	b.Helper()
	got, err := b.Reclaim(await.Context(b.T))
	b.must(err)
	equal(b, what, got, want)
}

// begin opens a transaction of another session, which ends with the test.
func (w *database) begin(sql string, args ...any) pgx.Tx {
	w.t.Helper()
	tx, err := connect(w.t, w.conn.Config().ConnString()).Begin(await.Context(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(await.Context(w.t), sql, args...); err != nil {
		w.t.Fatal(err)
	}
	return tx
}

func (w *database) size() (bytes int64) {
	w.t.Helper()
	w.scan(`SELECT pg_total_relation_size('cdc_relay.retry')`, nil, &bytes)
	return bytes
}

// Once no row of anyone is left, the table and its indexes are as small as new ones.
func TestReclaim(t *testing.T) {
	b, w := reclaims(t)
	fresh := w.size()
	rows := b.rows(200, "k", 1, 1)
	b.deferRow(rows...)
	b.wantReclaimed("with rows", store.Kept)
	b.wantRows(rows[0].Group, rows...)
	w.exec(`DELETE FROM cdc_relay.retry`)
	b.Store.(*Store).limits.reclaimFrom = reclaimFrom
	b.wantReclaimed("a small table", store.Kept)
	b.Store.(*Store).limits.reclaimFrom = w.size()
	b.wantReclaimed("an empty table", store.Truncated)
	equal(t, "size", w.size(), fresh)
	b.deferRow(rows...)
	b.wantRows(rows[0].Group, rows...)
}

// The table belongs to all slots of the database, and to the systems that it was copied from.
func TestReclaimLeavesOtherRows(t *testing.T) {
	b, w := reclaims(t)
	for _, other := range []*bench{newBench(t, w), b.with(func(c *store.Config) { c.SystemID = "another" })} {
		row := other.row("k", 1, 1)
		other.deferRow(row)
		b.wantReclaimed("with a row of another", store.Kept)
		other.wantRows(row.Group, row)
		// Nor does it take a row that is committed after it has looked, before it has its lock.
		conn, err := w.pool.Acquire(await.Context(t))
		b.must(err)
		got, err := b.Store.(*Store).truncate(await.Context(t), conn)
		conn.Release()
		b.must(err)
		equal(t, "with a row of another, under the lock", got, store.Kept)
		other.wantRows(row.Group, row)
		w.exec(`DELETE FROM cdc_relay.retry`)
	}
}

// A dump, or a row that is not committed yet: nothing is done.
func TestReclaimWaitsForNobody(t *testing.T) {
	b, w := reclaims(t)
	row := b.row("k", 1, 1)
	b.deferRow(row)
	w.exec(`CREATE TABLE kept AS TABLE cdc_relay.retry`)
	w.exec(`DELETE FROM cdc_relay.retry`)
	for _, sql := range []string{`LOCK TABLE cdc_relay.retry IN ACCESS SHARE MODE`, `INSERT INTO cdc_relay.retry TABLE kept`} {
		tx, was := w.begin(sql), w.size()
		b.wantReclaimed(sql, store.InUse)
		equal(t, "size", w.size(), was)
		b.must(tx.Commit(await.Context(t)))
	}
	b.wantReclaimed("with the row", store.Kept)
	b.wantRows(row.Group, row)
}

// A former leader does nothing, nor does one whose successor is just raising the epoch.
func TestReclaimFence(t *testing.T) {
	b, w := reclaims(t)
	b.deferRow(b.rows(200, "k", 1, 1)...)
	w.exec(`DELETE FROM cdc_relay.retry`)
	was := w.size()
	tx := w.begin(`UPDATE cdc_relay.slots SET epoch = epoch + 1 WHERE slot = $1`, b.c.Slot)
	b.wantReclaimed("while the epoch is raised", store.InUse)
	b.must(tx.Commit(await.Context(t)))
	conn, err := w.pool.Acquire(await.Context(t))
	b.must(err)
	_, err = b.Store.(*Store).truncate(await.Context(t), conn)
	conn.Release()
	if !errors.Is(err, store.ErrFenced) {
		t.Errorf("got %v", err)
	}
	equal(t, "size", w.size(), was)
}

// A role that init has not given the right keeps the space.
func TestReclaimWithoutTheRight(t *testing.T) {
	b, w := reclaims(t)
	w.exec(`REVOKE TRUNCATE ON cdc_relay.retry FROM ` + w.pool.Config().ConnConfig.User)
	b.wantReclaimed("without the right", store.Kept)
}
