package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

func TestReadStats(t *testing.T) {
	t.Parallel()
	w := newDatabase(t, servers.SharedPostgres(t), "")
	b := newBench(t, w)
	wants := func(c store.Config, deferred, dead int) (found store.Stats) {
		t.Helper()
		found, err := Count(await.Context(t), w.pool, c.Slot, c.SystemID, 10)
		b.must(err)
		if found.Deferred != deferred || found.Dead != dead || time.Since(found.At) > time.Minute {
			t.Errorf("the tables hold %+v, want %d rows and %d dead letters", found, deferred, dead)
		}
		return found
	}
	if found := wants(b.c, 0, 0); !found.OldestDeferred.IsZero() || !found.OldestDead.IsZero() {
		t.Errorf("of nothing there is an oldest: %+v", found)
	}
	rows := b.rows(3, "key", 1, 1)
	rows[1].Event.CommitTime = rows[1].Event.CommitTime.Add(time.Hour)
	b.deferRow(rows...)
	b.deadLetter("key")
	b.deadLetter("another")
	w.exec(`UPDATE cdc_relay.dead_letter SET died_at = now() - interval '1 hour' WHERE n = (SELECT max(n) FROM cdc_relay.dead_letter WHERE slot = $1)`, b.c.Slot)
	closed := b.deadLetter("closed")
	w.exec(`UPDATE cdc_relay.dead_letter SET state = 'discarded', died_at = now() - interval '2 hours' WHERE n = $1`, closed.N)
	copied := b.with(func(c *store.Config) { c.SystemID = "7000000000000000002" })
	copied.deferRow(copied.row("key", 1, 1))

	found := wants(b.c, 3, 2)
	if found.Bytes < 4*8192 { // a page of each table and of an index
		t.Errorf("the tables have %d bytes", found.Bytes)
	}
	if d := found.OldestDeferred.Sub(rows[0].Event.CommitTime).Abs(); d > time.Minute {
		t.Errorf("the oldest row is of %s, want %s", found.OldestDeferred, rows[0].Event.CommitTime)
	}
	if d := time.Since(found.OldestDead); d < time.Hour || d > time.Hour+time.Minute {
		t.Errorf("the oldest open dead letter died %s ago, want an hour", d)
	}
	wants(copied.c, 1, 0)
	wants(newBench(t, w).c, 0, 0)

	if found, err := Count(await.Context(t), w.pool, b.c.Slot, b.c.SystemID, 2); err != nil || found.Deferred != 2 || found.Dead != 2 {
		t.Errorf("with a limit of 2 it is %+v, %v", found, err)
	}

	w.exec(`ALTER TABLE cdc_relay.retry RENAME TO retired`)
	wants(b.c, 0, 0)
}

// Requests that send nothing are read as many as have keys of lightBytes, and then the others.
func TestLightRequests(t *testing.T) {
	t.Parallel()
	w := newDatabase(t, servers.SharedPostgres(t), "")
	b := newBench(t, w)
	const rows, size = 20, lightBytes / 5
	for range rows {
		b.Ask(b.c, store.Discard, b.deadLetter("a").N, event.Route{})
	}
	w.exec(`UPDATE cdc_relay.dead_letter SET key = convert_to(repeat('k', $2), 'UTF8') WHERE slot = $1`, b.c.Slot, size)
	for left := rows; left > 0; {
		list, err := b.WaitingRequests(await.Context(t), 100, 1)
		b.must(err)
		if len(list) == 0 || len(list) > 6 {
			t.Fatalf("%d requests are read at once, of %d", len(list), left)
		}
		for _, q := range list {
			_, err := b.AnswerRequests(await.Context(t), []store.Answer{{Request: q}})
			b.must(err)
		}
		left -= len(list)
	}
}

// reclaims is a store for which every size is worth reclaiming, in a database of its own.
func reclaims(t *testing.T) (*bench, *database) {
	t.Parallel()
	w := newDatabase(t, servers.SharedPostgres(t), "")
	b := newBench(t, w)
	b.Store.(*Store).limits.reclaimFrom = 1
	return b, w
}

func (b *bench) wantReclaimed(what string, want store.Reclaimed) {
	b.Helper()
	got, err := b.ReclaimSpace(await.Context(b.T))
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
	b.wantReclaimed("with rows", store.ReclaimNothing)
	b.wantRows(rows[0].Group, rows...)
	w.exec(`DELETE FROM cdc_relay.retry`)
	b.Store.(*Store).limits.reclaimFrom = reclaimFrom
	b.wantReclaimed("a small table", store.ReclaimNothing)
	b.Store.(*Store).limits.reclaimFrom = w.size()
	b.wantReclaimed("an empty table", store.ReclaimTruncated)
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
		b.wantReclaimed("with a row of another", store.ReclaimNothing)
		other.wantRows(row.Group, row)
		// Nor does it take a row that is committed after it has looked, before it has its lock.
		conn, err := w.pool.Acquire(await.Context(t))
		b.must(err)
		got, err := b.Store.(*Store).truncateEmpty(await.Context(t), conn)
		conn.Release()
		b.must(err)
		equal(t, "with a row of another, under the lock", got, store.ReclaimNothing)
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
		b.wantReclaimed(sql, store.ReclaimInUse)
		equal(t, "size", w.size(), was)
		b.must(tx.Commit(await.Context(t)))
	}
	b.wantReclaimed("with the row", store.ReclaimNothing)
	b.wantRows(row.Group, row)
}

// A former leader does nothing, nor does one whose successor is just raising the epoch.
func TestReclaimFence(t *testing.T) {
	b, w := reclaims(t)
	b.deferRow(b.rows(200, "k", 1, 1)...)
	w.exec(`DELETE FROM cdc_relay.retry`)
	was := w.size()
	tx := w.begin(`UPDATE cdc_relay.slots SET epoch = epoch + 1 WHERE slot = $1`, b.c.Slot)
	b.wantReclaimed("while the epoch is raised", store.ReclaimInUse)
	b.must(tx.Commit(await.Context(t)))
	conn, err := w.pool.Acquire(await.Context(t))
	b.must(err)
	_, err = b.Store.(*Store).truncateEmpty(await.Context(t), conn)
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
	b.wantReclaimed("without the right", store.ReclaimNothing)
}
