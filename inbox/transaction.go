// The two ways to the service's database: pgx, and database/sql with any driver. The other files
// use only the interfaces here, so that they work with both.

package inbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// connections are the connections to the service's database.
type connections interface {
	querier
	begin(ctx context.Context) (transaction, error)
	// maxConnections returns how many connections there may be; 0 means any number.
	maxConnections() int
}

// querier runs one statement at a time.
type querier interface {
	// exec returns how many rows the statement has changed.
	exec(ctx context.Context, query string, args ...any) (int64, error)
	// queryRow reads one row. Without a row its error is sql.ErrNoRows.
	queryRow(ctx context.Context, query string, args []any, into ...any) error
}

// transaction is the transaction in which a message is handled. Only one goroutine may use it.
type transaction interface {
	querier
	// callHandler calls the handler.
	callHandler(ctx context.Context, m Message) error
	// stateAfterHandler returns the state in which the handler has left the transaction.
	stateAfterHandler(ctx context.Context) txState
	commit(ctx context.Context) error
	// rollback ends the transaction if it was not committed, and gives the connection back. When it
	// cannot, it closes the connection, and the server rolls back.
	rollback(ctx context.Context)
	// discardConnection lets the connection be closed and not used again.
	discardConnection(ctx context.Context)
}

type txState int

const (
	txOpen    txState = iota
	txEnded           // the handler has ended it, and what it wrote may be there
	txAborted         // an error has aborted it, and COMMIT would roll back
	txLost            // the connection is lost
)

// cleanupTimeout is how long the end of a transaction may take after the time of its message is
// over.
const cleanupTimeout = 5 * time.Second

// cleanupContext returns a context for the end of a transaction, also when ctx has ended.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// The way by pgx.
type (
	pgxPool struct {
		pool    *pgxpool.Pool
		handler Handler
	}
	pgxTx struct {
		tx      pgx.Tx
		handler Handler
	}
)

func (p pgxPool) begin(ctx context.Context) (transaction, error) {
	tx, err := p.pool.Begin(ctx)
	return pgxTx{tx, p.handler}, err
}

func (p pgxPool) maxConnections() int { return int(p.pool.Config().MaxConns) }

func (p pgxPool) exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := p.pool.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

func (p pgxPool) queryRow(ctx context.Context, query string, args []any, into ...any) error {
	return p.pool.QueryRow(ctx, query, args...).Scan(into...)
}

func (t pgxTx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

func (t pgxTx) queryRow(ctx context.Context, query string, args []any, into ...any) error {
	return t.tx.QueryRow(ctx, query, args...).Scan(into...)
}

func (t pgxTx) callHandler(ctx context.Context, m Message) error {
	return t.handler(ctx, unendableTx{t.tx}, m)
}

func (t pgxTx) stateAfterHandler(context.Context) txState {
	switch conn := t.tx.Conn(); {
	case conn.PgConn().TxStatus() == 'I':
		return txEnded
	case conn.IsClosed():
		return txLost
	case conn.PgConn().TxStatus() == 'E':
		return txAborted
	}
	return txOpen
}

func (t pgxTx) commit(ctx context.Context) error { return t.tx.Commit(ctx) }

func (t pgxTx) rollback(ctx context.Context) {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	_ = t.tx.Rollback(ctx) //nolint:errcheck // then the connection is closed
}

func (t pgxTx) discardConnection(ctx context.Context) { _ = t.tx.Conn().Close(ctx) }

// unendableTx is a transaction that its user cannot end.
type unendableTx struct{ pgx.Tx }

var errHandlerEnds = errors.New("the inbox ends the transaction of a handler: return nil to commit it, an error to roll it back")

func (unendableTx) Commit(context.Context) error   { return errHandlerEnds }
func (unendableTx) Rollback(context.Context) error { return errHandlerEnds }

// The way of database/sql.
type (
	sqlDB struct {
		db      *sql.DB
		handler HandlerSQL
	}
	sqlTx struct {
		tx      *sql.Tx
		conn    *sql.Conn
		handler HandlerSQL
		// endContext ends the context that tx was begun with. That of the message is another one:
		// with it database/sql would roll back as soon as it ends, and nobody could tell this from
		// a handler that has ended tx.
		endContext context.CancelFunc
		discard    bool
	}
)

func (d sqlDB) begin(ctx context.Context) (transaction, error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	lasts, end := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, end)()
	tx, err := conn.BeginTx(lasts, nil)
	if err != nil {
		end()
		_ = conn.Close() //nolint:errcheck // it goes back, or is closed
		return nil, err
	}
	return &sqlTx{tx, conn, d.handler, end, false}, nil
}

func (d sqlDB) maxConnections() int { return d.db.Stats().MaxOpenConnections }

func (d sqlDB) exec(ctx context.Context, query string, args ...any) (int64, error) {
	return rowsAffected(d.db.ExecContext(ctx, query, args...))
}

func (d sqlDB) queryRow(ctx context.Context, query string, args []any, into ...any) error {
	return d.db.QueryRowContext(ctx, query, args...).Scan(into...)
}

func (t *sqlTx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	return rowsAffected(t.tx.ExecContext(ctx, query, args...))
}

func rowsAffected(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (t *sqlTx) queryRow(ctx context.Context, query string, args []any, into ...any) error {
	return t.tx.QueryRowContext(ctx, query, args...).Scan(into...)
}

func (t *sqlTx) callHandler(ctx context.Context, m Message) error { return t.handler(ctx, t.tx, m) }

// stateAfterHandler asks the server, since most drivers tell nobody. The record of the event has
// given the transaction an id, which the session has until the transaction ends. One that is begun
// and written in again passes for it. A transaction that is ended before the connection is lost is
// known with pgx alone. With other drivers it is lost: the next attempt finds the record, or has
// the effect.
func (t *sqlTx) stateAfterHandler(ctx context.Context) txState {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	idle := false
	_ = t.conn.Raw(func(c any) error { //nolint:errcheck // then the query fails, too
		if conn := pgxConn(c); conn != nil {
			idle = conn.PgConn().TxStatus() == 'I'
		}
		return nil
	})
	if idle {
		return txEnded
	}
	var begun bool
	err := t.queryRow(ctx, "SELECT pg_current_xact_id_if_assigned() IS NOT NULL", nil, &begun)
	switch {
	case errors.Is(err, sql.ErrTxDone), err == nil && !begun:
		return txEnded
	case hasSQLState(err, "25P02"):
		return txAborted
	case err != nil:
		return txLost
	}
	return txOpen
}

func (t *sqlTx) commit(ctx context.Context) error {
	defer context.AfterFunc(ctx, t.endContext)()
	return t.tx.Commit()
}

func (t *sqlTx) rollback(ctx context.Context) {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	defer t.endContext()
	defer context.AfterFunc(ctx, t.endContext)()
	_ = t.tx.Rollback() //nolint:errcheck // then the connection is closed
	if t.discard {
		_ = t.conn.Raw(func(c any) error { //nolint:errcheck // this has it closed
			if conn := pgxConn(c); conn != nil { // of a pgxpool, which would keep it
				_ = conn.Close(ctx)
			}
			return driver.ErrBadConn
		})
	}
	_ = t.conn.Close() //nolint:errcheck // it goes back, or is closed
}

func (t *sqlTx) discardConnection(context.Context) { t.discard = true }

// pgxConn is the connection of pgx below one of database/sql; nil for another driver.
func pgxConn(c any) *pgx.Conn {
	if p, ok := c.(interface{ Conn() *pgx.Conn }); ok {
		return p.Conn()
	}
	return nil
}

// hasSQLState reports whether err is an error of PostgreSQL whose code begins so. The drivers agree
// on how it is read.
func hasSQLState(err error, codes ...string) bool {
	var server interface{ SQLState() string }
	if !errors.As(err, &server) {
		return false
	}
	return slices.ContainsFunc(codes, func(code string) bool { return strings.HasPrefix(server.SQLState(), code) })
}
