//go:build testall

package cli

import (
	"crypto/md5"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// unsentDays are the parts of TestUnsentRowsStay; unsent_nightly_test.go has more.
var unsentDays = map[string]func(*day){
	"rows from before the slot, updated, and the table rewritten": func(d *day) {
		d.unsent(`INSERT INTO outbox VALUES ({a}), ({b}), ({c})`)
		d.rig.ok("init", "--no-backfill")
		d.start()
		d.sql(`UPDATE outbox SET type = 'u' WHERE id IN ({a}, {b})`, `ALTER TABLE outbox ADD COLUMN seq bigserial`)
	},
	"a table that left the configuration, and came back": func(d *day) {
		d.sql(`CREATE TABLE outbox_two (LIKE outbox INCLUDING ALL)`)
		d.rig.source = "  tables: [public.outbox, public.outbox_two]"
		d.start()
		d.sql(`INSERT INTO outbox_two VALUES ({sent})`)
		d.control()
		d.rig.source = ""
		d.restart()
		d.unsent(`INSERT INTO outbox_two VALUES ({a})`) // exit 3
		d.control()
		d.unsent(`INSERT INTO outbox_two VALUES ({b}), ({c})`)
		d.control()
		d.rig.source = "  tables: [public.outbox, public.outbox_two]"
		d.restart()
	},
	"a lost slot, and the table rewritten": func(d *day) {
		d.start()
		d.stop()
		d.sql(`SELECT pg_drop_replication_slot('{pub}')`)
		d.unsent(`INSERT INTO outbox VALUES ({a}), ({b})`)
		d.start()
		d.sql(`ALTER TABLE outbox ADD COLUMN seq bigserial`)
	},
	"inserts during a change of the publication": func(d *day) {
		d.start()
		d.stop()
		d.sql(`ALTER PUBLICATION {pub} DROP TABLE outbox`)
		ctx := await.Context(d.rig.t)
		conn, err := pgx.Connect(ctx, d.rig.db)
		must(d.rig.t, err)
		defer conn.Close(ctx)
		for _, sql := range []string{`BEGIN`, d.fill(`INSERT INTO outbox VALUES ({a})`)} {
			_, err = conn.Exec(ctx, sql)
			must(d.rig.t, err)
		}
		d.named["a"] = true
		d.sql(`ALTER PUBLICATION {pub} ADD TABLE outbox`)
		for _, sql := range []string{d.fill(`INSERT INTO outbox VALUES ({later})`), `COMMIT`} {
			_, err = conn.Exec(ctx, sql)
			must(d.rig.t, err)
		}
		d.start()
	},
	"a dead letter that was purged": func(d *day) {
		d.rig.source = "  max_event_bytes: 64KiB"
		d.start()
		d.unsent(`INSERT INTO outbox (id, payload) VALUES ({a}, to_jsonb(repeat('x', 100000)))`)
		d.control()
		for _, command := range []string{"discard", "purge"} {
			d.rig.ok("dead-letters", command, "--all", "--reason", "a test", "--wait", "60s")
		}
	},
	"partitions detached, filled and attached": func(d *day) {
		d.partitioned()
		d.sql(`BEGIN; INSERT INTO outbox (id, part) VALUES ({sent}, 1); ALTER TABLE outbox DETACH PARTITION outbox_2; COMMIT`)
		d.unsent(`INSERT INTO outbox_2 (id, part) VALUES ({a}, 2)`)
		d.sql(`ALTER TABLE outbox ATTACH PARTITION outbox_2 FOR VALUES IN (2)`)
		d.sql(`CREATE TABLE outbox_3 (LIKE outbox INCLUDING ALL)`)
		d.unsent(`BEGIN; INSERT INTO outbox_3 (id, part) VALUES ({b}, 3); INSERT INTO outbox (id, part) VALUES ({too}, 1); COMMIT`, "b")
		d.sql(`ALTER TABLE outbox ATTACH PARTITION outbox_3 FOR VALUES IN (3)`)
	},
	"rows that move between partitions": func(d *day) {
		d.partitioned()
		d.stop()
		d.sql(`ALTER PUBLICATION {pub} DROP TABLE outbox`)
		d.unsent(`INSERT INTO outbox (id, part) VALUES ({a}, 1); UPDATE outbox SET part = 2`)
		d.sql(`ALTER PUBLICATION {pub} ADD TABLE outbox`)
		d.start()
		d.sql(`INSERT INTO outbox (id, part) VALUES ({moved}, 2)`, `UPDATE outbox SET part = 1 WHERE id = {moved}`)
	},
}

// TestUnsentRowsStay: a relay deletes what it has delivered, at once. Whatever is done to the
// tables, the publication and the slot, a row that is gone in the end has been delivered, and each
// row that is named unsent is there. Findings of exit 3 are accepted as their message says.
func TestUnsentRowsStay(t *testing.T) {
	for name, steps := range unsentDays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDay(bare(t))
			steps(d)
			d.control()
			d.judge()
		})
	}
}

// day is what happens to a relay that deletes, and which rows there are: by the names that stand
// for their ids in the SQL.
type day struct {
	rig      *rig
	relay    *runner.Relay
	output   string          // of relays that have ended
	named    map[string]bool // rows that are never delivered
	all      map[string]bool
	controls int
	fix      string // SQL to go on with after exit 3 where no accept is offered
}

const deletesAtOnce = "retention: {mode: delete, keep: 0}"

// newDay begins with an outbox table whose columns have defaults.
func newDay(r *rig) *day {
	r.t.Helper()
	r.more = deletesAtOnce
	must(r.t, execOn(await.Context(r.t), r.db, load.OutboxTable))
	r.exec(`ALTER TABLE outbox ALTER aggregatetype SET DEFAULT 'a', ALTER aggregateid SET DEFAULT 'k', ALTER type SET DEFAULT 't'`)
	return &day{rig: r, named: map[string]bool{}, all: map[string]bool{}}
}

var rowName = regexp.MustCompile(`\{([a-z_0-9]+)\}`)

// id is that of the row with a name.
func (d *day) id(name string) string { return uuid.UUID(md5.Sum([]byte(name))).String() }

// fill puts ids in the place of names, and the publication, which has the slot's name.
func (d *day) fill(sql string) string {
	return rowName.ReplaceAllStringFunc(sql, func(name string) string {
		if name = name[1 : len(name)-1]; name == "pub" {
			return d.rig.slot
		}
		d.all[name] = true
		return "'" + d.id(name) + "'"
	})
}

func (d *day) sql(statements ...string) {
	d.rig.t.Helper()
	for _, sql := range statements {
		d.rig.exec(d.fill(sql))
	}
}

// unsent runs SQL whose rows, or those that are listed, are not delivered.
func (d *day) unsent(sql string, names ...string) {
	d.rig.t.Helper()
	d.sql(sql)
	if len(names) == 0 {
		for _, m := range rowName.FindAllStringSubmatch(sql, -1) {
			names = append(names, m[1])
		}
	}
	for _, name := range names {
		d.named[name] = true
	}
}

// partitioned makes the table one with two partitions, and starts.
func (d *day) partitioned() {
	d.rig.t.Helper()
	d.sql(`ALTER TABLE outbox RENAME TO former`, `CREATE TABLE outbox (LIKE former INCLUDING DEFAULTS, part int NOT NULL DEFAULT 1) PARTITION BY LIST (part)`,
		`CREATE INDEX ON outbox (tx)`, `CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1)`, `CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES IN (2)`, `DROP TABLE former`)
	d.rig.addTransactionColumn()
	d.start()
}

// start starts a relay, and waits until it is ready or has ended.
func (d *day) start() {
	d.rig.t.Helper()
	d.relay = runner.Start(d.rig.t, d.rig.binary, d.rig.yaml())
	if err := d.relay.WaitReady(await.Context(d.rig.t)); err != nil && d.relay.Running() {
		d.rig.t.Fatal(err)
	}
}

func (d *day) stop() {
	d.rig.t.Helper()
	d.relay.Stop(d.rig.t)
	d.output += d.relay.Stdout()
	d.rig.released()
}

func (d *day) restart() {
	d.rig.t.Helper()
	d.stop()
	d.start()
}

// control writes a row that is delivered and deleted, and waits for both: by then every earlier row
// that is to go has gone. A relay that ends with exit 3 goes on after an accept.
func (d *day) control() {
	d.rig.t.Helper()
	id := ""
	write := func() {
		d.controls++
		id = d.id(fmt.Sprint("control", d.controls))
		d.rig.exec(`INSERT INTO outbox (id) VALUES ($1)`, id)
	}
	write()
	eventually(d.rig.t, func() string {
		if !d.relay.Running() {
			d.accept()
			write() // the one before may be among what is missing
		}
		switch {
		case !strings.Contains(d.output+d.relay.Stdout(), id):
			return "the control row is not delivered: " + d.relay.Log()
		case ask[bool](d.rig, `SELECT EXISTS (SELECT FROM outbox WHERE id = $1)`, id):
			return "the control row is not deleted: " + d.relay.Log()
		}
		return ""
	})
}

// accept accepts the finding of a relay that has ended with exit 3, as its message says first, and
// starts it again.
func (d *day) accept() {
	d.rig.t.Helper()
	code, err := d.relay.Exit(await.Context(d.rig.t))
	must(d.rig.t, err)
	line := refusal(d.rig.t, runner.Result{Code: code, Stderr: d.relay.Log()}, 3)
	d.output += d.relay.Stdout()
	found := acceptLine.FindStringSubmatch(line)
	switch {
	case found == nil && d.fix == "":
		d.rig.t.Fatalf("no accept is offered: %s", line)
	case found == nil:
		d.sql(d.fix)
		d.start()
		return
	}
	d.rig.ok(append([]string{"accept", found[1], "--reason", "a test"}, strings.Fields(strings.ReplaceAll(found[2], "'", ""))...)...)
	d.rig.released()
	d.start()
}

// judge compares what is in the tables with what was delivered.
func (d *day) judge() {
	d.rig.t.Helper()
	d.stop()
	var there []string
	for _, table := range ask[[]string](d.rig, `SELECT array(SELECT format('%I.%I', nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
		WHERE relname LIKE 'outbox%' AND relkind = 'r')`) {
		there = append(there, ask[[]string](d.rig, `SELECT array(SELECT id::text FROM ONLY `+table+`)`)...)
	}
	for name := range d.all {
		id := d.id(name)
		switch kept, delivered := slices.Contains(there, id), strings.Contains(d.output, id); {
		case !kept && !delivered:
			d.rig.t.Errorf("row %s was deleted, and never delivered", name)
		case d.named[name] && !kept:
			d.rig.t.Errorf("row %s, which was to stay, was deleted", name)
		}
	}
}
