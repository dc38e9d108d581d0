//go:build testall

package replication

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Every character of every encoding that a database may have is converted as PostgreSQL converts
// it, in a text that has them all. Which those are is asked from the other side, where an encoding
// has characters of several bytes.
func TestEveryCharacter(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE FUNCTION pg_temp.encoded(codepoint int, encoding name) RETURNS bytea LANGUAGE plpgsql AS $$
		BEGIN RETURN convert_to(chr(codepoint), encoding); EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$`)
	b.exec(`CREATE FUNCTION pg_temp.convertible(c bytea, encoding name) RETURNS bytea LANGUAGE plpgsql AS $$
		BEGIN PERFORM convert(c, encoding, 'UTF8'); RETURN c; EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$`)
	// those that no database has are left out
	rows, err := b.conn.Query(await.Context(t), `SELECT pg_encoding_to_char(conforencoding) FROM pg_conversion WHERE condefault AND pg_encoding_to_char(contoencoding) = 'UTF8'
		AND pg_encoding_to_char(conforencoding) NOT IN ('SJIS', 'SHIFT_JIS_2004', 'BIG5', 'GBK', 'UHC', 'GB18030', 'JOHAB')`)
	await.Must(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	await.Must(t, err)
	for _, name := range names {
		var stored, want []byte
		if b.text(`SELECT pg_encoding_max_length(pg_char_to_encoding($1))::text`, name) == "1" {
			b.scan(&stored, `SELECT string_agg(pg_temp.convertible(set_byte('\x00', 0, n), $1), '') FROM generate_series(128, 255) n`, name)
		} else { // without surrogates, and planes 1 and above 2, where no encoding has any
			b.scan(&stored, `SELECT string_agg(pg_temp.convertible(pg_temp.encoded(n, $1), $1), '') FROM generate_series(x'80'::int, x'2a6d6'::int) n
				WHERE n NOT BETWEEN x'd800'::int AND x'dfff'::int AND n NOT BETWEEN x'10000'::int AND x'1ffff'::int
					AND (n < x'20000'::int OR pg_temp.encoded(x'2000b'::int, $1) IS NOT NULL)`, name)
		}
		b.scan(&want, `SELECT convert($1, $2, 'UTF8')`, stored, name)
		e := decode.NewEncoding(name, func(characters [][]byte) (utf8 [][]byte, err error) {
			b.scan(&utf8, `SELECT array(SELECT convert(c, $2, 'UTF8') FROM unnest($1::bytea[]) WITH ORDINALITY AS u(c, n) ORDER BY n)`, characters, name)
			return utf8, nil
		})
		got, err := e.Message(string(stored))
		await.Must(t, err)
		if len(want) < 128 || got != string(want) {
			t.Errorf("%s: %d bytes become %d, not the %d that PostgreSQL makes of them", name, len(stored), len(got), len(want))
		}
	}
	if len(names) < 30 {
		t.Errorf("only %d encodings: %q", len(names), names)
	}
}

// Names and defaults of the catalogue that the server cannot convert stop nothing: they are read as
// the stream has them, and a table that is listed is known in advance.
func TestCatalogueThatCannotBeConverted(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"SQL_ASCII", "WIN1252"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, servers.OwnPostgres(t).DatabaseOf(t, encoding))
			b.exec(`SET client_encoding = 'SQL_ASCII'`)
			b.exec("ALTER TABLE outbox ADD \"x\x81\" text, ADD y text DEFAULT 'x\x81', ADD z text DEFAULT 'z'; CREATE TABLE \"x\x81\" (t text)")
			b.exec("CREATE PUBLICATION p FOR TABLE outbox")
			b.cfg.Publication = "p"
			b.cfg.Columns, b.cfg.Shapes = []string{"y", "z"}, true
			r := b.streaming()
			b.insert("a")
			r.waitSeen("a")
			for _, column := range b.current().All()[0].Shape.Columns {
				if (column.Default != nil) != (column.Name == "z") {
					t.Errorf("the shape has %+v", column)
				}
			}
			b.exec("ALTER PUBLICATION p ADD TABLE \"x\x81\"")
			await.Until(t, "the warning of the table", func() bool {
				return b.logs.FilterMessage("the relay will stop at the next row that is not configured").Len() > 0
			})
			b.exec("INSERT INTO \"x\x81\" VALUES ('')")
			stop := b.wantStop(r.wait(), event.ExitOperator, "not_configured")
			if !strings.Contains(stop.What, `public.x\x81`) {
				t.Errorf("it stops because %s", stop.What)
			}
		})
	}
}
