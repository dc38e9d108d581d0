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

// beginRead begins the transaction that reads whole tables, in a snapshot; "": one of its own.
// Nested loops would go through the sent set once per row, if its size is misjudged. While a large
// table is read the client is silent, and not idle.
func beginRead(ctx context.Context, conn *pgx.Conn, snapshot string) (pgx.Tx, error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, err
	}
	settings := "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = '1min'; SET LOCAL enable_nestloop = off; SET LOCAL jit = off"
	if snapshot != "" {
		settings = "SET TRANSACTION SNAPSHOT " + source.QuoteText(snapshot) + "; " + settings
	}
	_, err = tx.Exec(ctx, settings)
	return tx, err
}

// closeConn ends a connection, with the transaction that is open on it.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), source.AnswerTimeout)
	defer cancel()
	_ = conn.Close(ctx) // what was read is kept, and what is not committed is rolled back
}
