// Databases whose encoding is not UTF-8.

package replication

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
)

// Rows, names and prefixes of an encoding in which each byte is a character arrive in UTF-8: the
// server converts them. A text that has every byte stops nothing.
func TestDatabaseOfAnotherEncoding(t *testing.T) {
	t.Parallel()
	b := newBench(t, servers.OwnPostgres(t).DatabaseOf(t, "LATIN1"))
	for _, sql := range []string{
		`SET client_encoding = 'UTF8'`,
		`DROP TABLE outbox`, `CREATE TABLE "grün" (id text PRIMARY KEY, "grün" text, payload text, note text DEFAULT 'für')`, `CREATE TABLE other (t text)`,
		`CREATE PUBLICATION "grün" FOR TABLE "grün", other`,
	} {
		b.exec(sql)
	}
	b.cfg.Publication, b.cfg.Columns, b.cfg.Shapes = "grün", []string{"note"}, true
	b.cfg.Tables[0].Name = "grün"
	b.cfg.Tables[0].Mapping.Key = decode.Names{Any: []string{"grün"}}
	b.cfg.Messages = decode.Messages{Prefix: "grün", Mapping: b.cfg.Tables[0].Mapping}
	b.wantLine(check.LevelOK, "encoding")
	r := b.streaming()
	b.exec(`CREATE FUNCTION pg_temp.every() RETURNS text LANGUAGE sql AS
		$$ SELECT convert_from(string_agg(set_byte('\x00', 0, n), ''), 'LATIN1') FROM generate_series(1, 255) n $$`)
	b.exec(`BEGIN;
		INSERT INTO "grün" VALUES ('grün 1', 'grün', pg_temp.every());
		INSERT INTO other VALUES (pg_temp.every());
		SELECT pg_logical_emit_message(true, pg_temp.every(), '');
		SELECT pg_logical_emit_message(true, 'grün', convert_to('{"id": "grün 2", "grün": "grün", "payload": "ä"}', 'UTF8'));
		COMMIT`)
	r.waitSeen("grün 2")
	r.endClean()
	b.wantSeen("grün 1", "grün 2")
	var every []rune
	for n := rune(1); n <= 255; n++ {
		every = append(every, n)
	}
	for i, payload := range []string{string(every), `"ä"`} {
		if ev := b.current().All()[i]; ev.Key != "grün" || ev.Payload != payload || ev.Fault != "" {
			t.Errorf("event %d: %+v, want payload %q", i, ev, payload)
		}
	}
	columns := b.current().All()[0].Shape.Columns
	if d := columns[3].Default; columns[1].Name != "grün" || d == nil || *d != "'für'::text" {
		t.Errorf("the shape has %+v", columns)
	}
}

// A database whose text has no encoding is refused, before anything is made in it.
func TestNoEncoding(t *testing.T) {
	t.Parallel()
	b := newBench(t, servers.OwnPostgres(t).DatabaseOf(t, "SQL_ASCII"))
	b.wantLine(check.LevelFail, "encoding", "SQL_ASCII")
	b.wantStop(setup.Init(await.Context(t), b.cfg, setup.InitOptions{}), event.ExitFailure, "encoding", "ENCODING 'UTF8'")
	b.wantStop(b.run().wait(), event.ExitFailure, "encoding")
	if n := b.text(`SELECT count(*)::text FROM pg_namespace WHERE nspname = 'cdc_relay'`); n != "0" {
		t.Error("it was refused, and the schema was made")
	}
}

// A row that the server cannot convert stops the stream in front of it, and the log has the fix.
func TestRowThatCannotBeConverted(t *testing.T) {
	t.Parallel()
	b := newBench(t, servers.OwnPostgres(t).DatabaseOf(t, "WIN1252"))
	b.wantLine(check.LevelWarn, "encoding", "WIN1252")
	r := b.streaming()
	b.exec(`SET client_encoding = 'UTF8'`)
	b.insert("ä")
	r.waitSeen("ä")
	b.exec(`INSERT INTO outbox VALUES (E'\x81', '{}')`)
	b.insert("behind it")
	r.waitHeld("run `cdc-relay recover`")
	r.endClean()
	b.wantSeen("ä")
}
