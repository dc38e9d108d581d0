// What there is, before anything is changed: rows, and what their order could be.

package recovery

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// prepare finds the tables, counts the rows and chooses their order.
func (r *run) prepare(ctx context.Context, first bool) (err error) {
	if r.c.Tables, err = publication.FindTables(ctx, r.pool, r.c, first); err != nil {
		return err
	}
	if err := slot.CheckReadable(ctx, r.pool, r.c); err != nil {
		return err
	}
	if r.tables, err = r.describe(ctx); err != nil {
		return err
	}
	facts, err := r.count(ctx)
	if err != nil {
		return err
	}
	if r.order, err = chooseOrder(r.opt, facts, r.tables); err != nil {
		return err
	}
	r.fill(facts)
	return nil
}

// facts are what was counted.
type facts struct {
	tracked       bool // track_commit_timestamp is on
	rows, untimed int64
	leftOut       int64   // rows of the gap that the WHERE leaves out
	nulls         []int64 // of the column to order by, by table
	held          int64   // deferred events and dead letters of the slot
}

// count reads every table once, under one snapshot.
func (r *run) count(ctx context.Context) (f facts, err error) {
	f.nulls = make([]int64, len(r.tables))
	err = tableread.Alone(ctx, r.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `SELECT current_setting('track_commit_timestamp')::bool, (SELECT count(*) FROM cdc_relay.retry WHERE slot = $1 AND system_id = $2)
			+ (SELECT count(*) FROM cdc_relay.dead_letter WHERE slot = $1 AND system_id = $2 AND state <> 'purged')`, r.c.Slot, r.id.SystemID).Scan(&f.tracked, &f.held)
		if err != nil {
			return err
		}
		for i := range r.tables {
			t := &r.tables[i]
			if err := tableread.Lock(ctx, tx, r.pool, source.QuoteTable(t.Table.Table)); err != nil {
				return err
			}
			null := "false"
			if t.by != nil {
				null = t.by.quoted() + " IS NULL"
			}
			var rows, untimed, leftOut int64
			err := tx.QueryRow(ctx, "SELECT count(*) FILTER (WHERE ours), count(*) FILTER (WHERE ours AND untimed), count(*) FILTER (WHERE ours AND is_null), count(*) FILTER (WHERE ours IS NOT TRUE) FROM (SELECT "+
				r.conditionSQL()+" AS ours, "+commitTimeSQL(f.tracked)+" IS NULL AS untimed, "+null+" AS is_null FROM "+source.QuoteTable(t.Table.Table)+" t WHERE "+r.task.xidSQL()+") t").
				Scan(&rows, &untimed, &f.nulls[i], &leftOut)
			if err != nil {
				return r.asWhereError(err)
			}
			f.leftOut += leftOut
			if err := tableread.Check(ctx, r.pool, source.QuoteTable(t.Table.Table)); err != nil {
				return err
			}
			f.rows, f.untimed = f.rows+rows, f.untimed+untimed
		}
		return nil
	})
	return f, r.readError("count rows of the gap", err)
}
