// The transaction that copies rows into the retry table.

package recovery

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/retry/postgres"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// copyRows copies the rows that a snapshot shows ("": one that is taken now), and then has finish
// do what belongs to it, all in one transaction. The snapshot is held until the last row is read.
//
// The rows have an incarnation and positions of which no event of a slot is. Among the rows of the
// slot they come after those that wait already, whose incarnation or position is lower, and before
// all events that the slot sends from now on.
func (r *run) copyRows(ctx context.Context, snapshot string, incarnation func(context.Context, pgx.Tx) (int64, positions, error), finish func(context.Context, pgx.Tx) error) error {
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("copy rows into the retry table: %w", err)
	}
	// It is idle for as long as all tables are sorted. It locks nothing but our own tables.
	for _, sql := range []string{"SET LOCAL statement_timeout = 0", "SET LOCAL idle_in_transaction_session_timeout = 0"} {
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
	copied, err := r.copySnapshot(ctx, conn, snapshot, n, at)
	if err != nil {
		return err
	}
	if copied < r.report.counted {
		return fmt.Errorf("of %d rows that were counted %d could be read: nothing is copied; run it again", r.report.counted, copied)
	}
	held, err := r.removeHeld(ctx, tx, n, at)
	if err != nil {
		return err
	}
	r.report.Recovered, r.report.Held = copied-held, held
	if err := finish(ctx, tx); err != nil {
		return err
	}
	if err := slot.Audit(ctx, tx, r.c.Slot, r.id.SystemID, r.report.action(), r.opt.Reason, r.report.audit()); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit the copied rows: %w", err)
	}
	return nil
}

// copySnapshot copies the rows.
func (r *run) copySnapshot(ctx context.Context, conn *pgx.Conn, snapshot string, incarnation int64, at positions) (copied int64, err error) {
	// It may have been switched off since the rows were counted; an order by it fails then.
	var tracked bool
	if err := r.pool.QueryRow(ctx, `SELECT current_setting('track_commit_timestamp')::bool`).Scan(&tracked); err != nil {
		return 0, fmt.Errorf("read track_commit_timestamp: %w", err)
	}
	rows, err := r.readAll(ctx, snapshot, tracked)
	if err != nil {
		return 0, err
	}
	defer rows.close()
	ev, err := r.newEvents(ctx, rows, incarnation, at)
	if err != nil {
		return 0, err
	}
	to := postgres.New(r.pool, source.BackendPID, store.Config{
		Slot: r.c.Slot, SystemID: r.id.SystemID, Incarnation: incarnation, Columns: r.c.Columns, Scope: r.opt.Scope,
	})
	return to.Copy(ctx, conn, ev.read)
}

// removeHeld takes out the copies of events that the retry table or the dead letters have already:
// they wait where they are, or somebody has decided about them. The same row is the same event: its
// table, transaction and id. Where that is not known of what is held, its contents are compared as
// both are stored, since ids alone need not be unique, and two tables may count alike. What differs
// is kept, since a repeat is allowed and a loss is not. A dead letter that was redacted, or purged,
// without saying which row it was is not compared.
func (r *run) removeHeld(ctx context.Context, tx pgx.Tx, incarnation int64, at positions) (int64, error) {
	// A table that was just filled has no statistics: nested loops would read it once per row.
	if _, err := tx.Exec(ctx, "SET LOCAL enable_nestloop = off"); err != nil {
		return 0, fmt.Errorf("leave out events that are held: %w", err)
	}
	var tables, members []uint32
	for i := range r.tables {
		for _, oid := range r.tables[i].family {
			tables, members = append(tables, r.tables[i].OID), append(members, oid)
		}
	}
	tag, err := tx.Exec(ctx, `DELETE FROM cdc_relay.retry x USING (
		SELECT r.id, r.aggregate, r.key, r.type, r.payload, r.tx, r.relation, false AS redacted FROM cdc_relay.retry r WHERE r.slot = $1 AND r.system_id = $2
			AND NOT (r.incarnation = $3 AND r.commit_lsn BETWEEN $4::text::pg_lsn AND $5::text::pg_lsn)
		UNION ALL SELECT d.id, d.aggregate, d.key, d.type, d.payload, d.tx, d.relation, d.redacted_at IS NOT NULL FROM cdc_relay.dead_letter d
			WHERE d.slot = $1 AND d.system_id = $2 AND d.state <> 'purged') h
		WHERE x.slot = $1 AND x.system_id = $2 AND x.incarnation = $3 AND x.commit_lsn BETWEEN $4::text::pg_lsn AND $5::text::pg_lsn AND x.id = h.id
			AND CASE WHEN h.tx IS NOT NULL AND x.tx IS NOT NULL
				THEN h.tx = x.tx AND EXISTS (SELECT FROM unnest($6::oid[], $7::oid[]) f(root, member) WHERE root::bigint = x.relation AND member::bigint = h.relation)
				ELSE NOT h.redacted AND (x.aggregate, x.key, x.type, x.payload) IS NOT DISTINCT FROM (h.aggregate, h.key, h.type, h.payload) END`,
		r.c.Slot, r.id.SystemID, incarnation, at.first().String(), at.last().String(), tables, members)
	if err != nil {
		return 0, fmt.Errorf("leave out events that are held: %w", err)
	}
	return tag.RowsAffected(), nil
}

// nextIncarnation is an incarnation for rows before a new slot: MakeReady gives the slot a higher
// one.
func (r *run) nextIncarnation(at pglogrepl.LSN) func(context.Context, pgx.Tx) (int64, positions, error) {
	return func(ctx context.Context, tx pgx.Tx) (n int64, _ positions, err error) {
		if err := tx.QueryRow(ctx, `SELECT `+slot.NextIncarnation, r.c.Slot).Scan(&n); err != nil {
			return 0, positions{}, fmt.Errorf("read the incarnation of slot %q: %w", r.c.Slot, err)
		}
		return n, positionsBelow(at), nil
	}
}
