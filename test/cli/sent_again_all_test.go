//go:build testall

package cli

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// recovered runs recover while no relay does, starts one, and waits until all rows are delivered
// that were written and are not among those that are left out.
func (d *day) recovered(leftOut ...string) {
	d.rig.t.Helper()
	d.stop()
	d.rig.ok("recover", "--unordered")
	d.start()
	d.delivered(leftOut...)
}

func (d *day) delivered(leftOut ...string) {
	d.rig.t.Helper()
	eventually(d.rig.t, func() string {
		for name := range d.all {
			if !slices.Contains(leftOut, name) && !strings.Contains(d.output+d.relay.Stdout(), d.id(name)) {
				return "row " + name + " is not delivered: " + d.relay.Log()
			}
		}
		return ""
	})
	clear(d.named) // what was unsent
}

// TestUnsentRowsAreRecovered: what no slot has sent is sent by recover, whatever became of the
// tables, and what cannot be read is named.
func TestUnsentRowsAreRecovered(t *testing.T) {
	for name, steps := range map[string]func(*day){
		"a gap, and the table rewritten": func(d *day) {
			d.start()
			d.control()
			d.stop()
			d.unsent(`INSERT INTO outbox VALUES ({a}), ({b}), ({c})`)
			d.sql(`SELECT pg_replication_slot_advance('{pub}', pg_current_wal_lsn())`)
			d.start()
			d.control()
			d.sql(`ALTER TABLE outbox ADD COLUMN seq bigserial`)
			d.recovered()
		},
		"a table that left the publication, and came back": func(d *day) {
			d.start()
			d.stop()
			d.sql(`ALTER PUBLICATION {pub} DROP TABLE outbox`)
			d.unsent(`INSERT INTO outbox VALUES ({a}), ({b})`)
			d.sql(`ALTER PUBLICATION {pub} ADD TABLE outbox`)
			d.start()
			d.control()
			d.recovered()
		},
		"the file names one of two tables": func(d *day) {
			d.sql(`CREATE TABLE outbox_two (LIKE outbox INCLUDING ALL)`)
			d.rig.source = "  tables: [public.outbox, public.outbox_two]"
			d.start()
			d.stop()
			d.unsent(`INSERT INTO outbox VALUES ({a}), ({b})`)
			d.unsent(`INSERT INTO outbox_two VALUES ({c}), ({d})`)
			d.sql(`SELECT pg_drop_replication_slot('{pub}')`)
			d.rig.source = ""
			d.rig.refused(2, "recover --unordered", `has relayed table "public"."outbox_two"`, "not in source.tables")
			d.rig.source = "  tables: [public.outbox, public.outbox_two]"
			d.rig.ok("recover", "--unordered")
			d.start()
			d.delivered()
		},
		"a transaction that was open when the gap ended": func(d *day) {
			d.start()
			d.stop()
			d.sql(`ALTER PUBLICATION {pub} DROP TABLE outbox`)
			ctx := await.Context(d.rig.t)
			conn, err := pgx.Connect(ctx, d.rig.db)
			must(d.rig.t, err)
			defer conn.Close(ctx)
			_, err = conn.Exec(ctx, d.fill(`BEGIN; INSERT INTO outbox VALUES ({a})`))
			must(d.rig.t, err)
			d.named["a"] = true
			d.sql(`ALTER PUBLICATION {pub} ADD TABLE outbox`)
			d.start()
			d.accept()
			d.stop()
			d.rig.refused(2, "recover --unordered", "began before the gap ended are still open", "process ")
			_, err = conn.Exec(ctx, `COMMIT`)
			must(d.rig.t, err)
			d.rig.ok("recover", "--unordered")
			d.start()
			d.delivered()
		},
		"a dead letter of another table with the same id": func(d *day) {
			d.sql(`CREATE TABLE outbox_two (LIKE outbox INCLUDING ALL)`)
			d.rig.source = "  tables: [public.outbox, public.outbox_two]\n  max_event_bytes: 64KiB"
			d.start()
			d.sql(`INSERT INTO outbox (id, payload) VALUES ({a}, to_jsonb(repeat('x', 100000)))`)
			d.control()
			d.rig.ok("dead-letters", "redact", "--all", "--reason", "a test", "--wait", "60s")
			d.stop()
			d.sql(`INSERT INTO outbox_two (id) VALUES ({a})`)
			d.sql(`SELECT pg_drop_replication_slot('{pub}')`)
			d.rig.ok("recover", "--unordered")
			d.start()
			eventually(d.rig.t, func() string {
				if !strings.Contains(d.relay.Stdout(), d.id("a")) {
					return "the row of the second table is not delivered"
				}
				return ""
			})
			d.named["a"] = true // the row of the dead letter stays
		},
		"rows that do not say which transaction wrote them": func(d *day) {
			d.start()
			d.control()
			d.stop()
			d.sql(`INSERT INTO outbox VALUES ({a})`)
			d.sql(`INSERT INTO outbox VALUES ({b}); UPDATE outbox SET tx = NULL WHERE id = {b}`)
			d.sql(`SELECT pg_drop_replication_slot('{pub}')`)
			d.rig.refused(2, "recover --unordered", "1 of 2 rows do not say which transaction wrote them")
			d.rig.ok("recover", "--unordered", "--where", "tx IS NOT NULL")
			d.start()
			d.delivered("b")
			d.named["b"] = true
		},
		"a partition that was detached": func(d *day) {
			d.rig.more = "" // its rows stay
			d.partitioned()
			d.sql(`INSERT INTO outbox (id, part) VALUES ({sent}, 2)`)
			d.delivered()
			d.stop()
			d.sql(`SELECT pg_drop_replication_slot('{pub}')`)
			d.unsent(`INSERT INTO outbox (id, part) VALUES ({a}, 2)`)
			d.sql(`ALTER TABLE outbox DETACH PARTITION outbox_2`)
			if out := d.rig.ok("recover", "--unordered"); !strings.Contains(out, "note: table public.outbox_2 may have rows of an outbox table") {
				d.rig.t.Errorf("the detached partition is not named: %s", out)
			}
			d.rig.more = deletesAtOnce
			d.start()
		},
		"a table swapped in, and a slot lost": func(d *day) {
			d.start()
			d.control()
			d.stop()
			d.sql(`CREATE TABLE outbox_new (LIKE outbox INCLUDING ALL); ALTER TABLE outbox RENAME TO outbox_old; ALTER TABLE outbox_new RENAME TO outbox`)
			d.sql(`INSERT INTO outbox (id) VALUES ({a}), ({b})`, `ALTER PUBLICATION {pub} ADD TABLE outbox`, `SELECT pg_drop_replication_slot('{pub}')`)
			d.start()
			d.control()
			d.recovered()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDay(bare(t))
			steps(d)
			d.control()
			d.judge()
		})
	}
}

// prepared is a day on a server of its own, with a transaction that somebody has prepared and left.
func prepared(t *testing.T) *day {
	t.Helper()
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true, Settings: map[string]string{"max_prepared_transactions": "2"}})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	must(t, pg.CreateDatabase(await.Context(t), "shop"))
	must(t, pg.CreateDatabase(await.Context(t), "other"))
	must(t, execOn(await.Context(t), pg.URL("other"), `BEGIN; CREATE TABLE held (); PREPARE TRANSACTION 'left behind'`))
	return newDay(on(t, pg.URL("shop")))
}

const leftBehind = "prepared transaction 'left behind' of role postgres in database other, since "

// waiting starts a command that makes the slot, and returns when it has named what it waits for.
func (d *day) waiting(args ...string) (ends func(syscall.Signal) error) {
	t := d.rig.t
	t.Helper()
	file := filepath.Join(t.TempDir(), "cdc-relay.yaml")
	must(t, os.WriteFile(file, []byte(d.rig.yaml()), 0o600))
	command := exec.CommandContext(await.Context(t), d.rig.binary, append(args, "-c", file)...)
	says, err := command.StderrPipe()
	must(t, err)
	must(t, command.Start())
	lines, log := bufio.NewScanner(says), ""
	for named := false; !named; named = strings.Contains(lines.Text(), leftBehind) {
		if !lines.Scan() {
			t.Fatalf("%v does not name the transaction: %s", args, log)
		}
		log += lines.Text() + "\n"
	}
	return func(signal syscall.Signal) error {
		if signal != 0 {
			must(t, command.Process.Signal(signal))
		}
		_, err = io.Copy(io.Discard, says)
		must(t, err)
		return command.Wait()
	}
}

// TestPreparedTransactionIsNamed: the creation of a slot waits for it, and says so. A command that
// is ended meanwhile leaves nothing half-made, or the next one finishes it.
func TestPreparedTransactionIsNamed(t *testing.T) {
	for name, args := range map[string][]string{"init": {"init"}, "init --backfill": {"init", "--backfill", "--unordered"}, "recover": {"recover", "--unordered"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := prepared(t)
			d.unsent(`INSERT INTO outbox (id) VALUES ({a})`)
			switch name {
			case "init":
				args = append(args, "--no-backfill")
			case "recover":
				d.rig.exec(`TRUNCATE outbox`)
				must(t, execOn(await.Context(t), strings.Replace(d.rig.db, "/shop", "/other", 1), `COMMIT PREPARED 'left behind'`))
				d.start()
				d.control()
				d.stop()
				d.sql(`INSERT INTO outbox (id) VALUES ({a})`, `SELECT pg_drop_replication_slot('{pub}')`)
				must(t, execOn(await.Context(t), strings.Replace(d.rig.db, "/shop", "/other", 1), `BEGIN; DROP TABLE held; PREPARE TRANSACTION 'left behind'`))
			}
			if err := d.waiting(args...)(syscall.SIGINT); err == nil {
				t.Error("it succeeds although it was interrupted")
			}
			eventually(t, func() string {
				if ask[bool](d.rig, `SELECT EXISTS (SELECT FROM pg_replication_slots)`) {
					return "the slot is left half-made"
				}
				return ""
			})
			if err := d.waiting(args...)(syscall.SIGKILL); err == nil {
				t.Error("it succeeds although it was killed")
			}
			half := ask[int](d.rig, `SELECT active_pid FROM pg_replication_slots`)
			end := "SELECT pg_terminate_backend(" + strconv.Itoa(half) + ")"
			check := d.rig.command("check").Stdout
			if name != "recover" && (!strings.Contains(check, leftBehind) || !strings.Contains(check, end)) {
				t.Errorf("check does not name it: %s", check)
			}
			d.rig.refused(1, "teardown --yes", leftBehind, "ROLLBACK PREPARED 'left behind', in database other", end)
			next := d.waiting(args...)
			must(t, execOn(await.Context(t), strings.Replace(d.rig.db, "/shop", "/other", 1), `COMMIT PREPARED 'left behind'`))
			must(t, next(0))
			d.start()
			if name == "init" {
				d.control()
			} else {
				d.delivered()
			}
			d.judge()
		})
	}
}

// TestWALIsKeptForATransaction: the transaction that makes the slot keep WAL without lag is named,
// also if it is another database's.
func TestWALIsKeptForATransaction(t *testing.T) {
	t.Parallel()
	d := prepared(t)
	other := strings.Replace(d.rig.db, "/shop", "/other", 1)
	must(t, execOn(await.Context(t), other, `ROLLBACK PREPARED 'left behind'`))
	d.rig.exec(`CREATE ROLE relay LOGIN REPLICATION`)
	d.rig.ok("init", "--role", "relay")
	owner := d.rig.db
	d.rig.db, d.rig.more = as(owner, "relay", ""), ""
	if out := d.rig.ok("check"); strings.Contains(out, "open transactions") {
		t.Errorf("check names transactions although nothing waits for one: %s", out)
	}
	d.start()
	must(t, execOn(await.Context(t), other, `BEGIN; CREATE TABLE held (); PREPARE TRANSACTION 'left behind'`))
	must(t, execOn(await.Context(t), other, `CREATE TABLE much AS SELECT repeat('x', 1000) FROM generate_series(1, 3000)`))
	eventually(t, func() string {
		must(t, execOn(await.Context(t), owner, `CHECKPOINT; INSERT INTO outbox (id) VALUES (gen_random_uuid())`))
		if out := d.rig.ok("status"); !strings.Contains(out, "keeps WAL until these transactions end:") || !strings.Contains(out, leftBehind) || !strings.Contains(out, "COMMIT PREPARED 'left behind'") {
			return "status does not name the transaction: " + out
		}
		return ""
	})
	if out := d.rig.ok("status", "--json"); !strings.Contains(out, `"gid": "left behind"`) {
		t.Errorf("the JSON does not name it: %s", out)
	}
	if out := d.rig.ok("check"); !strings.Contains(out, "of WAL, all of it settled, until these end: "+leftBehind) {
		t.Errorf("check does not name it: %s", out)
	}
	must(t, execOn(await.Context(t), other, `ROLLBACK PREPARED 'left behind'`))
	eventually(t, func() string {
		must(t, execOn(await.Context(t), owner, `CHECKPOINT; INSERT INTO outbox (id) VALUES (gen_random_uuid())`))
		if out := d.rig.ok("status"); strings.Contains(out, "keeps WAL until") {
			return "status still names one: " + out
		}
		return ""
	})
	d.stop()
}

// TestHeldByTheirRow: a row of a gap is held by the dead letter of that row alone, whatever is left
// of it, and not by one that has its id.
func TestHeldByTheirRow(t *testing.T) {
	t.Parallel()
	r := bare(t)
	r.exec(load.OutboxTable)
	r.exec(`ALTER TABLE outbox ALTER id TYPE bigint USING 0, ALTER aggregatetype SET DEFAULT 'a', ALTER aggregateid SET DEFAULT 'k', ALTER type SET DEFAULT 't'`)
	r.exec(`CREATE TABLE outbox2 (LIKE outbox INCLUDING ALL)`)
	r.source = "  tables: [public.outbox, public.outbox2]\n  max_event_bytes: 64KiB"
	relay := r.start()
	const large = `(id, payload) VALUES ($1::int, to_jsonb(repeat('x', 100000)))`
	for id := range 4 {
		r.exec(`INSERT INTO outbox `+large, id)
	}
	state := func(id int64, want string) {
		t.Helper()
		eventually(t, func() string {
			out := r.ok("events", "show", strconv.FormatInt(id, 10))
			if !strings.Contains(out, want) {
				return out
			}
			return ""
		})
	}
	number := map[int64]string{}
	for id := range int64(4) {
		state(id, "dead letter")
		number[id] = ask[string](r, `SELECT n::text FROM cdc_relay.dead_letter WHERE id = convert_to($1::bigint::text, 'UTF8')`, id)
	}
	r.ok("dead-letters", "redact", number[0], "--reason", "a test", "--wait", "60s")
	r.ok("dead-letters", "discard", number[1], "--reason", "a test", "--wait", "60s")
	r.ok("dead-letters", "purge", number[2], "--reason", "a test", "--wait", "60s")
	relay.Stop(t)
	r.released()
	for id := range 4 {
		r.exec(`INSERT INTO outbox2 (id) VALUES ($1)`, id)
	}
	r.exec(`SELECT pg_drop_replication_slot($1)`, r.slot)
	if out := r.ok("recover", "--unordered", "--json"); !strings.Contains(out, `"recovered": 4`) || !strings.Contains(out, `"already_held": 4`) {
		t.Errorf("recovered is %s", out)
	}
	relay = r.start()
	state(0, "in public.outbox2: delivered")
	state(2, "dead letter "+number[2]+": purged")
	state(2, "in public.outbox2: delivered")
	relay.Stop(t)
}

// TestRestoredRowsAreRecovered: rows of a restored dump have the numbers of transactions of the
// server before, which say nothing of where a gap ends here.
func TestRestoredRowsAreRecovered(t *testing.T) {
	t.Parallel()
	d, old := onOwnDay(t)
	ctx := await.Context(t)
	d.rig.exec(`DO $$ BEGIN FOR i IN 1..20000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`)
	d.rig.more = ""
	d.start()
	d.stop()
	d.sql(`INSERT INTO outbox (id) VALUES ({a}), ({b})`) // they wait in the slot
	young, err := pgserver.Start(ctx, pgserver.Options{NoFsync: true})
	must(t, err)
	t.Cleanup(func() { must(t, young.Close()) })
	must(t, young.RestoreDump(ctx, old, "shop"))
	d.rig.db = young.URL("shop")
	d.start()
	d.accept()
	d.recovered()
	d.stop()
}

// TestOrderOfChangedRows: an update changes which command wrote a row, so its place among the rows
// of its transaction is not known any more. A table that is written again keeps it.
func TestOrderOfChangedRows(t *testing.T) {
	t.Parallel()
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true, Settings: map[string]string{"track_commit_timestamp": "on"}})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	d := newDay(on(t, pg.URL("postgres")))
	d.start()
	d.stop()
	d.sql(`SELECT pg_drop_replication_slot('{pub}')`)
	d.sql(`BEGIN; INSERT INTO outbox (id) VALUES ({a}); INSERT INTO outbox (id) VALUES ({b}); SAVEPOINT s; INSERT INTO outbox (id) VALUES ({c}); COMMIT`)
	d.sql(`INSERT INTO outbox (id) VALUES ({alone}); UPDATE outbox SET type = 'changed' WHERE id = {alone}`)
	dry := func(order string) {
		t.Helper()
		if out := d.rig.ok("recover", "--dry-run"); !strings.Contains(out, "order: "+order) {
			t.Errorf("the order is to be %s: %s", order, out)
		}
	}
	dry("commit timestamps")
	// who came first is not known of rows that their own transaction changed, and is said of all
	for flags, says := range map[string]string{"": "3 rows have their key and transaction with others", "--order-by created_at": "3 rows have the same created_at as others of their key"} {
		if out := d.rig.ok(append([]string{"recover", "--dry-run"}, strings.Fields(flags)...)...); !strings.Contains(out, says) {
			t.Errorf("recover %s does not say %q: %s", flags, says, out)
		}
	}
	d.sql(`ALTER TABLE outbox ADD COLUMN seq bigserial`)
	dry("commit timestamps")
	d.sql(`UPDATE outbox SET type = 'changed' WHERE id = {b}`)
	dry("unknown")
	d.rig.refused(2, "recover", "order unknown", "or were changed since")
	d.rig.ok("recover", "--order-by", "seq")
	d.start()
	d.delivered()
	out := d.relay.Stdout()
	if a, b, c := strings.Index(out, d.id("a")), strings.Index(out, d.id("b")), strings.Index(out, d.id("c")); a > b || b > c {
		t.Errorf("they are sent at %d, %d and %d", a, b, c)
	}
}

// TestRecoverAfterManyTransactions: what was sent stays sent when ids of transactions begin again
// from the lowest, by their 32 bits.
func TestRecoverAfterManyTransactions(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	pg, err := pgserver.Start(ctx, pgserver.Options{NoFsync: true, Settings: map[string]string{"track_commit_timestamp": "on", "autovacuum_naptime": "1s"}})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	must(t, pg.CreateDatabase(ctx, "shop"))
	d := newDay(on(t, pg.URL("shop")))
	d.rig.more = "" // the rows stay
	d.start()
	d.sql(`INSERT INTO outbox (id) VALUES ({a}), ({b}), ({c})`)
	d.delivered()
	for i, name := range []string{"d", "e", "f"} {
		d.stop()
		d.sql(`SELECT pg_drop_replication_slot('{pub}')`)
		must(t, pg.SkipTransactions(ctx, uint32(i+1)*1100%4096)) // 1.15e9, 2.3e9, 3.5e9
		d.sql(`INSERT INTO outbox (id) VALUES ({` + name + `})`)
		if out := d.rig.ok("recover", "--unordered"); !strings.Contains(out, "recovered: 1 row copied") {
			t.Errorf("after %d: %s", i, out)
		}
		d.start()
		d.delivered()
		await.Until(t, "the databases to be frozen", func() bool {
			return ask[int](d.rig, `SELECT max(age(datfrozenxid))::int FROM pg_database`) < 900_000_000
		})
	}
	d.stop()
	for name := range d.all {
		if n := strings.Count(d.output, d.id(name)); n != 1 {
			t.Errorf("row %s is sent %d times", name, n)
		}
	}
}
