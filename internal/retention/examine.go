// What `cdc-relay check` says: whether delivered rows can be deleted.

package retention

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// Problem is something that keeps rows from being deleted, or that an operator should know.
type Problem struct {
	Warn      bool // rows are deleted all the same
	What, Fix string
}

// Examine looks for problems. It reads the catalogue alone, and changes nothing. A table that does
// not exist is another's to report.
func Examine(ctx context.Context, q querier, slot, publication string, tables []Table, keep time.Duration) (list []Problem, err error) {
	var stop *event.Stop
	switch err := CheckTime(ctx, q, tables, keep); {
	case errors.As(err, &stop):
		list = append(list, Problem{What: stop.What, Fix: stop.Fix})
	case err != nil:
		return nil, err
	}
	for _, t := range tables {
		d, err := describe(ctx, q, t)
		if err != nil {
			return nil, err
		}
		if d.oid == 0 {
			continue
		}
		if d.usable { // else the first of problemsSQL says so
			found, err := refusals(ctx, q, t)
			if err != nil {
				return nil, err
			}
			list = append(list, found...)
		}
		for _, sql := range problemsSQL {
			found, err := problems(ctx, q, sql, d, publication)
			if err != nil {
				return nil, fmt.Errorf("read what retention needs on %s: %w", t, err)
			}
			list = append(list, found...)
		}
		found, err := otherSlots(ctx, q, slot, d)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// refusals say that a SELECT or a DELETE would run somebody else's code.
func refusals(ctx context.Context, q querier, t Table) (list []Problem, err error) {
	for _, refused := range []error{tableread.Check(ctx, q, t.quoted()), tableread.CheckDelete(ctx, q, t.quoted())} {
		refusal, ok := tableread.IsRefusal(refused)
		switch {
		case ok:
			list = append(list, Problem{What: refusal.Error(), Fix: refusal.Fix})
		case refused != nil:
			return nil, refused
		}
	}
	return list, nil
}

// leafRowsSQL begins each of problemsSQL. leaves are the tables that have the rows of a table: $1
// is its OID, $2 the columns of the id, $3 our publication. A role without USAGE on a schema may
// ask all of this, since nothing is named by its text.
const leafRowsSQL = `
WITH given AS (SELECT $1::oid, $2::text[], $3::text),
leaves AS (
	SELECT
		c.oid,
		relreplident,
		nspname,
		c.oid::regclass::text AS leaf,
		has_schema_privilege(relnamespace, 'USAGE') AS uses,
		has_table_privilege(c.oid, 'SELECT') AS selects,
		has_table_privilege(c.oid, 'DELETE') AS deletes,
		has_any_column_privilege(c.oid, 'UPDATE') AS updates
	FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
	WHERE relkind = 'r' AND c.oid IN (SELECT $1::oid UNION SELECT relid FROM pg_partition_tree($1::oid)))
`

// problemsSQL are the questions about one table. Their columns are those of a Problem.
var problemsSQL = []string{
	// rights
	`SELECT
		false,
		format('role %I may not delete from %s: it lacks %s', current_user, leaf, concat_ws(', ',
			CASE WHEN NOT uses THEN 'USAGE of the schema' END,
			CASE WHEN NOT selects THEN 'SELECT' END,
			CASE WHEN NOT deletes THEN 'DELETE' END,
			CASE WHEN NOT updates THEN 'UPDATE of a column, which SELECT ... FOR UPDATE takes' END)),
		format('GRANT USAGE ON SCHEMA %I TO %I; GRANT SELECT, DELETE, UPDATE (%I) ON %s TO %2$I',
			nspname, current_user, ($2::text[])[1], leaf)
	FROM leaves
	WHERE NOT (uses AND selects AND deletes AND updates)`,

	// A row of a table whose deletes are published must be told from others.
	`SELECT
		false,
		format('publication %I publishes deletes of %s, which has no replica identity: PostgreSQL refuses them', pubname, leaf),
		format('ALTER PUBLICATION %I SET (publish = ''insert''), or ALTER TABLE %s REPLICA IDENTITY FULL', pubname, leaf)
	FROM leaves JOIN pg_publication ON pubdelete
	WHERE NOT CASE relreplident
			WHEN 'f' THEN true
			WHEN 'n' THEN false
			WHEN 'd' THEN EXISTS (SELECT FROM pg_index WHERE indrelid = leaves.oid AND indisprimary)
			ELSE EXISTS (SELECT FROM pg_index WHERE indrelid = leaves.oid AND indisreplident)
		END
		AND EXISTS (
			SELECT FROM pg_get_publication_tables(pubname) g
			WHERE g.relid = leaves.oid
				OR g.relid IN (SELECT relid FROM pg_partition_ancestors(leaves.oid) relid))`,

	// our own publication publishes deletes
	`SELECT
		true,
		format('publication %I publishes deletes: each row that is deleted comes through the slot once more, and is skipped', pubname),
		format('ALTER PUBLICATION %I SET (publish = ''insert'')', pubname)
	FROM pg_publication
	WHERE pubname = $3 AND pubdelete`,

	// other tables refer to rows
	`SELECT
		true,
		format('%s refers to %s: rows that it refers to cannot be deleted (constraint %I)',
			conrelid::regclass, confrelid::regclass, conname),
		'drop the constraint, or delete the rows that refer to delivered ones'
	FROM pg_constraint
	WHERE confrelid = $1::oid AND contype = 'f' AND confdeltype IN ('a', 'r')`,
}

// problems asks one of problemsSQL. Of many leaves with the same problem three are named.
func problems(ctx context.Context, q querier, sql string, d description, publication string) ([]Problem, error) {
	rows, err := q.Query(ctx, leafRowsSQL+sql+" ORDER BY 2 LIMIT 3", d.oid, d.id, publication)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Problem, err error) {
		return p, row.Scan(&p.Warn, &p.What, &p.Fix)
	})
}

// otherSlotsSQL reads the slots of relays that have settled nothing of a table, and those of which
// no relay has a record.
const otherSlotsSQL = `WITH fence AS (SELECT $1::text, $2::bigint), ` + boundSQL + `
SELECT
	array(SELECT slot FROM holders WHERE settled IS NULL AND slot <> $1::text ORDER BY slot),
	array(
		SELECT slot_name::text FROM pg_replication_slots
		WHERE slot_type = 'logical' AND plugin = 'pgoutput' AND database = current_database()
			AND slot_name NOT IN (SELECT slot FROM cdc_relay.slots UNION SELECT took_from FROM cdc_relay.slots)
			AND slot_name <> $1::text
		ORDER BY slot_name)`

// otherSlots are those that keep rows of a table, and those that retention knows nothing of.
func otherSlots(ctx context.Context, q querier, slot string, d description) (list []Problem, err error) {
	var holding, foreign []string
	err = q.QueryRow(ctx, otherSlotsSQL, slot, 0, d.oids, d.names).Scan(&holding, &foreign)
	if err != nil {
		return nil, fmt.Errorf("read which slots send the outbox tables: %w", err)
	}
	if len(holding) > 0 {
		list = append(list, Problem{
			Warn: true, What: "nothing is deleted until these slots, which send the same tables, have settled it: " + strings.Join(holding, ", "),
			Fix: "start their relays; a slot that is no longer in use is forgotten by `cdc-relay teardown --yes` with its configuration",
		})
	}
	if len(foreign) > 0 {
		list = append(list, Problem{
			Warn: true, What: "retention does not wait for slots of other programs, which may read the same tables: " + strings.Join(foreign, ", "),
			Fix: "they get every row from the WAL all the same; if their program reads the tables themselves, as Debezium's snapshots do, set retention.keep long enough for it",
		})
	}
	return list, nil
}
