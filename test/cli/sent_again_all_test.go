//go:build testall

package cli

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
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

// TestPreparedTransactionIsNamed: the creation of a slot waits for it, says so, and leaves nothing
// half-made when it is interrupted.
func TestPreparedTransactionIsNamed(t *testing.T) {
	t.Parallel()
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true, Settings: map[string]string{"max_prepared_transactions": "2"}})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	must(t, pg.CreateDatabase(await.Context(t), "shop"))
	d := newDay(on(t, pg.URL("shop")))
	d.rig.exec(`BEGIN; CREATE TABLE held (); PREPARE TRANSACTION 'left behind'`)
	file := filepath.Join(t.TempDir(), "cdc-relay.yaml")
	must(t, os.WriteFile(file, []byte(d.rig.yaml()), 0o600))
	init := exec.CommandContext(await.Context(t), d.rig.binary, "init", "-c", file)
	says, err := init.StderrPipe()
	must(t, err)
	must(t, init.Start())
	lines := bufio.NewScanner(says)
	named := false
	for !named && lines.Scan() {
		named = strings.Contains(lines.Text(), "prepared transaction 'left behind' of role postgres in database shop")
	}
	must(t, init.Process.Signal(syscall.SIGINT))
	_, err = io.Copy(io.Discard, says)
	must(t, err)
	if err := init.Wait(); err == nil || !named {
		t.Errorf("init ends with %v, the transaction is named: %t", err, named)
	}
	eventually(t, func() string {
		if ask[bool](d.rig, `SELECT EXISTS (SELECT FROM pg_replication_slots)`) {
			return "the slot is left half-made"
		}
		return ""
	})
	d.rig.exec(`COMMIT PREPARED 'left behind'`)
	d.start()
	d.control()
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
