package replication

import (
	"context"
	"crypto/rand"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
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
		return b.wantStop(err, event.ExitOperator, "publication", "id <> 'hidden'")
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
}

// The relay was killed between the loss and its next check: the gap begins at the last good check,
// not at the slot's position, which went on without the rows.
func TestGapAcrossARestart(t *testing.T) {
	b := shared(t)
	p := b.through()
	r := b.settledRun("a")
	started := r.s.shared.Good()
	await.Until(t, "a check, after which the next one is some seconds away", func() bool { return r.s.shared.Good() > started })
	checked := r.s.shared.Good()
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
	b.wantGap(b.wantStop(b.run().wait(), event.ExitOperator, "publication"), changed, changed)
}

// waitChecked returns after the monitor has made a whole check of what is there now.
func (r *running) waitChecked() {
	r.b.t.Helper()
	for range 2 { // the first one may have been under way
		last := r.s.Snapshot().Slot.Checked
		await.Until(r.b.t, "a check", func() bool { return r.s.Snapshot().Slot.Checked.After(last) })
	}
	if p := r.s.Snapshot().Phase; p != slot.Streaming {
		r.b.t.Fatalf("phase %s after the check: %v", p, r.s.Snapshot().Why)
	}
}

// Another session has locked another table of the publication, as VACUUM FULL does. The relay
// starts, leads after another one, connects again and checks, meanwhile.
func TestOtherPublishedTableIsLocked(t *testing.T) {
	each(t, map[string]string{
		"list":       `FOR TABLE outbox, other`,
		"schema":     `FOR TABLES IN SCHEMA public`,
		"all tables": `FOR ALL TABLES`,
	}, func(t *testing.T, b *bench, sends string) {
		b.exec(`CREATE TABLE other (id int) PARTITION BY HASH (id)`)
		b.exec(`CREATE TABLE other_0 PARTITION OF other FOR VALUES WITH (MODULUS 1, REMAINDER 0)`)
		if sql := `CREATE PUBLICATION p ` + sends; !strings.Contains(sends, "SCHEMA") {
			b.exec(sql)
		} else if !b.since15(sql) {
			return
		}
		first := b.settledRun("a")
		second := b.another()
		var checks atomic.Int32
		second.cfg.Hooks.Monitor = func(atWork bool) {
			if !atWork {
				checks.Add(1)
			}
		}
		unlock := b.begin(`LOCK other IN ACCESS EXCLUSIVE MODE`)
		r := second.run()
		r.waitPhase(slot.Standby)
		first.endClean()
		r.waitPhase(slot.Streaming)
		b.exec(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
		await.Until(t, "a new session", func() bool { return r.sessions() == 2 })
		before := checks.Load()
		await.Until(t, "a check", func() bool { return checks.Load() > before })
		if lines := b.logs.FilterMessageSnippet("cannot check").All(); len(lines) > 0 {
			t.Errorf("the check failed: %v", lines[0].ContextMap())
		}
		b.insert("b")
		r.waitSeen("b")
		unlock()
		r.endClean()
	})
}

func TestPartitionedTable(t *testing.T) {
	b := shared(t)
	b.exec(`DROP TABLE outbox`)
	b.exec(`CREATE TABLE outbox (id text, payload jsonb) PARTITION BY HASH (id)`)
	b.exec(`CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 0)`)
	b.exec(`CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 1)`)
	b.exec(`CREATE PUBLICATION p FOR TABLE outbox`)
	b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "publication"))
	r := b.streaming()
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		b.insert(id)
	}
	r.waitSeen("a", "b", "c", "d", "e")
	b.exec(`ALTER PUBLICATION p SET (publish_via_partition_root = false)`)
	b.wantStop(r.wait(), event.ExitOperator, "publication")
}

// The mapping no longer fits: no row of the new shape passes, neither now nor at the next start,
// and what came before is settled and reported.
func TestColumnDroppedWhileRunning(t *testing.T) {
	b := shared(t)
	r := b.settledRun("a")
	b.exec(`ALTER TABLE outbox DROP COLUMN payload`)
	b.exec(`INSERT INTO outbox VALUES ('b')`)
	b.wantStop(r.wait(), event.ExitMapping, "mapping", "public.outbox", `"payload"`)
	b.wantSeen("a")
	b.wantStop(b.run().wait(), event.ExitMapping, "mapping")
	b.exec(`ALTER TABLE outbox DROP COLUMN tx, ADD COLUMN payload jsonb`)
	// The row that was committed without the column is still to come, and still does not fit.
	b.wantStop(b.run().wait(), event.ExitMapping, "mapping", "changing the table back is not enough")
	// The last resort of docs/failure-modes.md#after-exit-4.
	b.waitFree()
	b.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, b.cfg.Slot)
	b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "slot_moved"))
	b.goesOn("c")
}

// newRole makes a role that may log in, with a name of its own, and returns the address of a
// database for it.
func newRole(t *testing.T, attributes string) (role string, as func(url string) string) {
	t.Helper()
	exec := func(sql string) {
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, servers.OwnPostgres(t).URL("postgres"))
		await.Must(t, err)
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
		await.Must(t, err)
		u.User = url.User(role)
		return u.String()
	}
}

func TestPublicationAlteredThereAndBack(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][2]string{
		"inserts": {`ALTER PUBLICATION p SET (publish = 'delete')`, `ALTER PUBLICATION p SET (publish = 'insert')`},
		"name":    {`ALTER PUBLICATION p RENAME TO q`, `ALTER PUBLICATION q RENAME TO p`},
		"partition root": {
			`ALTER PUBLICATION p SET (publish_via_partition_root = false)`,
			`ALTER PUBLICATION p SET (publish_via_partition_root = true)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.exec(`DROP TABLE outbox`)
			b.exec(`CREATE TABLE outbox (id text, payload jsonb) PARTITION BY HASH (id)`)
			b.exec(`CREATE TABLE leaf PARTITION OF outbox FOR VALUES WITH (MODULUS 1, REMAINDER 0)`)
			b.goesOn("a")
			changed := b.text(`SELECT pg_current_wal_insert_lsn()::text`)
			b.exec(change[0])
			if name != "name" { // where the publication is missing the row ends the slot
				b.insert("lost")
			}
			b.exec(change[1])
			var stop *event.Stop
			for range 2 { // it is not taken for granted the second time
				stop = b.wantStop(b.run().wait(), event.ExitOperator, "publication")
				b.wantGap(stop, changed, changed)
				if !strings.Contains(stop.What, "was altered") {
					t.Errorf("it is not said what happened: %s", stop.What)
				}
			}
			b.wantFinding("publication", "was altered", "cdc-relay accept "+stop.Finding)
			b.runFix(stop)
			// what was committed meanwhile came under the partition's name
			if name == "partition root" {
				b.runFix(b.wantStop(b.run().endsBefore("lost"), event.ExitOperator, schema.NotConfigured))
			}
			r := b.settledRun("b")
			// at once: a relay that checks in between reports another fix
			b.exec(change[0] + `; ` + change[1])
			b.runFix(b.wantStop(r.wait(), event.ExitOperator, "publication"))
			b.goesOn("c")
		})
	}
}

// A column is replaced as docs/outbox.md says: the new one is added, old and new versions of the
// application write for a time, each its own, and in the end the old one is dropped. Every event
// has its key and its payload, whoever wrote it.
func TestColumnReplacedDuringARollout(t *testing.T) {
	b := shared(t)
	b.exec(`DROP TABLE outbox`)
	b.exec(`CREATE TABLE outbox (id text PRIMARY KEY, aggregateid text, payload jsonb)`)
	mapping := &b.cfg.Tables[0].Mapping
	mapping.Key = decode.Names{Any: []string{"customer_id", "aggregateid"}}
	mapping.Payload = decode.Names{Any: []string{"body", "payload"}}
	r := b.streaming()
	b.exec(`INSERT INTO outbox VALUES ('before', '42', '{"n": 1}')`)
	b.exec(`ALTER TABLE outbox ADD COLUMN customer_id bigint, ADD COLUMN body bytea`)
	b.exec(`INSERT INTO outbox (id, aggregateid, payload) VALUES ('old version', '42', '{"n": 2}')`)
	b.exec(`INSERT INTO outbox (id, customer_id, body) VALUES ('new version', 42, '{"n":3}')`)
	b.exec(`INSERT INTO outbox (id, aggregateid, payload, customer_id, body) VALUES ('both', '42', '{"n": 4}', 42, '{"n":4}')`)
	b.exec(`ALTER TABLE outbox DROP COLUMN aggregateid, DROP COLUMN payload`)
	b.exec(`INSERT INTO outbox (id, customer_id, body) VALUES ('after', 42, '{"n":5}')`)
	r.waitSeen("after")
	var got []string
	for _, e := range b.current().Events {
		got = append(got, e.Id+": "+e.Key+" "+e.Payload+e.Fault)
	}
	if want := []string{
		`before: 42 {"n": 1}`, `old version: 42 {"n": 2}`, `new version: 42 {"n":3}`, `both: 42 {"n":4}`, `after: 42 {"n":5}`,
	}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	r.endClean()
}

// A column that is used by default, where the table has it, is renamed under the relay. It stops
// before the first row without it, and what came before is settled and reported: so the next start
// goes on, with the new name too or without the column.
func TestDefaultColumnRenamedWhileRunning(t *testing.T) {
	type rename struct {
		headers decode.Names
		sent    string
	}
	each(t, map[string]rename{
		"both names":         {decode.Names{Any: []string{"headers", "message_headers"}}, `{"tenant": "c"}`},
		"without the column": {decode.Names{Any: []string{"headers"}, Optional: true}, ""},
	}, func(t *testing.T, b *bench, want rename) {
		b.exec(`ALTER TABLE outbox ADD COLUMN headers jsonb`)
		headers := &b.cfg.Tables[0].Mapping.Headers
		*headers = decode.Names{Any: []string{"headers"}, Optional: true}
		r := b.settledRun("a")
		b.exec(`INSERT INTO outbox (id, payload, headers) VALUES ('b', '{}', '{"tenant": "b"}')`)
		r.waitSeen("b")
		b.exec(`ALTER TABLE outbox RENAME headers TO message_headers`)
		b.exec(`INSERT INTO outbox (id, payload, message_headers) VALUES ('c', '{}', '{"tenant": "c"}')`)
		b.wantStop(r.wait(), event.ExitMapping, "mapping", `headers_column: column "headers" is gone`, "`headers_column: [headers, ...]`")
		if events := b.current().Events; len(events) != 2 || events[1].Headers != `{"tenant": "b"}` {
			t.Errorf("passed: %+v", events)
		}
		*headers = want.headers
		r = b.run()
		r.waitSeen("c")
		if events := b.current().Events; len(events) != 1 || events[0].Headers != want.sent {
			t.Errorf("passed: %+v, want c alone with the headers %s", events, want.sent)
		}
		r.endClean()
	})
}
