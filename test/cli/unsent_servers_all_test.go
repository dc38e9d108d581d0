//go:build testall

package cli

import (
	"fmt"
	"strings"
	"testing"

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
