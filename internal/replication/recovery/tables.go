// The tables that are read: their columns as the stream would send them, and the statements.

package recovery

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/tablerows"
)

// table is an outbox table.
type table struct {
	tablerows.Table
	by *byColumn // the column to order by; nil: another order
}

// describe reads what the tables are.
func (r *run) describe(ctx context.Context) ([]table, error) {
	tables := make([]table, len(r.c.Tables))
	for i, of := range r.c.Tables {
		t := &tables[i]
		var err error
		if t.Table, err = tablerows.Describe(ctx, r.pool, r.c, of); err != nil {
			return nil, err
		}
		if r.opt.OrderBy != "" {
			if t.by, err = r.readByColumn(ctx, of); err != nil {
				return nil, err
			}
		}
	}
	return tables, r.checkWhere(ctx, tables)
}

// conditionSQL is the operator's condition.
func (r *run) conditionSQL() string {
	if r.opt.Where == "" {
		return "true"
	}
	return "(" + r.opt.Where + "\n)"
}

// checkWhere has the server parse the expression, in each table and in two places: what is one
// condition stands in both, and "true) OR (true" or a second statement does not. Nothing of it
// runs.
func (r *run) checkWhere(ctx context.Context, tables []table) error {
	if r.opt.Where == "" {
		return nil
	}
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	for _, t := range tables {
		for _, sql := range []string{"SELECT FROM %[1]s t WHERE (%[2]s\n)", "SELECT CASE WHEN %[2]s\n THEN 1 END FROM %[1]s t"} {
			_, err := conn.Conn().PgConn().Prepare(ctx, "", fmt.Sprintf(sql, source.QuoteTable(t.Table.Table), r.opt.Where), nil)
			if source.SQLState(err) != "" {
				return usage(fmt.Sprintf("the WHERE is not a condition on table %s: %s", t, source.OneLine(err)), "write an SQL expression of its columns, such as created_at > '2026-01-31'")
			}
			if err != nil {
				return fmt.Errorf("check the WHERE: %w", err)
			}
		}
	}
	return nil
}
