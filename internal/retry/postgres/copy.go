// Copy writes rows that nobody has deferred: those of a gap, which are read from the outbox.

package postgres

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// Copy copies rows into the retry table, in the transaction that is open on conn, until next
// returns io.EOF. It has one row in memory, and what pgx sends at a time. A row is stored as Defer
// stores one that was never refused. There is no fence and no look at what is there: the caller's
// transaction has both.
//
// conn must be the caller's own, and never a pool's: it is taught that a pg_lsn is a number, also
// in what it reads from then on.
func (p *Store) Copy(ctx context.Context, conn *pgx.Conn, next func() (*store.Row, error)) (int64, error) {
	conn.TypeMap().RegisterType(&pgtype.Type{Name: "pg_lsn", OID: lsnOID, Codec: pgtype.Uint64Codec{}})
	source := copySource{store: p, as: storableBy(conn.PgConn()), next: next}
	n, err := conn.CopyFrom(ctx, pgx.Identifier{"cdc_relay", "retry"}, copyNames(), &source)
	if source.err != nil { // the server only knows that we gave up
		return n, source.err
	}
	if err != nil {
		return n, fmt.Errorf("copy rows into the retry table: %w", redacted{err})
	}
	return n, nil
}

const lsnOID = 3220

// copyNames are the columns of a copied row. The others have their defaults.
func copyNames() []string {
	return append([]string{"slot", "system_id", "next_attempt"}, strings.Split(fieldNames(), ", ")...)
}

// copySource gives pgx one row at a time.
type copySource struct {
	store *Store
	as    storable
	next  func() (*store.Row, error)
	row   *store.Row
	err   error
}

// Next implements pgx.CopyFromSource.
func (s *copySource) Next() bool {
	if s.row, s.err = s.next(); s.err == io.EOF { //nolint:errorlint // it is the end, and wrapped by nobody
		s.err = nil
		return false
	}
	return s.err == nil
}

// Values implements pgx.CopyFromSource.
func (s *copySource) Values() ([]any, error) {
	r := s.store.encode(s.row, s.as)
	values := make([]any, 0, 3+len(fields))
	values = append(values, s.store.c.Slot, s.store.c.SystemID, nilIfZero(s.row.NextAttempt))
	for _, f := range fields {
		if f.name == "commit_lsn" {
			values = append(values, uint64(s.row.Event.Position.Commit))
			continue
		}
		values = append(values, f.target(&r))
	}
	return values, nil
}

// Err implements pgx.CopyFromSource.
func (s *copySource) Err() error { return s.err }
