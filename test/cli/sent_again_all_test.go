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

// recoveredDays are the parts of TestUnsentRowsAreRecovered; unsent_nightly_test.go has more.
var recoveredDays = map[string]func(*day){
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
}

// TestUnsentRowsAreRecovered: what no slot has sent is sent by recover, whatever became of the
// tables, and what cannot be read is named.
func TestUnsentRowsAreRecovered(t *testing.T) {
	for name, steps := range recoveredDays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDay(bare(t))
			steps(d)
			d.control()
			d.judge()
		})
	}
}

// prepared is a server of which somebody has left a transaction prepared, in another database.
type prepared struct{ *pgserver.Postgres }

func startPrepared(t *testing.T) prepared {
	t.Helper()
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true, Settings: map[string]string{"max_prepared_transactions": "2"}})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	must(t, pg.CreateDatabase(await.Context(t), "other"))
	return prepared{pg}
}

func (p prepared) other(t *testing.T, sql string) {
	t.Helper()
	must(t, execOn(await.Context(t), p.URL("other"), sql))
}

func (p prepared) leave(t *testing.T) {
	t.Helper()
	p.other(t, `BEGIN; CREATE TABLE held (); PREPARE TRANSACTION 'left behind'`)
}

func (p prepared) commit(t *testing.T) {
	t.Helper()
	p.other(t, `COMMIT PREPARED 'left behind'`)
	p.other(t, `DROP TABLE held`)
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

// The creation of a slot, and WAL that a slot keeps, wait for it. The parts are one after the
// other: it holds up all slots of the server.
func TestPreparedTransactionIsNamed(t *testing.T) {
	t.Parallel()
	p := startPrepared(t)
	t.Run("init --backfill", func(t *testing.T) {
		d := newDay(on(t, p.Database(t)))
		d.unsent(`INSERT INTO outbox (id) VALUES ({a})`)
		p.leave(t)
		p.holdsUp(d, "init", "--backfill", "--unordered")
	})
	t.Run("WAL", func(t *testing.T) { p.keepsWAL(newDay(on(t, p.Database(t)))) })
}

// holdsUp has a command wait. One that is ended meanwhile leaves nothing half-made, or the next one
// finishes it.
func (p prepared) holdsUp(d *day, args ...string) {
	t := d.rig.t
	t.Helper()
	if err := d.waiting(args...)(syscall.SIGINT); err == nil {
		t.Error("it succeeds although it was interrupted")
	}
	becomes(d.rig, false, `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)`, d.rig.slot)
	if err := d.waiting(args...)(syscall.SIGKILL); err == nil {
		t.Error("it succeeds although it was killed")
	}
	half := ask[int](d.rig, `SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1`, d.rig.slot)
	end := "SELECT pg_terminate_backend(" + strconv.Itoa(half) + ")"
	if check := d.rig.command("check").Stdout; args[0] == "init" && (!strings.Contains(check, leftBehind) || !strings.Contains(check, end)) {
		t.Errorf("check does not name it: %s", check)
	}
	d.rig.refused(1, "teardown --yes", leftBehind, "ROLLBACK PREPARED 'left behind', in database other", end)
	next := d.waiting(args...)
	p.commit(t)
	must(t, next(0))
	d.start()
	d.delivered()
	d.judge()
	d.rig.ok("teardown", "--yes")
}

// The transaction that makes the slot keep WAL without lag is named, also if it is another
// database's.
func (p prepared) keepsWAL(d *day) {
	t := d.rig.t
	role := d.rig.slot
	d.rig.exec(`CREATE ROLE ` + role + ` LOGIN REPLICATION`)
	d.rig.ok("init", "--role", role)
	owner := d.rig.db
	d.rig.db, d.rig.more = as(owner, role, ""), ""
	if out := d.rig.ok("check"); strings.Contains(out, "open transactions") {
		t.Errorf("check names transactions although nothing waits for one: %s", out)
	}
	d.start()
	p.leave(t)
	p.other(t, `CREATE TABLE much AS SELECT repeat('x', 1000) FROM generate_series(1, 3000)`)
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
	p.commit(t)
	eventually(t, func() string {
		must(t, execOn(await.Context(t), owner, `CHECKPOINT; INSERT INTO outbox (id) VALUES (gen_random_uuid())`))
		if out := d.rig.ok("status"); strings.Contains(out, "keeps WAL until") {
			return "status still names one: " + out
		}
		return ""
	})
	d.stop()
	d.rig.db = owner
	d.rig.ok("teardown", "--yes")
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

// TestOrderOfChangedRows: an update changes which command wrote a row, so its place among the rows
// of its transaction is not known any more. A table that is written again keeps it.
func TestOrderOfChangedRows(t *testing.T) {
	t.Parallel()
	d := trackedDay(t)
	d.start()
	d.stop()
	d.sql(`SELECT pg_drop_replication_slot('{pub}')`)
	d.sql(`BEGIN; INSERT INTO outbox (id, created_at) VALUES ({a}, now()); INSERT INTO outbox (id, created_at) VALUES ({b}, now()); SAVEPOINT s; INSERT INTO outbox (id, created_at) VALUES ({c}, now()); COMMIT`)
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
