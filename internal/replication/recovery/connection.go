// Connections that are used for one thing, for as long as that takes.

package recovery

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// connect makes a connection with the pool's settings that is not the pool's.
func (r *run) connect(ctx context.Context) (*pgx.Conn, error) {
	cfg := r.pool.Config()
	if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	// of a leader: whoever follows it ends the session, with what it holds
	if err := cfg.AfterConnect(ctx, conn); err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// closeConn ends a connection, with the transaction that is open on it.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), source.AnswerTimeout)
	defer cancel()
	_ = conn.Close(ctx) // what was read is kept, and what is not committed is rolled back
}
