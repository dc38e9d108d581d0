//go:build testall

package replication

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// The schema's membership is one that can be interrupted too.
func TestSchemaTakenOutAndPutBack(t *testing.T) {
	b := shared(t)
	if !b.since15(`CREATE PUBLICATION p FOR TABLES IN SCHEMA public`) {
		return
	}
	r := b.settledRun("a")
	b.exec(`DROP TABLE outbox`)
	b.exec(`CREATE TABLE outbox (id text PRIMARY KEY, payload jsonb)`)
	b.insert("b")
	b.runFix(b.wantStop(r.wait(), event.ExitOperator, "table_replaced"))
	r = b.run()
	r.waitSeen("b")
	r.waitChecked()
	r.endClean()
	b.exec(`ALTER PUBLICATION p DROP TABLES IN SCHEMA public`)
	b.insert("lost")
	b.exec(`ALTER PUBLICATION p ADD TABLES IN SCHEMA public`)
	b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "publication"))
	b.goesOn("c")
}

// A check that cannot be made is named, once.
func TestCheckThatFails(t *testing.T) {
	b, role, owner := asRole(t, "REPLICATION")
	b.init(setup.InitOptions{URL: owner, Role: role})
	r := b.settledRun("a")
	b.exec(`REVOKE SELECT ON cdc_relay.slots FROM ` + role)
	r.waitChecked() // the slot's part of it
	await.Until(t, "a line", func() bool { return b.logs.FilterMessageSnippet("cannot check publication and tables").Len() > 0 })
	r.waitChecked()
	if lines := b.logs.FilterMessageSnippet("cannot check publication and tables").All(); len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0].ContextMap()["reason"]), "slots") {
		t.Errorf("lines: %v", lines)
	}
	b.exec(`GRANT SELECT ON cdc_relay.slots TO ` + role)
	r.endClean()
}

func TestChangesThatHideNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"renamed":                      `ALTER TABLE outbox RENAME TO outgoing; INSERT INTO outgoing VALUES ('b', '{}')`,
		"renamed, a view in its place": `ALTER TABLE outbox RENAME TO outgoing; CREATE VIEW outbox AS SELECT * FROM outgoing; INSERT INTO outbox VALUES ('b', '{}')`,
		"the publication as it was": `CREATE TABLE second (t text); ALTER PUBLICATION p SET TABLE outbox; ALTER PUBLICATION p ADD TABLE second;
			ALTER PUBLICATION p DROP TABLE second; COMMENT ON PUBLICATION p IS 'ours'; VACUUM (FREEZE) pg_publication;
			VACUUM (FULL, FREEZE) pg_publication; INSERT INTO outbox VALUES ('b', '{}')`,
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			r := b.settledRun("a")
			b.changed(strings.Split(change, ";")...)
			r.waitSeen("b")
			r.waitChecked()
			r.endClean()
			if name == "the publication as it was" {
				b.goesOn("c")
			}
		})
	}
}

// Under a profile a column has one name. As the fix and docs/failure-modes.md#after-exit-4 say, the
// rows of before go with the old name while the table has it, the ones behind them with the new
// one, and none is passed over.
func TestColumnRenamedUnderAProfile(t *testing.T) {
	b := shared(t)
	mapping := &b.cfg.Tables[0].Mapping
	mapping.Compat = true
	b.goesOn("a")
	b.insert("b")
	b.exec(`ALTER TABLE outbox RENAME payload TO body`)
	b.insert("c")
	// the table does not have the old name
	b.wantStop(b.run().wait(), event.ExitMapping, "mapping")
	mapping.Payload.Any = []string{"body"}
	// the first row does not have the new one
	stop := b.wantStop(b.run().wait(), event.ExitMapping, "mapping")
	if !strings.Contains(stop.Fix, "sink.compat.options") || strings.Contains(stop.Fix, "outbox:") || !strings.Contains(stop.What, "columns there: id, payload") {
		t.Errorf("%s; the fix: %s", stop.What, stop.Fix)
	}
	b.exec(`ALTER TABLE outbox RENAME body TO payload`)
	mapping.Payload.Any = []string{"payload"}
	r := b.run()
	// at the first row with the new name
	b.wantStop(r.wait(), event.ExitMapping, "mapping")
	b.wantSeen("b")
	b.exec(`ALTER TABLE outbox RENAME payload TO body`)
	mapping.Payload.Any = []string{"body"}
	b.delivers("c")
}

func TestTableMissing(t *testing.T) {
	b := shared(t)
	b.exec(`DROP TABLE outbox`)
	b.wantStop(b.run().wait(), event.ExitMapping, "table")
	b.exec(`CREATE TABLE outbox (id text PRIMARY KEY)`)
	b.wantStop(b.run().wait(), event.ExitMapping, "mapping")
	b.exec(`ALTER TABLE outbox ADD COLUMN payload jsonb`)
	b.goesOn("a")
}

// What happens to publication and tables while the relay runs ends it, and names from where rows
// may be missing.
func TestChangesThatHideRows(t *testing.T) {
	each(t, map[string]struct{ change, reason, says string }{
		"publication dropped, no row since":    {`DROP PUBLICATION p`, "publication", "does not exist"},
		"publication re-created":               {`DROP PUBLICATION p; INSERT INTO outbox VALUES ('lost', '{}'); CREATE PUBLICATION p FOR TABLE outbox`, "publication", ""},
		"publication re-created, no row since": {`DROP PUBLICATION p; SELECT pg_logical_emit_message(false, '', ''); CREATE PUBLICATION p FOR TABLE outbox`, "publication", ""},
		"table taken out":                      {`ALTER PUBLICATION p DROP TABLE outbox`, "publication", "does not contain table public.outbox"},
		"table taken out and put back":         {`ALTER PUBLICATION p DROP TABLE outbox; INSERT INTO outbox VALUES ('lost', '{}'); ALTER PUBLICATION p ADD TABLE outbox`, "publication", ""},
		"table re-created and added":           {`DROP TABLE outbox; ` + remadeOutbox + `; INSERT INTO outbox VALUES ('lost', '{}'); ALTER PUBLICATION p ADD TABLE outbox`, "table", ""},
		"another table took the name":          {`ALTER TABLE outbox RENAME TO old; ` + remadeOutbox + `; INSERT INTO outbox VALUES ('lost', '{}')`, "table", ""},
		"inserts taken out":                    {`ALTER PUBLICATION p SET (publish = 'delete'); INSERT INTO outbox VALUES ('lost', '{}')`, "publication", "does not publish inserts"},
	}, func(t *testing.T, b *bench, c struct{ change, reason, says string }) {
		r := b.settledRun("a")
		before, after := b.changed(strings.Split(c.change, ";")...)
		stop := b.wantStop(r.wait(), event.ExitOperator, c.reason, c.says)
		b.wantGap(stop, before, after)
		b.waitFree()
		if strings.Contains(stop.Fix, "ADD TABLE") && b.text(`SELECT count(*)::text FROM pg_publication_rel WHERE prrelid = 'outbox'::regclass`) == "1" {
			// the relay checked before it was put back
			b.exec(`ALTER PUBLICATION p DROP TABLE outbox`)
		}
		b.runFix(stop)
		b.goesOn("b")
	})
}

// Before PostgreSQL 18 a generated column is never sent, from it on when the publication says so.
func TestGeneratedColumn(t *testing.T) {
	each(t, map[string]func(m *decode.Mapping){
		"required": func(m *decode.Mapping) { m.Payload = decode.Names{Any: []string{"body"}} },
		"optional": func(m *decode.Mapping) { m.Type = decode.Names{Any: []string{"body"}, Optional: true} },
	}, func(t *testing.T, b *bench, mapped func(m *decode.Mapping)) {
		b.exec(`ALTER TABLE outbox ADD COLUMN body text GENERATED ALWAYS AS (upper(id)) STORED`)
		b.goesOn("ordinary") // one that is not mapped is no matter
		mapped(&b.cfg.Tables[0].Mapping)
		b.wantFinding("tables", "body is a generated column", "another column")
		for range 2 {
			b.wantStop(b.run().wait(), event.ExitMapping, "mapping", "body is a generated column")
		}
		b.wantStop(setup.Init(await.Context(t), b.cfg, setup.InitOptions{}), event.ExitMapping, "mapping")
		if b.version() >= "180000" {
			b.exec(`ALTER PUBLICATION p SET (publish_generated_columns = stored)`)
			b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "publication"))
		} else {
			b.exec(`ALTER TABLE outbox ALTER COLUMN body DROP EXPRESSION`)
		}
		b.goesOn("b")
	})
}

// The rows of a table that inherits from ours are sent under its own name.
func TestTableThatIsInheritedFrom(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE heir () INHERITS (outbox)`)
	b.exec(`CREATE TABLE "heir's heir" () INHERITS (heir)`)
	b.wantStop(b.run().wait(), event.ExitOperator, "table", "public.heir, public.heir's heir", "source.tables")
	b.wantCount("0 slots, 1 publications, 1 schemas")
	b.wantFinding("publication", "public.heir", "NO INHERIT")
	heir := b.cfg.Tables[0]
	heir.Name, heir.OID = "heir", 0
	b.cfg.Tables = append(b.cfg.Tables, heir)
	b.exec(`ALTER TABLE "heir's heir" NO INHERIT heir; ALTER PUBLICATION p ADD TABLE ONLY heir`)
	r := b.settledRun("a")
	b.exec(`INSERT INTO heir VALUES ('of the heir', '{}')`)
	r.waitSeen("of the heir")
	before, after := b.changed(`CREATE TABLE late () INHERITS (outbox)`)
	stop := b.wantStop(r.wait(), event.ExitOperator, "table")
	b.wantGap(stop, before, after)
	b.exec(`ALTER TABLE late NO INHERIT outbox`)
	b.goesOn("b")
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
	commit := b.begin(`SELECT txid_current()`)
	r := b.run()
	b.waitCreating() // which takes longer than any of those time-outs
	commit()
	r.waitPhase(slot.Streaming)
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
	// a session may end for want of an answer on a busy machine, and none by one of those time-outs
	for _, line := range b.logs.FilterMessageSnippet("waiting for PostgreSQL").All() {
		if why := fmt.Sprint(line.ContextMap()["reason"]); strings.Contains(why, "due to") {
			t.Errorf("a session ended: %s", why)
		}
	}
	for name, want := range map[string]string{"synchronous_commit": "on", "default_transaction_read_only": "off", "search_path": "pg_catalog", "client_min_messages": "warning"} {
		pool, err := source.ConnectPool(&b.cfg)
		await.Must(t, err)
		var got string
		if err := pool.QueryRow(await.Context(t), `SELECT current_setting($1)`, name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s in the pool (%v)", name, got, err)
		}
		pool.Close()
	}
}

// Rows keep the types that they were written with, whatever has become of their columns until they
// are read.
func TestShapeOfRowsBeforeAnAlteration(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TYPE moods AS ENUM ('sad', 'happy')`)
	b.exec(`CREATE DOMAIN amount AS numeric(9, 2)`)
	b.exec(`CREATE DOMAIN prices AS amount CHECK (VALUE > 0)`)
	b.exec(`ALTER TABLE outbox ADD mood moods, ADD price prices, ADD size varchar(7) NOT NULL DEFAULT 'xs'`)
	var oid uint32
	b.scan(&oid, `SELECT 'outbox'::regclass::oid`)
	var sent []event.ColumnShape
	for _, column := range []string{"mood", "price", "size"} {
		c := event.ColumnShape{Name: column}
		await.Must(t, b.conn.QueryRow(await.Context(t), `SELECT atttypid, atttypmod FROM pg_attribute WHERE attrelid = $1 AND attname = $2`, oid, column).Scan(&c.TypeOID, &c.Typmod))
		sent = append(sent, c)
	}
	for name, alter := range map[string]string{
		"as it was": `SELECT 1`,
		"altered":   `ALTER TABLE outbox ALTER mood TYPE text, ALTER price TYPE text`,
		"renamed":   `ALTER TABLE outbox RENAME mood TO m; ALTER TABLE outbox RENAME price TO p`,
		"dropped":   `ALTER TABLE outbox DROP mood, DROP price`,
		"no type":   `ALTER TABLE outbox DROP mood, ALTER price TYPE text; DROP TYPE moods; DROP DOMAIN prices`,
		"no table":  `DROP TABLE outbox`,
	} {
		known := new(source.Types)
		complete := func() []event.ColumnShape {
			shape := &event.Shape{Schema: "public", Table: "outbox", Columns: slices.Clone(sent)}
			await.Must(t, schema.CompleteShape(await.Context(t), b.conn, known, shape, oid))
			return shape.Columns
		}
		b.exec(`BEGIN`)
		complete()
		b.exec(alter)
		got := complete()
		b.exec(`ROLLBACK`)
		size := event.ColumnShape{Name: "size", TypeOID: pgtype.VarcharOID, Typmod: 7 + 4}
		if name != "no table" {
			extraSmall := "'xs'::character varying"
			size.NotNull, size.Default = true, &extraSmall
		}
		want := []event.ColumnShape{
			{Name: "mood", TypeOID: sent[0].TypeOID, Typmod: -1, Labels: []string{"sad", "happy"}},
			{Name: "price", TypeOID: pgtype.NumericOID, Typmod: 9<<16 | 2 + 4},
			size,
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// Of a type that nobody has seen before it was dropped, the stream's name is all that is known. A
// domain is its base type, unless that has digits; an enum is text; what Debezium has a form of its
// own for is refused by its name, as it is while the type exists.
func TestShapeOfTypesThatAreGone(t *testing.T) {
	b := shared(t)
	for _, c := range []struct {
		of   decode.TypeName
		want event.ColumnShape
	}{
		{decode.TypeName{Name: "jsonb"}, event.ColumnShape{TypeOID: pgtype.JSONBOID, Typmod: -1}},
		{decode.TypeName{Name: "timetz"}, event.ColumnShape{TypeOID: pgtype.TimetzOID, Typmod: -1, Type: "timetz"}},
		{decode.TypeName{Name: "_int4"}, event.ColumnShape{TypeOID: pgtype.Int4ArrayOID, Typmod: -1}},
		{decode.TypeName{Name: "numeric"}, event.ColumnShape{TypeOID: 99_999, Typmod: -1, Type: "numeric, in a domain that was dropped with its digits,"}},
		{decode.TypeName{Schema: "public", Name: "kind"}, event.ColumnShape{TypeOID: pgtype.TextOID, Typmod: -1}},
		{decode.TypeName{Schema: "app.v2", Name: "_kind"}, event.ColumnShape{TypeOID: 99_999, Typmod: -1, Type: "app.v2.kind[]"}},
		{decode.TypeName{Schema: "public", Name: "hstore"}, event.ColumnShape{TypeOID: 99_999, Typmod: -1, Type: "public.hstore"}},
	} {
		shape := &event.Shape{Columns: []event.ColumnShape{decode.NewColumn("c", 99_999, c.of).Shape(-1)}}
		await.Must(t, schema.CompleteShape(await.Context(t), b.conn, new(source.Types), shape, 99_999))
		got := shape.Columns[0]
		got.Name, got.Base = "", 0
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s is %+v, want %+v", c.of, got, c.want)
		}
	}
}

// A publication that is missing where a row is decoded is told by the server itself, and heard at
// once: an error before PostgreSQL 18, a warning from it on. (Without a row the next check finds it
// out.)
func TestServerTellsThatThePublicationIsMissing(t *testing.T) {
	b := shared(t)
	r := b.settledRun("a")
	started := r.s.shared.Good()
	await.Until(t, "a check, after which the next one is some seconds away", func() bool { return r.s.shared.Good() > started })
	b.exec(`DROP PUBLICATION p`)
	b.insert("lost")
	stop := b.wantStop(r.wait(), event.ExitOperator, "publication")
	says := "did not exist when rows"
	if b.version() >= "180000" {
		says = "is no longer used by the server"
	}
	if !strings.Contains(stop.What, says) {
		t.Errorf("%q is not said: %s", says, stop.What)
	}
}

// The same changes while no relay runs: what is found at the next start looks as before by its
// name.
func TestWhatWasMadeAgainWhileDown(t *testing.T) {
	each(t, map[string]struct{ change, reason, says string }{
		"taken out":    {`ALTER PUBLICATION p DROP TABLE outbox; INSERT INTO outbox VALUES ('lost', '{}')`, "publication", "ADD TABLE"},
		"membership":   {`ALTER PUBLICATION p DROP TABLE outbox; INSERT INTO outbox VALUES ('lost', '{}'); ALTER PUBLICATION p ADD TABLE outbox`, "publication", "put back"},
		"name":         {`ALTER TABLE outbox RENAME TO old; ` + remadeOutbox + `; INSERT INTO outbox VALUES ('lost', '{}'); ALTER PUBLICATION p ADD TABLE outbox`, "table", "took its name"},
		"publication":  {`DROP PUBLICATION p; SELECT pg_current_wal_lsn(); CREATE PUBLICATION p FOR TABLE outbox`, "publication", "created again"},
		"table, added": {`DROP TABLE outbox; ` + remadeOutbox + `; INSERT INTO outbox VALUES ('lost', '{}'); ALTER PUBLICATION p ADD TABLE outbox`, "table", "created again"},
	}, func(t *testing.T, b *bench, c struct{ change, reason, says string }) {
		b.goesOn("a")
		changed := b.text(`SELECT pg_current_wal_insert_lsn()::text`)
		for sql := range strings.SplitSeq(c.change, ";") {
			b.exec(sql)
		}
		var stop *event.Stop
		for range 2 { // it is not taken for granted the second time
			stop = b.wantStop(b.run().wait(), event.ExitOperator, c.reason, c.says)
			b.wantGap(stop, changed, changed)
		}
		b.wantStop(setup.Init(await.Context(t), b.cfg, setup.InitOptions{}), event.ExitOperator, c.reason)
		b.runFix(stop)
		b.goesOn("b")
	})
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
		return b.wantStop(err, event.ExitOperator, "publication", "column list is without "+column)
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
