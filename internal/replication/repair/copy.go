// The transaction that copies rows into the retry table.

package repair

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/retry/postgres"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// copyRows copies the rows that a snapshot shows ("": one that is taken now), and then calls
// finish, all in one transaction. incarnation returns which incarnation and positions the copies
// get. The snapshot is held until the last row is read.
//
// The rows have an incarnation and positions of which no event of a slot is. Among the rows of the
// slot they come after those that wait already, whose incarnation or position is lower, and before
// all events that the slot sends from now on.
func (r *run) copyRows(ctx context.Context, snapshot string, incarnation func(context.Context, pgx.Tx) (int64, positions, error), finish func(context.Context, pgx.Tx) error) error {
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	to := &attendedConn{conn: conn, silence: r.c.SilenceLimit()}
	defer to.close()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("copy rows into the retry table: %w", err)
	}
	for _, sql := range []string{"SET LOCAL statement_timeout = 0", "SET LOCAL idle_in_transaction_session_timeout = " + source.Milliseconds(r.c.SilenceLimit())} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("copy rows into the retry table: %w", err)
		}
	}
	if from := r.task.movedFrom; from != "" && from != r.id.SystemID {
		if r.report.Moved, err = slot.MoveRows(ctx, tx, r.c.Slot, from, r.id.SystemID); err != nil {
			return err
		}
	}
	n, at, err := incarnation(ctx, tx)
	if err != nil {
		return err
	}
	to.keepTelling(ctx) // it is idle while all tables are sorted
	copied, err := r.copySnapshot(ctx, to, snapshot, n, at)
	to.mu.Lock()
	defer to.mu.Unlock()
	if err != nil {
		return err
	}
	if copied < r.report.counted {
		err := fmt.Errorf("of %d rows that were counted %d could be read: nothing is copied; run it again", r.report.counted, copied)
		if r.resend != nil { // the WHERE is never the same
			return usageStop(err.Error(), "")
		}
		return err
	}
	held, err := r.removeHeld(ctx, tx, n, at)
	if err != nil {
		return err
	}
	r.report.Recovered, r.report.Held = copied-held, held
	if err := finish(ctx, tx); err != nil {
		return err
	}
	if r.resend == nil { // else finish has noted who asked for it
		if r.audited, err = slot.WriteAudit(ctx, tx, r.c.Slot, r.id.SystemID, r.report.auditAction(), r.opt.Reason, r.report.auditText()); err != nil {
			return err
		}
	}
	r.committing = true
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit the copied rows: %w", err)
	}
	return nil
}

// copySnapshot counts the rows, and copies them in the snapshot in which they were counted.
func (r *run) copySnapshot(ctx context.Context, conn *attendedConn, snapshot string, incarnation int64, at positions) (copied int64, err error) {
	var rows *mergedReader
	err = r.countRows(ctx, snapshot, func(snapshot string, f counts) (err error) {
		rows, err = r.openAll(ctx, snapshot, f.tracked)
		return err
	})
	if err != nil {
		return 0, err
	}
	defer rows.close()
	if err := rows.readFirst(ctx); err != nil {
		return 0, r.readError("read rows", r.asWhereError(err))
	}
	ev, err := r.newEvents(ctx, rows, incarnation, at)
	if err != nil {
		return 0, err
	}
	table := postgres.New(r.pool, source.BackendPID, store.Config{
		Slot: r.c.Slot, SystemID: r.id.SystemID, Incarnation: incarnation, Columns: r.c.Columns, Scope: r.opt.Scope,
	})
	return table.Copy(ctx, conn.conn, &conn.mu, ev.nextRow)
}

// removeHeld takes out the copies of events that the retry table or the dead letters have already:
// they wait where they are, or somebody has decided about them. The same row is the same event: its
// table, transaction and id, of which a purged dead letter keeps the digest. Where the transaction
// is not known of one of the two, table, id and contents are compared as both are stored: ids alone
// need not be unique, and two tables may count alike. What differs is kept, since a repeat is
// allowed and a loss is not; so is a copy of what was redacted, or purged, without a transaction.
// What an operator sends elsewhere holds no row. Who names rows to be sent again wants those too of
// which a dead letter is closed.
func (r *run) removeHeld(ctx context.Context, tx pgx.Tx, incarnation int64, at positions) (int64, error) {
	// A table that was just filled has no statistics: nested loops would read it once per row.
	if _, err := tx.Exec(ctx, "SET LOCAL enable_nestloop = off"); err != nil {
		return 0, fmt.Errorf("leave out events that are held: %w", err)
	}
	dead := ""
	if r.resend != nil && !r.resend.knowsSent() {
		dead = " AND state = 'open'"
	}
	var tables, members []uint32
	for i := range r.tables {
		for _, oid := range r.tables[i].family {
			tables, members = append(tables, r.tables[i].OID), append(members, oid)
		}
	}
	const contents = "aggregate, key, type, payload_kind, payload, headers, columns, left_out"
	sameWay := "h.resend IS NULL" // a copy may be taken back
	if r.resend != nil && !r.resend.knowsSent() {
		sameWay = "(h.resend IS NULL OR (h.route_name, h.routing_key) IS NOT DISTINCT FROM (c.route_name, c.routing_key))"
	}
	digest := func(of string) string { return sent.DigestSQL(of+".tx", of+".id") }
	tag, err := tx.Exec(ctx, `WITH
		family AS MATERIALIZED (SELECT root::bigint, member::bigint FROM unnest($6::oid[], $7::oid[]) f(root, member)),
		held AS NOT MATERIALIZED (
			SELECT id, tx, relation, `+digest("r")+` AS digest, false AS emptied, resend, route_name, routing_key, `+contents+` FROM cdc_relay.retry r WHERE slot = $1 AND system_id = $2
				AND NOT (incarnation = $3 AND commit_lsn BETWEEN $4::text::pg_lsn AND $5::text::pg_lsn)
			UNION ALL SELECT id, tx, relation, coalesce(digest, `+digest("d")+`), redacted_at IS NOT NULL OR state = 'purged', resend, route_name, routing_key, `+contents+` FROM cdc_relay.dead_letter d
				WHERE slot = $1 AND system_id = $2`+dead+`),
		copies AS NOT MATERIALIZED (SELECT n, id, tx, relation, `+digest("r")+` AS digest, route_name, routing_key, `+contents+` FROM cdc_relay.retry r
			WHERE slot = $1 AND system_id = $2 AND incarnation = $3 AND commit_lsn BETWEEN $4::text::pg_lsn AND $5::text::pg_lsn)
		DELETE FROM cdc_relay.retry x WHERE n IN (
			SELECT c.n FROM copies c JOIN held h ON h.digest = c.digest AND h.tx = c.tx WHERE (c.relation, h.relation) IN (SELECT root, member FROM family) AND `+sameWay+`
			UNION ALL SELECT c.n FROM copies c JOIN held h ON h.id = c.id WHERE (h.tx IS NULL OR c.tx IS NULL) AND NOT h.emptied AND `+sameWay+`
				AND (h.relation IS NULL OR c.relation IS NULL OR (c.relation, h.relation) IN (SELECT root, member FROM family))
				AND (`+columnsOf("c", contents)+`) IS NOT DISTINCT FROM (`+columnsOf("h", contents)+`))`,
		r.c.Slot, r.id.SystemID, incarnation, at.first().String(), at.last().String(), tables, members)
	if err != nil {
		return 0, fmt.Errorf("leave out events that are held: %w", err)
	}
	return tag.RowsAffected(), nil
}

// columnsOf is a list of columns with an alias before each.
func columnsOf(alias, columns string) string {
	return alias + "." + strings.ReplaceAll(columns, ", ", ", "+alias+".")
}

// nextIncarnation returns the incarnation for rows that come before a new slot, which begins at at:
// MakeReady gives the slot a higher one.
func (r *run) nextIncarnation(at pglogrepl.LSN) func(context.Context, pgx.Tx) (int64, positions, error) {
	return func(ctx context.Context, tx pgx.Tx) (n int64, _ positions, err error) {
		if err := tx.QueryRow(ctx, `SELECT `+slot.NextIncarnation, r.c.Slot).Scan(&n); err != nil {
			return 0, positions{}, fmt.Errorf("read the incarnation of slot %q: %w", r.c.Slot, err)
		}
		return n, positionsBelow(at), nil
	}
}

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
	// the session is marked as a leader's: the next leader ends it, with the locks that it holds
	if err := cfg.AfterConnect(ctx, conn); err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// beginRead begins the transaction that reads whole tables, in a snapshot; "": one of its own.
// Nested loops would go through the sent set once per row, if its size is misjudged. While a large
// table is read the client is silent, and not idle.
func (r *run) beginRead(ctx context.Context, conn *pgx.Conn, snapshot string) (pgx.Tx, error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, err
	}
	settings := "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = " + source.Milliseconds(r.c.SilenceLimit()) + "; SET LOCAL enable_nestloop = off; SET LOCAL jit = off"
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

// attendedConn is a connection whose transaction may wait for this process for hours. The server is
// told that the process lives, and ends the transaction if it is frozen.
type attendedConn struct {
	mu          sync.Mutex // held by whoever uses conn
	conn        *pgx.Conn
	silence     time.Duration      // after which the server ends the session
	stopTelling context.CancelFunc // ends keepTelling; nil: it was not called
	telling     sync.WaitGroup
}

// keepTelling tells the server again and again that the process lives, from now until close.
func (a *attendedConn) keepTelling(ctx context.Context) {
	ctx, a.stopTelling = context.WithCancel(ctx)
	a.telling.Go(func() {
		for source.Sleep(ctx, a.silence/6) {
			if a.mu.TryLock() {
				_, _ = a.conn.PgConn().Exec(ctx, "SELECT 1").ReadAll() //nolint:errcheck // the next statement finds out
				a.mu.Unlock()
			}
		}
	})
}

// close ends the connection, with its transaction.
func (a *attendedConn) close() {
	if a.stopTelling != nil {
		a.stopTelling()
		a.telling.Wait()
	}
	closeConn(a.conn)
}
