package replication

import (
	"context"
	"crypto/rand"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

var gap = regexp.MustCompile(`rows committed between ([0-9A-F]+/[0-9A-F]+) and ([0-9A-F]+/[0-9A-F]+) may be missing`)

// changed runs a change and returns positions before and after it: the relay may check at any
// moment between two statements.
func (b *bench) changed(sql ...string) (before, after string) {
	b.t.Helper()
	const position = `SELECT pg_current_wal_insert_lsn()::text`
	before = b.text(position)
	for _, s := range sql {
		b.exec(s)
	}
	return before, b.text(position)
}

// wantGap wants the stop to name a gap in which a change between the positions may lie.
func (b *bench) wantGap(stop *event.Stop, before, after string) {
	b.t.Helper()
	m := gap.FindStringSubmatch(stop.What)
	if m == nil {
		b.t.Fatalf("no gap is named: %s", stop.What)
	}
	if b.text(`SELECT ($1::pg_lsn <= $4::pg_lsn AND $2::pg_lsn >= $3::pg_lsn)::text`, before, after, m[1], m[2]) != "true" {
		b.t.Errorf("the gap does not hold %s to %s: %s", before, after, stop.What)
	}
}

// What happens to publication and tables while the relay runs ends it, and names from where rows
// may be missing.
func TestChangesThatHideRows(t *testing.T) {
	changesThatHideRows(t, map[string]hidingChange{
		"publication dropped":    {`DROP PUBLICATION p; INSERT INTO outbox VALUES ('lost', '{}')`, "publication", ""},
		"publication re-created": {`DROP PUBLICATION p; INSERT INTO outbox VALUES ('lost', '{}'); CREATE PUBLICATION p FOR TABLE outbox`, "publication", "DROP PUBLICATION IF EXISTS p"},
		"table taken out and put back": {`ALTER PUBLICATION p DROP TABLE outbox; INSERT INTO outbox VALUES ('lost', '{}');
			ALTER PUBLICATION p ADD TABLE outbox`, "publication", ""},
		"another table took the name": {`ALTER TABLE outbox RENAME TO old; CREATE TABLE outbox (id text PRIMARY KEY, payload jsonb); INSERT INTO outbox VALUES ('lost', '{}')`, "table", ""},
		"inserts taken out":           {`ALTER PUBLICATION p SET (publish = 'delete'); INSERT INTO outbox VALUES ('lost', '{}')`, "publication", ""},
	})
}

type hidingChange struct{ change, reason, fix string }

func changesThatHideRows(t *testing.T, changes map[string]hidingChange) {
	t.Parallel()
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			r := b.settledRun("a")
			before, after := b.changed(strings.Split(c.change, ";")...)
			stop := replicationtest.WantStop(t, r.wait(), event.ExitOperator, c.reason)
			b.wantGap(stop, before, after)
			b.waitFree()
			if c.fix != "" { // what stands in the way of running the printed statements as they are
				b.exec(c.fix)
			}
			if strings.Contains(stop.Fix, "ADD TABLE") && b.text(`SELECT count(*)::text FROM pg_publication_rel WHERE prrelid = 'outbox'::regclass`) == "1" {
				// the relay checked before it was put back
				b.exec(`ALTER PUBLICATION p DROP TABLE outbox`)
			}
			b.runFix(stop)
			b.goesOn("b")
		})
	}
}

func TestChangesThatHideRowsWhileDown(t *testing.T) {
	b := shared(t)
	b.settledRun("a").endClean()
	b.exec(`ALTER PUBLICATION p DROP TABLE outbox`)
	b.insert("lost")
	changed := b.text(`SELECT pg_current_wal_lsn()::text`)
	stop := replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "publication")
	b.wantGap(stop, changed, changed)
	b.runFix(stop)
	b.goesOn("b")
	b.exec(`DROP TABLE outbox`)
	changed = b.text(`SELECT pg_current_wal_lsn()::text`)
	b.wantGap(replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "table"), changed, changed)
}

// The same changes while no relay runs: what is found at the next start looks as before by its
// name.
func TestWhatWasMadeAgainWhileDown(t *testing.T) {
	recreatedWhileDown(t, map[string]unseenChange{
		"membership": {`ALTER PUBLICATION p DROP TABLE outbox; INSERT INTO outbox VALUES ('lost', '{}'); ALTER PUBLICATION p ADD TABLE outbox`, "publication", "put back"},
		"name": {`ALTER TABLE outbox RENAME TO old; CREATE TABLE outbox (id text PRIMARY KEY, payload jsonb); INSERT INTO outbox VALUES ('lost', '{}');
			ALTER PUBLICATION p ADD TABLE outbox`, "table", "took its name"},
	})
}

type unseenChange struct{ change, reason, says string }

func recreatedWhileDown(t *testing.T, changes map[string]unseenChange) {
	t.Parallel()
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.settledRun("a").endClean()
			changed := b.text(`SELECT pg_current_wal_insert_lsn()::text`)
			for sql := range strings.SplitSeq(c.change, ";") {
				b.exec(sql)
			}
			var stop *event.Stop
			for range 2 { // it is not taken for granted the second time
				stop = replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, c.reason)
				if !strings.Contains(stop.What, c.says) {
					t.Errorf("%q is not said: %s", c.says, stop.What)
				}
				b.wantGap(stop, changed, changed)
			}
			replicationtest.WantStop(t, setup.Init(await.Context(t), b.cfg, setup.InitOptions{}), event.ExitOperator, c.reason)
			b.runFix(stop)
			b.goesOn("b")
		})
	}
}

// version is the server's number, as in 150004.
func (b *bench) version() string {
	b.t.Helper()
	return b.text(`SELECT current_setting('server_version_num')`)
}

// since15 runs what PostgreSQL has had since 15, and reports that it did. Before, there is nothing
// to test but that the server does not know it.
func (b *bench) since15(sql string) bool {
	b.t.Helper()
	if b.version() >= "150000" {
		b.exec(sql)
		return true
	}
	if _, err := b.conn.Exec(await.Context(b.t), sql); source.SQLState(err) != "42601" {
		b.t.Errorf("%s: %v, want a syntax error", sql, err)
	}
	return false
}

// A row filter hides rows, so it is refused: at the first start, while running, and when it came
// while no relay ran.
func TestRowFilter(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE other (t text)`)
	if !b.since15(`CREATE PUBLICATION p FOR TABLE outbox WHERE (id <> 'hidden'), other WITH (publish = 'insert')`) {
		return
	}
	wantFilter := func(err error) *event.Stop {
		t.Helper()
		stop := replicationtest.WantStop(t, err, event.ExitOperator, "publication")
		if !strings.Contains(stop.What, "id <> 'hidden'") {
			t.Errorf("the filter is not named: %s", stop.What)
		}
		return stop
	}
	stop := wantFilter(b.run().wait())
	if strings.Contains(stop.Fix, "adopt") {
		t.Errorf("there is nothing to adopt yet: %s", stop.Fix)
	}
	b.runFix(stop)
	if b.text(`SELECT count(*)::text FROM pg_publication_rel`) != "2" {
		t.Error("the fix took another table out")
	}
	r := b.settledRun("a")
	before, after := b.changed(`ALTER PUBLICATION p SET TABLE outbox WHERE (id <> 'hidden')`)
	b.insert("hidden")
	stop = wantFilter(r.wait())
	b.wantGap(stop, before, after)
	b.runFix(stop)
	b.goesOn("b")
	b.exec(`ALTER PUBLICATION p SET TABLE outbox WHERE (id <> 'hidden')`)
	b.runFix(wantFilter(b.run().wait()))
	b.goesOn("c")
	b.exec(`ALTER PUBLICATION p SET TABLE outbox WHERE (id <> 'hidden')`) // there and away again
	b.exec(`ALTER PUBLICATION p SET TABLE outbox`)
	b.runFix(replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "publication"))
	b.goesOn("d")
}

// A column list is refused when it hides a mapped column, an optional one and one of several names
// too, and is no matter otherwise.
func TestColumnList(t *testing.T) {
	b := shared(t)
	b.exec(`ALTER TABLE outbox ADD COLUMN traceparent text, ADD COLUMN note text`)
	b.cfg.Tables[0].Mapping.Payload = decode.Names{Any: []string{"body", "payload"}}
	b.cfg.Tables[0].Mapping.Traceparent = decode.Names{Any: []string{"trace", "traceparent"}, Optional: true}
	if !b.since15(`CREATE PUBLICATION p FOR TABLE outbox (id, note)`) {
		return
	}
	wantList := func(err error, column string) *event.Stop {
		t.Helper()
		stop := replicationtest.WantStop(t, err, event.ExitOperator, "publication")
		if !strings.Contains(stop.What, "column list is without "+column) {
			t.Errorf("column %s and the list are not named: %s", column, stop.What)
		}
		return stop
	}
	wantList(b.run().wait(), "payload, traceparent")
	b.wantFinding("publication", "column list is without payload", "ADD TABLE")
	b.exec(`ALTER PUBLICATION p SET TABLE outbox (id, payload)`)
	b.runFix(wantList(b.run().wait(), "traceparent"))
	b.exec(`ALTER PUBLICATION p SET TABLE outbox (id, payload, traceparent)`)
	r := b.settledRun("a")
	r.waitChecked()
	before, after := b.changed(`ALTER PUBLICATION p SET TABLE outbox (id, payload)`)
	b.insert("b")
	stop := wantList(r.wait(), "traceparent")
	b.wantGap(stop, before, after)
	b.runFix(stop)
	b.goesOn("c")
	b.exec(`ALTER PUBLICATION p SET TABLE outbox (id, payload, traceparent)`)
	b.exec(`ALTER TABLE outbox ADD COLUMN body jsonb`)
	b.runFix(wantList(b.run().wait(), "body"))
	b.goesOn("d")
}

// Before PostgreSQL 18 a generated column is never sent, from it on when the publication says so.
func TestGeneratedColumn(t *testing.T) {
	t.Parallel()
	for name, mapped := range map[string]func(m *decode.Mapping){
		"required": func(m *decode.Mapping) { m.Payload = decode.Names{Any: []string{"body"}} },
		"optional": func(m *decode.Mapping) { m.Type = decode.Names{Any: []string{"body"}, Optional: true} },
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.exec(`ALTER TABLE outbox ADD COLUMN body text GENERATED ALWAYS AS (upper(id)) STORED`)
			b.goesOn("ordinary") // one that is not mapped is no matter
			mapped(&b.cfg.Tables[0].Mapping)
			b.wantFinding("tables", "body is a generated column", "another column")
			for range 2 {
				stop := replicationtest.WantStop(t, b.run().wait(), event.ExitMapping, "mapping")
				if !strings.Contains(stop.What, "body is a generated column") {
					t.Errorf("the column is not named: %s", stop.What)
				}
			}
			replicationtest.WantStop(t, setup.Init(await.Context(t), b.cfg, setup.InitOptions{}), event.ExitMapping, "mapping")
			if b.version() >= "180000" {
				b.exec(`ALTER PUBLICATION p SET (publish_generated_columns = stored)`)
				// as the fix says
				b.exec(`UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = $1`, b.cfg.Slot)
			} else {
				b.exec(`ALTER TABLE outbox ALTER COLUMN body DROP EXPRESSION`)
			}
			b.goesOn("b")
		})
	}
}

// The rows of a table that inherits from ours are sent under its own name.
func TestTableThatIsInheritedFrom(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE heir () INHERITS (outbox)`)
	b.exec(`CREATE TABLE "heir's heir" () INHERITS (heir)`)
	stop := replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "table")
	if !strings.Contains(stop.What, "public.heir, public.heir's heir") || !strings.Contains(stop.Fix, "source.tables") {
		t.Errorf("the tables and the fix are not named: %s; %s", stop.What, stop.Fix)
	}
	if got := b.count(); got != "0 slots, 1 publications, 1 schemas" {
		t.Error(got)
	}
	b.wantFinding("publication", "public.heir", "NO INHERIT")
	heir := b.cfg.Tables[0]
	heir.Name, heir.OID = "heir", 0
	b.cfg.Tables = append(b.cfg.Tables, heir)
	b.exec(`ALTER TABLE "heir's heir" NO INHERIT heir`)
	r := b.settledRun("a")
	b.exec(`INSERT INTO heir VALUES ('of the heir', '{}')`)
	r.waitSeen("of the heir")
	before, after := b.changed(`CREATE TABLE late () INHERITS (outbox)`)
	stop = replicationtest.WantStop(t, r.wait(), event.ExitOperator, "table")
	b.wantGap(stop, before, after)
	b.exec(`ALTER TABLE late NO INHERIT outbox`)
	b.goesOn("b")
}

// A publication that is missing where a row is decoded is told by the server itself, and heard at
// once: an error before PostgreSQL 18, a warning from it on. (Without a row the next check finds it
// out.)
func TestServerTellsThatThePublicationIsMissing(t *testing.T) {
	b := shared(t)
	r := b.settledRun("a")
	started := r.s.common.Good()
	await.Until(t, "a check, after which the next one is some seconds away", func() bool { return r.s.common.Good() > started })
	b.exec(`DROP PUBLICATION p`)
	b.insert("lost")
	stop := replicationtest.WantStop(t, r.wait(), event.ExitOperator, "publication")
	says := "was dropped"
	if b.version() >= "180000" {
		says = "is no longer used by the server"
	}
	if !strings.Contains(stop.What, says) {
		t.Errorf("%q is not said: %s", says, stop.What)
	}
}

// The relay was killed between the loss and its next check: the gap begins at the last good check,
// not at the slot's position, which went on without the rows.
func TestGapAcrossARestart(t *testing.T) {
	b := shared(t)
	p := b.through()
	r := b.settledRun("a")
	started := r.s.common.Good()
	await.Until(t, "a check, after which the next one is some seconds away", func() bool { return r.s.common.Good() > started })
	checked := r.s.common.Good()
	b.exec(`ALTER PUBLICATION p DROP TABLE outbox`)
	changed := b.text(`SELECT pg_current_wal_insert_lsn()::text`)
	b.insert("lost")
	b.exec(`ALTER PUBLICATION p ADD TABLE outbox`)
	b.insert("b") // comes with the slot's position behind the lost one
	r.waitSeen("b")
	await.Until(t, "event b to be reported", func() bool { return b.confirmedFlush() >= b.current().OwnWatermark() })
	r.crash(p)
	b.waitFree()
	if b.text(`SELECT ($1::pg_lsn < $2::pg_lsn)::text`, changed, b.confirmedFlush().String()) != "true" {
		t.Fatal("the slot does not stand behind the gap: this test shows nothing")
	}
	if good := b.text(`SELECT good::text FROM cdc_relay.progress`); good != checked.String() {
		t.Errorf("the last good check was at %s, written down is %s", checked, good)
	}
	b.wantGap(replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "publication"), changed, changed)
}

// waitChecked returns after the monitor has made a whole check of what is there now.
func (r *running) waitChecked() {
	r.b.t.Helper()
	for range 2 { // the first one may have been under way
		last := r.s.Snapshot().Slot.Checked
		await.Until(r.b.t, "a check", func() bool { return r.s.Snapshot().Slot.Checked.After(last) })
	}
	if p := r.s.Snapshot().Phase; p != survey.Streaming {
		r.b.t.Fatalf("phase %s after the check: %v", p, r.s.Snapshot().Why)
	}
}

func TestPartitionedTable(t *testing.T) {
	b := shared(t)
	b.exec(`DROP TABLE outbox`)
	b.exec(`CREATE TABLE outbox (id text, payload jsonb) PARTITION BY HASH (id)`)
	b.exec(`CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 0)`)
	b.exec(`CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 1)`)
	b.exec(`CREATE PUBLICATION p FOR TABLE outbox`)
	b.runFix(replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "publication"))
	r := b.run()
	r.waitPhase(survey.Streaming)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		b.insert(id)
	}
	r.waitSeen("a", "b", "c", "d", "e")
	b.exec(`ALTER PUBLICATION p SET (publish_via_partition_root = false)`)
	replicationtest.WantStop(t, r.wait(), event.ExitOperator, "publication")
}

// The mapping no longer fits: no row of the new shape passes, neither now nor at the next start,
// and what came before is settled and reported.
func TestColumnDroppedWhileRunning(t *testing.T) {
	b := shared(t)
	r := b.settledRun("a")
	b.exec(`ALTER TABLE outbox DROP COLUMN payload`)
	b.exec(`INSERT INTO outbox VALUES ('b')`)
	stop := replicationtest.WantStop(t, r.wait(), event.ExitMapping, "mapping")
	if !strings.Contains(stop.What, "public.outbox") || !strings.Contains(stop.What, `"payload"`) {
		t.Errorf("table and column are not named: %s", stop.What)
	}
	if seen := b.current().Seen(); !slices.Equal(seen, []string{"a"}) {
		t.Errorf("passed: %v", seen)
	}
	replicationtest.WantStop(t, b.run().wait(), event.ExitMapping, "mapping")
	b.exec(`ALTER TABLE outbox ADD COLUMN payload jsonb`)
	// The row that was committed without the column is still to come, and still does not fit.
	stop = replicationtest.WantStop(t, b.run().wait(), event.ExitMapping, "mapping")
	if !strings.Contains(stop.Fix, "changing the table back is not enough") {
		t.Errorf("the fix is another: %s", stop.Fix)
	}
	// The last resort of docs/operations.md.
	b.waitFree()
	b.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, b.cfg.Slot)
	b.exec(`UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = $1`, b.cfg.Slot)
	b.goesOn("c")
}

// newRole makes a role that may log in, with a name of its own, and returns the address of a
// database for it.
func newRole(t *testing.T, attributes string) (role string, as func(url string) string) {
	t.Helper()
	exec := func(sql string) {
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, servers.OwnPostgres(t).URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	role = "r" + strings.ToLower(rand.Text()[:12])
	exec("CREATE ROLE " + role + " LOGIN " + attributes)
	t.Cleanup(func() { exec("DROP ROLE " + role) })
	return role, func(text string) string {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(role)
		return u.String()
	}
}

// What a role's settings say about formats, durability and time-outs is not for the relay.
func TestSettingsOfTheRoleHaveNoEffect(t *testing.T) {
	t.Parallel()
	role, as := newRole(t, "SUPERUSER")
	b := newBench(t, servers.OwnPostgres(t).Database(t))
	database := b.text(`SELECT current_database()`)
	for _, setting := range []string{
		"bytea_output = escape", "datestyle = 'German'", "timezone = 'Asia/Tokyo'", "intervalstyle = iso_8601", "extra_float_digits = -15",
		"client_encoding = latin1", "synchronous_commit = off", "default_transaction_read_only = on", "search_path = nowhere",
		"statement_timeout = 1", "lock_timeout = 1", "idle_session_timeout = 1", "idle_in_transaction_session_timeout = 1",
		"client_min_messages = error", "standard_conforming_strings = off", "default_transaction_isolation = serializable",
	} {
		// other tests' checks see those for all databases
		b.exec("ALTER ROLE " + role + " IN DATABASE " + database + " SET " + setting)
	}
	b.exec(`DROP TABLE outbox`)
	b.exec(`CREATE TABLE outbox (id text PRIMARY KEY, payload bytea, at timestamptz, for_how_long interval, ratio float8)`)
	b.cfg.URL = as(b.url)
	b.cfg.Tables[0].Mapping.Payload = decode.Names{Any: []string{"payload"}}
	b.cfg.Columns = []string{"at", "for_how_long", "ratio"}
	b.cfg.Publication = `back\slash "and" 'quotes'`
	tx, err := b.connect().Begin(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(await.Context(t), `SELECT txid_current()`); err != nil {
		t.Fatal(err)
	}
	r := b.run()
	b.waitCreating() // which takes longer than any of those time-outs
	if err := tx.Commit(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	r.waitPhase(survey.Streaming)
	if n := b.waits(); n > 0 {
		t.Errorf("waited %d times, for nothing", n)
	}
	b.exec(`INSERT INTO outbox VALUES ('grün €', '\x00ff5c27', '2026-11-20 12:30:00+00', '1 day 02:00', 0.1)`)
	r.waitSeen("grün €")
	got := b.current().Events[0]
	if got.Payload != "\x00\xff\\'" {
		t.Errorf("payload %q", got.Payload)
	}
	if want := []string{"2026-11-20 12:30:00+00", "1 day 02:00:00", "0.1"}; !slices.Equal(got.Columns, want) {
		t.Errorf("columns %q, want %q", got.Columns, want)
	}
	r.waitChecked()
	r.endClean()
	if n := r.sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
	for name, want := range map[string]string{"synchronous_commit": "on", "default_transaction_read_only": "off", "search_path": "pg_catalog", "client_min_messages": "warning"} {
		pool, err := source.ConnectPool(&b.cfg)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if err := pool.QueryRow(await.Context(t), `SELECT current_setting($1)`, name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s in the pool (%v)", name, got, err)
		}
		pool.Close()
	}
}
