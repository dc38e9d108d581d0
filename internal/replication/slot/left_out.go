// Tables that the slot has relayed on another server and that are not configured on this one.

package slot

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// moved reports whether what is remembered was relayed on another server: see Record.SentBefore.
func moved(was publication.State) bool { return was.Publication == 0 && len(was.Tables) > 0 }

// CheckLeftOut stops the first start on another server if a table has rows that was relayed there
// and is not configured here. These rows were there before the slot, so the stream never shows
// them, and the relay would never ask. Only the size of the table is asked for, which needs no
// right on it and runs no code of its owner. So it may be empty: its rows were deleted.
func CheckLeftOut(ctx context.Context, q source.Querier, c *source.Config, was publication.State) error {
	if !moved(was) {
		return nil
	}
	configured := c.QuotedTables()
	for _, quoted := range slices.Sorted(maps.Keys(was.Tables)) {
		oid := was.Tables[quoted].OID
		if slices.Contains(configured, quoted) || oid == 0 || slices.Contains(was.Foreign, oid) {
			continue
		}
		var name string
		var rows bool
		err := q.QueryRow(ctx, `SELECT nspname || '.' || relname, EXISTS (
				SELECT FROM (SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)) t(oid) WHERE pg_relation_size(t.oid) > 0)
			FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = $1 AND relkind IN ('r', 'p')`, oid).Scan(&name, &rows)
		switch {
		case source.IsNoRows(err):
			continue
		case err != nil:
			return fmt.Errorf("read pg_class: %w", err)
		case rows:
			return publication.LeftOutHere(c, name, oid)
		}
	}
	return nil
}
