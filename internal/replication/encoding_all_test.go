//go:build testall

package replication

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
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
				WHERE n NOT BETWEEN x'd800'::int AND x'dfff'::int AND n NOT BETWEEN x'10000'::int AND x'1ffff'::int`, name)
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
