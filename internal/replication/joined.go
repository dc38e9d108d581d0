// Rows that a table got before it joined the publication.

package replication

import (
	"context"

	"go.uber.org/zap"
)

// warnOfRowsBefore says which rows of a table that was added are not sent: PostgreSQL leaves out
// what was inserted before the table was in the publication, whenever that commits. ALTER
// PUBLICATION does not wait for writers, so such a row may appear after the table was announced.
func warnOfRowsBefore(ctx context.Context, q querier, c *Config, table string, t sentTable) {
	if len(t.Through) == 0 { // with all tables: its rows are sent from its first one on
		return
	}
	var open, rows bool
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication_rel r WHERE r.oid = ANY ($1::oid[])
			AND age(r.xmin) <= age(pg_snapshot_xmin(pg_current_snapshot())::xid)), EXISTS (SELECT FROM `+table+`)`, t.Through).Scan(&open, &rows)
	switch {
	case err != nil: // the role may not read it, which only the first start needs
		c.Log.Warn("rows of the added table that were there before could not be asked for", zap.String("table", table), zap.Error(err))
	case open:
		c.Log.Warn("transactions that were open when the table joined the publication are open still: what they had inserted before is not sent",
			zap.String("table", table), zap.String("mend", "find and re-send it when they have ended; next time: BEGIN; LOCK TABLE "+table+
				" IN SHARE ROW EXCLUSIVE MODE; ALTER PUBLICATION "+quoteName(c.Publication)+" ADD TABLE "+table+"; COMMIT"))
	case rows:
		c.Log.Info("the added table has rows: those that were committed before it joined the publication are not sent", zap.String("table", table))
	}
}
