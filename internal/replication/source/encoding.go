// The text of a database whose encoding is not UTF-8: how it is sent, and how it is converted. And
// what the catalogue has said of types.

package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
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
	err = Ask(ctx, q, "convert text from the database's encoding", `SELECT array(SELECT convert(c, current_setting('server_encoding')::name, 'UTF8') FROM unnest($1::bytea[]) WITH ORDINALITY AS u(c, n) ORDER BY n)`,
		characters).Scan(&utf8)
	switch SQLState(err) {
	case "22021", "22P05": // character_not_in_repertoire, untranslatable_character
		return nil, nil
	}
	if err != nil {
		return nil, err
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
	if err := Ask(ctx, q, "read server_encoding", `SELECT current_setting('server_encoding')`).Scan(&name); err != nil {
		return nil, err
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

// Types remembers types that are not PostgreSQL's own, by OID. What of them a shape has never
// changes, but for the labels of an enum. It is safe for concurrent use, and nil remembers nothing.
type Types struct {
	mu    sync.Mutex
	known map[uint32]event.ColumnShape
}

// maxTypes bounds them: a schema that is made again and again has new ones each time.
const maxTypes = 1000

// Remember notes what the type with that OID is in the shape of one of its columns.
func (t *Types) Remember(oid uint32, c *event.ColumnShape) {
	if t == nil || oid == c.TypeOID && c.Labels == nil && c.Type == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || len(t.known) >= maxTypes {
		t.known = map[uint32]event.ColumnShape{}
	}
	t.known[oid] = event.ColumnShape{TypeOID: c.TypeOID, Typmod: c.Typmod, Labels: slices.Clone(c.Labels), Type: c.Type}
}

// Recall completes the column from what is known of its type.
func (t *Types) Recall(c *event.ColumnShape) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok := t.known[c.TypeOID]
	if ok {
		c.TypeOID, c.Typmod, c.Labels, c.Type = known.TypeOID, known.Typmod, known.Labels, known.Type
	}
	return ok
}
