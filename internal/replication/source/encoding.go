// The text of a database whose encoding is not UTF-8: how it is sent, and how it is converted.

package source

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/decode"
)

// SendStored has the server send text on the replication connection as it is stored: see
// decode.Encoding. From now on what is sent to it must be in the database's encoding, too.
func SendStored(ctx context.Context, conn *pgconn.PgConn) error {
	if err := conn.Exec(ctx, "SET client_encoding = 'SQL_ASCII'").Close(); err != nil {
		return fmt.Errorf("set client_encoding: %w", err)
	}
	return nil
}

// Convert has the server convert characters of its own encoding to UTF-8. nil without an error: it
// refuses one of them.
func Convert(ctx context.Context, q Querier, characters [][]byte) (utf8 [][]byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	err = q.QueryRow(ctx, `SELECT array(SELECT convert(c, current_setting('server_encoding')::name, 'UTF8') FROM unnest($1::bytea[]) WITH ORDINALITY AS u(c, n) ORDER BY n)`,
		characters).Scan(&utf8)
	switch SQLState(err) {
	case "22021", "22P05": // character_not_in_repertoire, untranslatable_character
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("convert text from the database's encoding: %w", err)
	}
	return utf8, nil
}

// NewEncoding is decode.NewEncoding with Convert.
func NewEncoding(ctx context.Context, name string, q Querier) *decode.Encoding {
	return decode.NewEncoding(name, func(characters [][]byte) ([][]byte, error) { return Convert(ctx, q, characters) })
}

// EncodingOf is the Encoding of the database of q.
func EncodingOf(ctx context.Context, q Querier) (*decode.Encoding, error) {
	var name string
	if err := q.QueryRow(ctx, `SELECT current_setting('server_encoding')`).Scan(&name); err != nil {
		return nil, fmt.Errorf("read server_encoding: %w", err)
	}
	return NewEncoding(ctx, name, q), nil
}

// StoredSQL is an expression for the bytes of a text of the catalogue. The server fails at a name
// that it cannot convert, and the relay would never get further: an Encoding converts it, as it
// does the names in the stream.
func StoredSQL(text string) string { return "convert_to((" + text + ")::text, getdatabaseencoding())" }

// MakeReadable converts the texts of a server's error. What could not be converted is escaped.
func MakeReadable(e *decode.Encoding, err error) {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		for _, text := range []*string{&pgErr.Message, &pgErr.Detail, &pgErr.Hint} {
			*text, _ = e.Message(*text) //nolint:errcheck // the server's error is the one that counts
		}
	}
}
