// What the catalogue says of the tables: their partitions and columns, and how large they are.

package retention

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Table is an outbox table with the columns that matter here. Of each list those that exist are
// used.
type Table struct {
	Schema, Name string
	ID           []string
	Time         []string // of the event; none: the time of the commit counts
}

// String is the table as schema.name.
func (t Table) String() string { return t.Schema + "." + t.Name }

func (t Table) quoted() string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// description is what the catalogue says of an outbox table.
type description struct {
	oid    uint32 // 0: the table does not exist
	usable bool   // the role has USAGE on its schema, without which it cannot name the table
	// of the table, its parents and its partitions: whoever sends one of them sends rows of it
	oids  []uint32
	names []string // quoted as publication.State has them
	// those columns of the configuration that exist: of the id, and of a time; not quoted
	id, at  []string
	tracked bool // the server keeps commit timestamps
}

// ageUnknown reports whether rows have to be of an age and nothing says how old they are.
func (d *description) ageUnknown(keep time.Duration) bool {
	return keep > 0 && d.oid != 0 && len(d.at) == 0 && !d.tracked
}

// describeSQL finds the table by the names in the catalogue: to_regclass fails for a role without
// USAGE on the schema. $1 and $2 are its schema and name, $3 the columns of the id, $4 of a time.
const describeSQL = `
WITH root AS (
	SELECT c.oid, relnamespace
	FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
	WHERE nspname = $1::text AND relname = $2::text),
relatives AS (
	SELECT oid FROM root
	UNION SELECT relid FROM root, pg_partition_tree(root.oid)
	UNION SELECT relid FROM root, pg_partition_ancestors(root.oid) relid),
columns AS (
	SELECT attname::text AS name, atttypid
	FROM pg_attribute JOIN root ON attrelid = root.oid
	WHERE attnum > 0 AND NOT attisdropped AND attgenerated <> 'v')
SELECT
	coalesce((SELECT oid FROM root), 0),
	coalesce((SELECT has_schema_privilege(relnamespace, 'USAGE') FROM root), false),
	current_setting('track_commit_timestamp')::bool,
	array(SELECT oid FROM relatives WHERE oid IS NOT NULL),
	array(
		SELECT '"' || replace(nspname, '"', '""') || '"."' || replace(relname, '"', '""') || '"'
		FROM relatives r
			JOIN pg_class c ON c.oid = r.oid
			JOIN pg_namespace n ON n.oid = relnamespace),
	array(
		SELECT name FROM columns
		WHERE name = ANY ($3::text[])
		ORDER BY array_position($3::text[], name)),
	array(
		SELECT name FROM columns
		WHERE name = ANY ($4::text[])
			AND atttypid IN ('timestamptz'::regtype, 'timestamp'::regtype, 'date'::regtype)
		ORDER BY array_position($4::text[], name))`

// describe reads what a table is.
func describe(ctx context.Context, q querier, t Table) (d description, err error) {
	err = q.QueryRow(ctx, describeSQL, t.Schema, t.Name, t.ID, t.Time).
		Scan(&d.oid, &d.usable, &d.tracked, &d.oids, &d.names, &d.id, &d.at)
	if err != nil {
		return d, fmt.Errorf("read what %s is: %w", t, err)
	}
	return d, nil
}

// CheckTime returns a Stop with exit code event.ExitUsage if the age of a table's rows is not
// known. A table that does not exist, and one that could not be read, is another's to report.
func CheckTime(ctx context.Context, q querier, tables []Table, keep time.Duration) error {
	for _, t := range tables {
		d, err := describe(ctx, q, t)
		if err != nil {
			return err
		}
		if d.ageUnknown(keep) {
			what := "outbox.timestamp is not mapped"
			if len(t.Time) > 0 {
				what = fmt.Sprintf("column %s of outbox.timestamp is not there, or has no type of a time", strings.Join(t.Time, ", "))
			}
			return &event.Stop{
				Code: event.ExitUsage, Reason: "config",
				What: fmt.Sprintf("retention.keep needs the age of the rows of %s: %s, and track_commit_timestamp is off", t, what),
				Fix:  "map outbox.timestamp to a column of type timestamptz, or set track_commit_timestamp = on and restart PostgreSQL, or set retention.keep to 0",
			}
		}
	}
	return nil
}

// bound is up to where the rows of a table are settled by all who send them.
type bound struct {
	settled int64
	heldBy  string    // another slot, which has settled less than ours; "": none
	now     time.Time // by the database's clock
	ended   int64     // every transaction below it had ended by now
}

// readBoundSQL reads a bound. The slot that holds it back is the one that has settled least.
const readBoundSQL = dlq.ReadFence + ", " + boundSQL + `
SELECT
	EXISTS (SELECT FROM fence),
	settled,
	coalesce((
		SELECT h.slot FROM holders h
		WHERE h.slot <> $1::text
			AND (h.settled IS NULL OR h.settled < (SELECT settled FROM holders WHERE slot = $1::text))
		ORDER BY h.settled NULLS FIRST, h.slot
		LIMIT 1), ''),
	now(),
	pg_snapshot_xmin(pg_current_snapshot())::text::bigint
FROM b`

func (r *Retention) readBound(ctx context.Context, q querier, d description) (b bound, err error) {
	var held bool
	err = q.QueryRow(ctx, readBoundSQL, r.cfg.Slot, r.cfg.Epoch, d.oids, d.names).
		Scan(&held, &b.settled, &b.heldBy, &b.now, &b.ended)
	if err != nil {
		return b, fmt.Errorf("read cdc_relay.progress: %w", err)
	}
	if !held {
		return b, dlq.Fenced(r.cfg.Slot, r.cfg.Epoch)
	}
	return b, nil
}

// leafSize is a table with rows, as it is now.
type leafSize struct {
	oid, file uint32
	name      string
	blocks    int64
	writes    int64
}

// leavesSQL reads the tables with rows that $1, an OID, is or is the parent of.
const leavesSQL = `
WITH tree AS (SELECT $1::oid AS oid UNION SELECT relid FROM pg_partition_tree($1::oid))
SELECT
	c.oid,
	pg_relation_filenode(c.oid),
	format('%I.%I', nspname, relname),
	pg_relation_size(c.oid) / current_setting('block_size')::int,
	pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid)
FROM tree
	JOIN pg_class c ON c.oid = tree.oid
	JOIN pg_namespace n ON n.oid = relnamespace
WHERE relkind = 'r' AND pg_relation_filenode(c.oid) IS NOT NULL`

// readLeaves reads which tables have the rows of an outbox table. It may wait for a lock that
// somebody has on one of them, so the transaction bounds that.
func readLeaves(ctx context.Context, q querier, t Table, d description) ([]leafSize, error) {
	rows, err := q.Query(ctx, leavesSQL, d.oid)
	if err != nil {
		return nil, fmt.Errorf("read the partitions of %s: %w", t, err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l leafSize, err error) {
		return l, row.Scan(&l.oid, &l.file, &l.name, &l.blocks, &l.writes)
	})
	if err != nil {
		return nil, fmt.Errorf("read the partitions of %s: %w", t, err)
	}
	return list, nil
}
