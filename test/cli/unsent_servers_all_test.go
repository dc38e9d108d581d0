//go:build testall

package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// onOwnDay is a day on a server of its own.
func onOwnDay(t *testing.T) (*day, *pgserver.Postgres) {
	t.Helper()
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	must(t, pg.CreateDatabase(await.Context(t), "shop"))
	return newDay(on(t, pg.URL("shop"))), pg
}

// TestWaitForAStandby: a row whose commit waits for a synchronous standby is sent, and nobody sees
// it yet. It is deleted when it can be seen, and not forgotten before.
func TestWaitForAStandby(t *testing.T) {
	t.Parallel()
	d, pg := onOwnDay(t)
	ctx := await.Context(t)
	standby, err := pgserver.StartStandby(ctx, pg)
	must(t, err)
	t.Cleanup(func() { must(t, standby.Close()) })
	d.start()
	// the standby has the WAL, for which the relay waits, and does not apply it
	must(t, pg.Set(ctx, "synchronous_standby_names", "walreceiver"))
	var paused string
	must(t, standby.Query(ctx, &paused, `SELECT pg_wal_replay_pause()::text`))
	committed := make(chan error, 1)
	go func() {
		committed <- pgserver.OnConn(ctx, d.rig.db, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `SET synchronous_commit = remote_apply; `+d.fill(`INSERT INTO outbox (id) VALUES ({waits})`))
			return err
		})
	}()
	eventually(t, func() string {
		switch {
		case !strings.Contains(d.relay.Stdout(), d.id("waits")):
			return "the row that waits is not sent"
		case ask[bool](d.rig, `SELECT NOT EXISTS (SELECT FROM cdc_relay.sent)`):
			return "that it was sent is not recorded"
		}
		return ""
	})
	d.control() // passes of retention go by
	if !ask[bool](d.rig, `SELECT NOT EXISTS (SELECT FROM outbox WHERE id = $1)`, d.id("waits")) {
		t.Fatal("the row is seen before its commit has ended")
	}
	must(t, standby.Query(ctx, &paused, `SELECT pg_wal_replay_resume()::text`))
	must(t, <-committed)
	eventually(t, func() string {
		if ask[bool](d.rig, `SELECT EXISTS (SELECT FROM outbox WHERE id = $1)`, d.id("waits")) {
			return "the row that was sent before it could be seen is not deleted"
		}
		return ""
	})
	d.judge()
}

// TestTransactionsGivenAgain: a server loses its last transactions, in an immediate stop, a
// restored volume or the promotion of a standby that was behind. Rows get their numbers which
// nobody sends.
func TestTransactionsGivenAgain(t *testing.T) {
	t.Parallel()
	d, pg := onOwnDay(t)
	ctx := await.Context(t)
	d.start()
	d.control()
	image, err := pg.Image(ctx)
	must(t, err)
	d.stop()
	d.rig.more = "" // the rows that are sent stay recorded
	d.start()
	tx := ask[int64](d.rig, d.fill(`INSERT INTO outbox (id) VALUES ({sent}) RETURNING tx::text::bigint`))
	eventually(t, func() string {
		if !strings.Contains(d.relay.Stdout(), d.id("sent")) {
			return "not sent"
		}
		return ""
	})
	// the set stays, as if it had been on another volume
	d.stop()
	entries := ask[string](d.rig, `SELECT json_agg(s)::text FROM cdc_relay.sent s`)
	must(t, pg.RollBack(ctx, image))
	must(t, pg.Start(ctx))
	d.rig.exec(`ALTER PUBLICATION ` + d.rig.slot + ` DROP TABLE outbox`)
	for next := int64(0); next < tx; {
		next = ask[int64](d.rig, `INSERT INTO outbox (id) VALUES (gen_random_uuid()) RETURNING tx::text::bigint`)
	}
	// whoever else took the number, autovacuum perhaps
	d.unsent(fmt.Sprintf(`INSERT INTO outbox (id) VALUES ({a}); UPDATE outbox SET tx = '%d' WHERE id = {a}`, tx))
	d.rig.exec(`INSERT INTO cdc_relay.sent (slot, relation, chunk, first_tx, last_tx, digests, at)
		SELECT slot, relation, chunk, first_tx, last_tx, digests, at FROM json_populate_recordset(NULL::cdc_relay.sent, $1::json)`, entries)
	d.rig.exec(`ALTER PUBLICATION ` + d.rig.slot + ` ADD TABLE outbox`)
	d.rig.more = deletesAtOnce
	delete(d.all, "sent") // the server has lost it
	d.start()
	d.control()
	d.judge()
}
