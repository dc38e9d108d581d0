//go:build testall

package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// systems are servers that databases are moved to, by dumps. Rows keep the numbers of transactions
// that the next server gives later, or has given to others.
type systems struct {
	t   *testing.T
	all []*pgserver.Postgres
}

// of is the server with a number, which is started when it is needed first.
func (s *systems) of(number int) *pgserver.Postgres {
	s.t.Helper()
	for len(s.all) <= number {
		pg, err := pgserver.Start(await.Context(s.t), pgserver.Options{NoFsync: true, Settings: map[string]string{"track_commit_timestamp": "on"}})
		must(s.t, err)
		s.t.Cleanup(func() { must(s.t, pg.Close()) })
		s.all = append(s.all, pg)
	}
	return s.all[number]
}

// moved is a day whose database moves from one system to the next.
type moved struct {
	*day
	systems *systems
	name    string // of the database
	at      int    // its system
}

func (s *systems) day(t *testing.T, name string) *moved {
	t.Helper()
	must(t, s.of(0).CreateDatabase(await.Context(t), name))
	return &moved{keptDay(on(t, s.of(0).URL(name))), s, name, 0}
}

func (d *moved) restored() {
	d.rig.t.Helper()
	to := d.systems.of(d.at + 1)
	must(d.rig.t, to.RestoreDump(await.Context(d.rig.t), d.systems.of(d.at), d.name))
	d.at++
	d.rig.db = to.URL(d.name)
}

// ends drops the slots that are left behind on each system.
func (d *moved) ends() {
	d.rig.t.Helper()
	for i := range d.at + 1 {
		d.rig.db = d.systems.of(i).URL(d.name)
		d.rig.exec(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database() AND NOT active`)
	}
}

// finding starts a relay, which ends with exit 3, and returns its line and the ID in it.
func (d *day) finding(words ...string) (line, id string) {
	d.rig.t.Helper()
	d.start()
	code, err := d.relay.Exit(await.Context(d.rig.t))
	must(d.rig.t, err)
	d.output += d.relay.Stdout()
	line = refusal(d.rig.t, runner.Result{Code: code, Stderr: d.relay.Log()}, 3, words...)
	found := acceptLine.FindStringSubmatch(line)
	if found == nil {
		d.rig.t.Fatalf("no accept is offered: %s", line)
	}
	return line, found[1]
}

// copies is how many rows a recover copies, once the slot is lost.
func (d *day) copies(want int) {
	d.rig.t.Helper()
	d.rig.exec(`SELECT pg_drop_replication_slot($1)`, d.rig.slot)
	if out := d.rig.ok("recover", "--unordered"); !strings.Contains(out, fmt.Sprintf("recovered: %d row", want)) {
		d.rig.t.Errorf("recover is to copy %d rows: %s", want, out)
	}
}

func (d *day) gaps() int64 {
	d.rig.t.Helper()
	return ask[int64](d.rig, `SELECT count(*) FROM cdc_relay.gap WHERE recovered_at IS NULL`)
}

const burnTransactions = `DO $$ BEGIN FOR i IN 1..2000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`

// TestAnotherSystem: a dump is restored, and an operator says whether all was delivered before.
func TestAnotherSystem(t *testing.T) {
	t.Parallel()
	s, number := &systems{t: t}, 0
	for name, steps := range map[string]func(*moved){
		"all delivered": func(d *moved) {
			d.rig.source = "  max_event_bytes: 64KiB"
			d.start()
			d.sql(`INSERT INTO outbox (id) VALUES ({a}), ({b})`, `INSERT INTO outbox (id) VALUES ({c})`)
			d.delivered()
			d.sql(`INSERT INTO outbox (id, payload) VALUES ({dead}, to_jsonb(repeat('x', 100000)))`)
			d.sql(`INSERT INTO outbox (id) VALUES ({d})`)
			d.delivered("dead")
			d.stop()
			d.restored()
			_, id := d.finding("--same-data --delivered unknown", "--delivered all")
			d.rig.refused(2, "accept "+id+" --same-data", "only you know", "--delivered all", "--delivered unknown")
			d.rig.refused(2, "accept "+id+" --copy --delivered all", "--delivered needs --same-data")
			d.rig.refused(2, "accept "+id+" --same-data --delivered some", "all or unknown")
			if out := d.rig.ok("accept", id, "--same-data", "--delivered", "all"); !strings.Contains(out, "recover leaves out 4 rows of the outbox tables") {
				d.rig.t.Errorf("accept says: %s", out)
			}
			// the table is written again, and the numbers of its rows are given again
			d.sql(`ALTER TABLE outbox ADD COLUMN seq bigserial`)
			d.rig.exec(burnTransactions)
			d.start()
			d.stop()
			if n := d.gaps(); n != 0 {
				d.rig.t.Errorf("%d gaps are kept", n)
			}
			d.rig.refused(2, "recover --unordered", "there is nothing to recover")
			d.sql(`INSERT INTO outbox (id) VALUES ({later})`)
			d.copies(1)
			d.start()
			d.delivered("dead")
			if n := strings.Count(d.output+d.relay.Stdout(), d.id("a")); n != 1 {
				d.rig.t.Errorf("a row that was delivered before the move is sent %d times", n)
			}
			for _, name := range []string{"dead", "a", "b", "c", "d"} {
				d.named[name] = true // a word deletes nothing
			}
		},
		"rows that are written before the word, and after it": func(d *moved) {
			d.start()
			d.sql(`INSERT INTO outbox (id) VALUES ({a}), ({b})`)
			d.delivered()
			d.stop()
			d.restored()
			d.unsent(`INSERT INTO outbox (id) VALUES ({early})`)
			d.unsent(`INSERT INTO outbox (id) VALUES ({changed})`)
			d.sql(`UPDATE outbox SET type = 'changed' WHERE id = {changed}`, `UPDATE outbox SET type = 'changed' WHERE id = {b}`)
			_, id := d.finding()
			d.rig.ok("accept", id, "--same-data", "--delivered", "all")
			d.unsent(`INSERT INTO outbox (id) VALUES ({late})`)
			d.start()
			if n := d.gaps(); n != 1 {
				d.rig.t.Errorf("%d gaps are kept", n)
			}
			d.recovered()
			if n := strings.Count(d.output+d.relay.Stdout(), d.id("a")); n != 1 {
				d.rig.t.Errorf("a row that was delivered before the move is sent %d times", n)
			}
		},
		"not known, of transactions that the new system has not come to": func(d *moved) {
			d.rig.exec(burnTransactions)
			d.start()
			d.sql(`INSERT INTO outbox (id) VALUES ({a})`)
			d.delivered()
			d.stop()
			d.unsent(`INSERT INTO outbox (id) VALUES ({b})`)
			d.restored()
			_, id := d.finding()
			d.rig.ok("accept", id, "--same-data", "--delivered", "unknown")
			d.start()
			if n := d.gaps(); n != 1 {
				d.rig.t.Errorf("%d gaps are kept", n)
			}
			d.recovered()
		},
		"the file names one of two tables": func(d *moved) {
			d.sql(`CREATE TABLE outbox_two (LIKE outbox INCLUDING ALL)`)
			d.rig.source = "  tables: [public.outbox, public.outbox_two]"
			d.start()
			d.stop()
			d.unsent(`INSERT INTO outbox (id) VALUES ({a})`)
			d.unsent(`INSERT INTO outbox_two (id) VALUES ({b})`)
			d.restored()
			d.rig.source = ""
			_, id := d.finding()
			d.rig.ok("accept", id, "--same-data", "--delivered", "unknown")
			line, _ := d.finding("has relayed table public.outbox_two on another server", "add public.outbox_two to source.tables")
			if out := d.rig.command("check"); !strings.Contains(out.Stdout, "has relayed table public.outbox_two on another server") {
				d.rig.t.Errorf("check does not say it: %s", out.Stdout)
			}
			// an operator's word about its rows, or the table
			if skip := acceptLine.FindStringSubmatch(line); !strings.Contains(skip[2], "--skip-rows public.outbox_two@") {
				d.rig.t.Errorf("the command is %q", skip[0])
			}
			d.rig.source = "  tables: [public.outbox, public.outbox_two]"
			d.start()
			d.recovered()
		},
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
	} {
		t.Run(name, func(t *testing.T) {
			number++
			d := s.day(t, fmt.Sprint("shop", number))
			steps(d)
			d.rig.more = deletesAtOnce
			d.restart()
			d.control()
			d.judge()
			d.ends()
		})
	}
	t.Run("blue/green", func(t *testing.T) { s.day(t, "bluegreen").blueGreen() })
	t.Run("commit times", func(t *testing.T) { s.day(t, "times").haveNoCommitTime() })
}

// The rows come by logical replication, and the schema cdc_relay follows in a dump. What a writer
// commits on the new server after that was not delivered before.
func (d *moved) blueGreen() {
	t, ctx := d.rig.t, await.Context(d.rig.t)
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

// Numbers that rows had brought with a dump were given to other transactions since, whose commits
// have the reverse order: such rows have no commit time.
func (d *moved) haveNoCommitTime() {
	t := d.rig.t
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
