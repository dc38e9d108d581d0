//go:build testall

package cli

import (
	"fmt"
	"strings"
	"testing"

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

// movedDays are the parts of TestAnotherSystem; another_system_nightly_test.go has more.
var movedDays = map[string]func(*moved){
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
}

// TestAnotherSystem: a dump is restored, and an operator says whether all was delivered before.
func TestAnotherSystem(t *testing.T) {
	t.Parallel()
	s, number := &systems{t: t}, 0
	for name, steps := range movedDays {
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
}
