// The stand's own session with its database. One serves all polls of a test: a new session costs
// the server a process.

package stand

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

type session struct {
	mu   sync.Mutex
	conn *pgx.Conn
}

// open is the session, a new one when the last one was lost.
func (s *session) open(ctx context.Context, url string) (*pgx.Conn, error) {
	if s.conn != nil && s.conn.Ping(ctx) == nil {
		return s.conn, nil
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	// tests change tables between two statements
	config.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	s.conn, err = pgx.ConnectConfig(ctx, config)
	return s.conn, err
}

func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close(context.Background()) // the server may be gone
	}
}

// onDatabase does something in the stand's session.
func (s *Stand) onDatabase(do func(context.Context, *pgx.Conn) error) {
	s.T.Helper()
	s.sql.mu.Lock()
	defer s.sql.mu.Unlock()
	conn, err := s.sql.open(s.ctx, s.DB)
	if err == nil {
		err = do(s.ctx, conn)
	}
	await.Must(s.T, err)
}

// SQL runs statements on the database; several, without arguments, are one transaction.
func (s *Stand) SQL(sql string, args ...any) {
	s.T.Helper()
	s.onDatabase(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
}

// Query reads one row.
func (s *Stand) Query(into []any, sql string, args ...any) {
	s.T.Helper()
	s.onDatabase(func(ctx context.Context, conn *pgx.Conn) error { return conn.QueryRow(ctx, sql, args...).Scan(into...) })
}
