//go:build nightly

package cli

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

func init() {
	maps.Copy(movedDays, map[string]func(*moved){
		"a row that is written here under the id of another table's dead letter": func(d *moved) {
			d.sql(`CREATE TABLE outbox_two (LIKE outbox INCLUDING ALL)`)
			d.rig.source = "  tables: [public.outbox, public.outbox_two]\n  max_event_bytes: 64KiB"
			d.start()
			d.rig.addTransactionColumn()
			d.sql(`INSERT INTO outbox (id, payload) VALUES ({dead}, to_jsonb(repeat('x', 100000)))`, `INSERT INTO outbox (id) VALUES ({a})`)
			d.delivered("dead")
			d.stop()
			d.restored()
			d.sql(`INSERT INTO outbox_two (id) VALUES ({dead})`)
			_, id := d.finding()
			d.rig.ok("accept", id, "--same-data", "--delivered", "all")
			d.start()
			d.stop()
			if n := d.gaps(); n != 1 {
				d.rig.t.Errorf("%d gaps are kept", n)
			}
			d.rig.ok("recover", "--unordered")
			d.start()
			eventually(d.rig.t, func() string {
				if !strings.Contains(d.relay.Stdout(), d.id("dead")) {
					return "the row is not sent: " + d.relay.Log()
				}
				return ""
			})
			d.named["dead"], d.named["a"] = true, true
		},
		"a table without the column, and partitions": func(d *moved) {
			d.sql(`CREATE TABLE outbox_two (LIKE outbox INCLUDING ALL)`)
			d.rig.source = "  tables: [public.outbox, public.outbox_two]"
			d.partitioned()
			d.sql(`INSERT INTO outbox (id, part) VALUES ({a}, 1), ({b}, 2)`)
			d.delivered()
			d.stop()
			d.sql(`ALTER TABLE outbox_two DROP COLUMN tx CASCADE`)
			d.restored()
			_, id := d.finding()
			d.rig.ok("accept", id, "--same-data", "--delivered", "all")
			d.start()
			d.stop()
			if n := d.gaps(); n != 0 {
				d.rig.t.Errorf("%d gaps are kept", n)
			}
			// nothing is known of this row, so the word does not cover it
			d.sql(`INSERT INTO outbox_two (id) VALUES ({c})`)
			d.restored()
			_, id = d.finding()
			d.rig.ok("accept", id, "--same-data", "--delivered", "all")
			d.start()
			d.stop()
			if n := d.gaps(); n != 1 {
				d.rig.t.Errorf("%d gaps are kept", n)
			}
			d.rig.ok("recover", "--unordered", "--where", "true")
			d.start()
			d.delivered()
			d.rig.source, d.named["c"] = "", true // no retention without the column
			if n := strings.Count(d.output+d.relay.Stdout(), d.id("a")); n != 1 {
				d.rig.t.Errorf("a row that was delivered before the move is sent %d times", n)
			}
		},
		"a table that is skipped": func(d *moved) {
			d.sql(`CREATE TABLE outbox_two (LIKE outbox INCLUDING ALL)`)
			d.rig.source = "  tables: [public.outbox, public.outbox_two]"
			d.start()
			d.stop()
			d.sql(`INSERT INTO outbox (id) VALUES ({a})`)
			d.unsent(`INSERT INTO outbox_two (id) VALUES ({b})`)
			d.restored()
			d.rig.source = ""
			_, id := d.finding()
			d.rig.ok("accept", id, "--same-data", "--delivered", "unknown")
			d.start()
			d.accept()
			d.stop()
			d.restored() // the word is about its rows, wherever they are
			_, id = d.finding()
			d.rig.ok("accept", id, "--same-data", "--delivered", "unknown")
			d.start()
			d.sql(`INSERT INTO outbox (id) VALUES ({c})`)
			d.delivered("a", "b")
			d.named["a"], d.named["b"] = true, true
		},
	})
}

// TestBlueGreen: the rows come by logical replication, and the schema cdc_relay follows in a dump.
// What a writer commits on the new server after that was not delivered before.
func TestBlueGreen(t *testing.T) {
	t.Parallel()
	d := (&systems{t: t}).day(t, "bluegreen")
	ctx := await.Context(t)
	blue, server := d.systems.of(0), d.systems.of(1)
	d.start()
	must(t, server.CreateDatabase(ctx, d.name))
	green := keptDay(on(t, server.URL(d.name)))
	green.rig.ok("init", "--outbox-table", "--no-slot")
	green.sql(`DROP SCHEMA cdc_relay CASCADE`)
	green.sql(fmt.Sprintf(`CREATE SUBSCRIPTION green CONNECTION '%s' PUBLICATION %s`, d.rig.db, d.rig.slot))
	d.sql(`INSERT INTO outbox (id) VALUES ({a})`, `INSERT INTO outbox (id) VALUES ({b})`)
	d.delivered()
	d.stop()
	eventually(t, func() string {
		if ask[int64](green.rig, `SELECT count(*) FROM outbox`) < 2 {
			return "the rows are not replicated"
		}
		return ""
	})
	green.sql(`DROP SUBSCRIPTION green`)
	must(t, server.RestoreInto(ctx, blue, d.name, "--schema=cdc_relay"))
	d.rig.db, d.at = green.rig.db, 1
	d.unsent(`INSERT INTO outbox (id) VALUES ({early})`)
	_, id := d.finding()
	if out := d.rig.ok("accept", id, "--same-data", "--delivered", "all"); !strings.Contains(out, "recover leaves out 2 rows") {
		t.Errorf("accept says: %s", out)
	}
	d.start()
	d.recovered()
	if n := strings.Count(d.output+d.relay.Stdout(), d.id("a")); n != 1 {
		t.Errorf("a row that was delivered before the move is sent %d times", n)
	}
	d.stop()
	d.ends()
}

// TestNoCommitTimeAfterADump: numbers that rows had brought with a dump were given to other
// transactions since, whose commits have the reverse order: such rows have no commit time.
func TestNoCommitTimeAfterADump(t *testing.T) {
	t.Parallel()
	d := (&systems{t: t}).day(t, "times")
	for range 2 { // the other system has not come to them
		d.rig.exec(burnTransactions)
	}
	d.start()
	d.stop()
	d.sql(`INSERT INTO outbox (id) VALUES ({a})`, `INSERT INTO outbox (id) VALUES ({b})`)
	d.restored()
	_, id := d.finding()
	d.rig.ok("accept", id, "--same-data", "--delivered", "unknown")
	// the number of a is that of a transaction which commits after that of b
	ctx, number := await.Context(t), ask[int64](d.rig, `SELECT min(tx::text::bigint) FROM outbox`)
	for number-ask[int64](d.rig, `SELECT pg_current_xact_id()::text::bigint`) > 2100 {
		d.rig.exec(burnTransactions)
	}
	must(t, pgserver.OnConn(ctx, d.rig.db, func(conn *pgx.Conn) error {
		for given := int64(0); given < number; {
			if _, err := conn.Exec(ctx, "ROLLBACK; BEGIN"); err != nil {
				return err
			}
			if err := conn.QueryRow(ctx, `SELECT pg_current_xact_id()::text::bigint`).Scan(&given); err != nil {
				return err
			}
		}
		d.rig.exec(burnTransactions)
		_, err := conn.Exec(ctx, "COMMIT")
		return err
	}))
	d.start()
	d.sql(`INSERT INTO outbox (id) VALUES ({c})`, `INSERT INTO outbox (id) VALUES ({d})`)
	d.rig.refused(2, "resend --key k", "order unknown: 2 of 4 rows have no commit timestamp", "came with a dump", "--order-by")
	d.rig.ok("resend", "--id", d.id("d"), "--id", d.id("c"), "--wait", "60s") // of known order
	byTime := []string{"resend", "--from", "1h", "--unordered", "--dry-run"}
	if got := d.rig.ok(byTime...); !strings.HasPrefix(got, "4 rows") || !strings.Contains(got, `go by column "created_at", where no other time is known`) {
		t.Errorf("by time a dry run says %q", got)
	}
	d.sql(`ALTER TABLE outbox DROP created_at`)
	refusal(t, d.rig.command(byTime...), 2, "the time of 2 rows is not known", "--where")
	// also of a table that was written again
	d.sql(`ALTER TABLE outbox ADD COLUMN seq bigserial`)
	d.rig.refused(2, "resend --key k", "order unknown", "--order-by")
	d.stop()
	d.rig.refused(2, "recover", "order unknown: 2 of 2 rows have no commit timestamp", "--order-by")
	d.rig.exec(`SELECT pg_drop_replication_slot($1)`, d.rig.slot)
	d.rig.refused(2, "recover", "order unknown", "--order-by")
	d.rig.slot += "_2"
	d.rig.refused(2, "init --backfill", "order unknown: 4 of 4 rows have no commit timestamp", "--order-by")
}
