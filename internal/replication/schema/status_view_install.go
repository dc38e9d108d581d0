// Creates the view cdc_relay.outbox_status for the tables of a slot, prints its SQL, and takes a
// slot's tables out of it.

package schema

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// CreateStatusView creates the view for the configured tables, or makes it again. Tables that the
// relays of other slots asked for stay in it. The view belongs to the owner of the schema and reads
// with its rights, so that its readers need none on the tables: it gets SELECT on two columns of
// each table, from this session.
func CreateStatusView(ctx context.Context, pool *pgxpool.Pool, c *source.Config, role string) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(schemaLock)); err != nil {
			return err
		}
		if err := Verify(ctx, tx, Trust{Role: role}); err != nil {
			return err
		}
		s, err := readStanding(ctx, tx)
		if err != nil {
			return err
		}
		mine, err := findStatusTables(ctx, tx, c)
		if err != nil {
			return err
		}
		for _, t := range mine {
			if err := grantStatusTable(ctx, tx, t, s); err != nil {
				return err
			}
		}
		if err := BecomeOwner(ctx, tx); err != nil {
			return err
		}
		all, err := readStatusTables(ctx, tx)
		if err != nil {
			return err
		}
		all[c.Slot] = mine
		return writeStatusView(ctx, tx, all, c)
	})
	if stop, ok := errors.AsType[*event.Stop](err); ok {
		return stop
	}
	if source.SQLState(err) == "42501" {
		return &event.Stop{
			Code: event.ExitFailure, Reason: "rights", Err: err, What: "this role may not create the view cdc_relay." + statusView,
			Fix: "run `cdc-relay init --status-view --url <URL of a role that may become " + OwnerRole + ", and may GRANT on the tables>`",
		}
	}
	return err
}

// findStatusTables describes the configured tables. To read the view must not run code of a table's
// owner: a view or a foreign table is refused, and an id that is not of one of PostgreSQL's own
// types, or is computed when it is read. While the view exists the owner cannot change that: it
// depends on the table and on the column.
func findStatusTables(ctx context.Context, tx pgx.Tx, c *source.Config) (list []statusTable, err error) {
	for _, t := range c.Tables {
		found := statusTable{Schema: t.Schema, Table: t.Name}
		var table, id bool
		err := tx.QueryRow(ctx, `WITH columns AS (SELECT attname::text AS name, typnamespace = 'pg_catalog'::regnamespace AND attgenerated <> 'v' AS own, typname
				FROM pg_attribute JOIN pg_type y ON y.oid = atttypid WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped),
			id AS (SELECT * FROM columns WHERE name = ANY ($2::text[]) ORDER BY array_position($2::text[], name) LIMIT 1),
			tx AS (SELECT * FROM columns WHERE name = ANY ($4::text[]) AND typname IN ('xid8', 'int8') AND own ORDER BY array_position($4::text[], name) LIMIT 1),
			at AS (SELECT * FROM columns WHERE name = ANY ($3::text[]) ORDER BY array_position($3::text[], name) LIMIT 1)
			SELECT coalesce((SELECT relkind IN ('r', 'p') FROM pg_class WHERE oid = to_regclass($1)), false), coalesce((SELECT own FROM id), false),
				coalesce((SELECT name FROM id), ''), coalesce((SELECT name FROM at WHERE own AND typname = 'timestamptz'), ''), coalesce((SELECT name FROM tx), ''),
				coalesce((SELECT typname = 'bpchar' FROM id), false)`,
			found.quoted(), t.Mapping.ID.Any, timeColumns(t.Mapping.Timestamp.Any), t.Mapping.Transaction.Any).Scan(&table, &id, &found.ID, &found.Time, &found.Tx, &found.Padded)
		if err != nil {
			return nil, fmt.Errorf("read the columns of %s: %w", t, err)
		}
		why, fix := "", "leave out --status-view, or name another table in source.tables"
		switch {
		case !table:
			why = "is not there, or is neither an ordinary nor a partitioned table"
		case found.ID == "":
			why = "has no id column (" + strings.Join(t.Mapping.ID.Any, ", ") + ")"
		case !id:
			why = "has an id column, " + found.ID + ", that is computed when it is read, or whose type is not one of PostgreSQL's own"
		case found.Tx == "":
			why = "has no column " + strings.Join(t.Mapping.Transaction.Any, ", ") + " of type xid8 (outbox.transaction), by which delivered rows are known"
			fix = "run `cdc-relay init --add-transaction-column` first"
		}
		if why != "" {
			return nil, &event.Stop{
				Code: event.ExitFailure, Reason: "table", What: fmt.Sprintf("cannot create the view cdc_relay.%s: table %s %s", statusView, t, why),
				Fix: fix,
			}
		}
		list = append(list, found)
	}
	return list, nil
}

// timeColumns are the columns of which the first that a table has is its event_time: those that are
// configured, else that of the layout that init makes.
func timeColumns(configured []string) []string {
	if len(configured) > 0 {
		return configured
	}
	return []string{"created_at"}
}

// grantStatusTable makes sure that the schema's owner may read what the view reads of a table.
func grantStatusTable(ctx context.Context, tx pgx.Tx, t statusTable, s standing) error {
	may := func() (ok bool, err error) {
		err = tx.QueryRow(ctx, `SELECT has_schema_privilege($1::name, $2, 'USAGE') AND (SELECT bool_and(has_column_privilege($1::name, $3, c, 'SELECT')) FROM unnest($4::text[]) c)`,
			s.owner, t.Schema, t.quoted(), append(t.columns(), "tableoid")).Scan(&ok)
		if err != nil {
			return false, fmt.Errorf("read the rights of %s on %s: %w", s.owner, t.quoted(), err)
		}
		return ok, nil
	}
	if ok, err := may(); ok || err != nil {
		return err
	}
	var refused error
	for _, sql := range t.grants(s.owner) {
		// a role that may not is refused, or, if it has a right of its own there, only warned
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sql)
			return err
		})
		if err != nil && source.SQLState(err) != "42501" {
			return fmt.Errorf("%s: %w", sql, err)
		}
		if err != nil {
			refused = err
		}
	}
	ok, err := may()
	if ok || err != nil {
		return err
	}
	return &event.Stop{
		Code: event.ExitFailure, Reason: "rights", Err: refused,
		What: fmt.Sprintf("role %q, which is to own the view cdc_relay.%s, may not read table %s, and role %q may not grant it that", s.owner, statusView, t.quoted(), s.user),
		Fix:  "as the owner of the table: " + strings.Join(t.grants(s.owner), "; ") + "; then run init again",
	}
}

// readStatusTables reads which tables the view has; none when there is no view.
func readStatusTables(ctx context.Context, tx pgx.Tx) (statusTables, error) {
	var comment string
	err := tx.QueryRow(ctx, `SELECT coalesce(obj_description(to_regclass('cdc_relay.`+statusView+`'), 'pg_class'), '')`).Scan(&comment)
	if err != nil {
		return nil, fmt.Errorf("read the comment of cdc_relay.%s: %w", statusView, err)
	}
	return readStatusComment(comment), nil
}

// writeStatusView makes the view of these tables, or drops it when there are none. A table of
// another slot that was renamed since, or whose columns were, is left out.
func writeStatusView(ctx context.Context, tx pgx.Tx, all statusTables, c *source.Config) error {
	for _, slot := range slices.Sorted(maps.Keys(all)) {
		all[slot] = slices.DeleteFunc(all[slot], func(t statusTable) bool {
			var there bool
			err := tx.QueryRow(ctx, `SELECT count(*) = cardinality($2::text[]) FROM pg_attribute WHERE attrelid = to_regclass($1) AND NOT attisdropped AND attname = ANY ($2::text[])`,
				t.quoted(), t.columns()).Scan(&there)
			if err == nil && !there {
				c.Log.Warn("table left out of cdc_relay."+statusView+": it was renamed, or its columns were", zap.String("slot", slot), zap.String("table", t.quoted()),
					zap.String("fix", "run `cdc-relay init --status-view` with the configuration of that slot"))
			}
			return err == nil && !there
		})
		if len(all[slot]) == 0 {
			delete(all, slot)
		}
	}
	list := []string{"DROP VIEW IF EXISTS cdc_relay." + statusView}
	var err error
	if len(all) > 0 {
		if list, err = all.sql(); err != nil {
			return err
		}
	}
	for _, sql := range list {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make the view cdc_relay.%s: %w", statusView, err)
		}
	}
	return nil
}

// ForgetStatusView takes the tables of a slot out of the view; with the last ones it drops it. The
// transaction runs as the schema's owner.
func ForgetStatusView(ctx context.Context, tx pgx.Tx, c *source.Config) error {
	all, err := readStatusTables(ctx, tx)
	if err != nil || all[c.Slot] == nil {
		return err
	}
	delete(all, c.Slot)
	return writeStatusView(ctx, tx, all, c)
}

// PrintedStatusView is CreateStatusView for those who run SQL by other means. Nobody has looked at
// the tables or at the view that is there: it has the tables of this configuration alone. Column
// names are the first ones that are configured; timed says that the tables have the layout of init.
func PrintedStatusView(c *source.Config, timed bool) (string, error) {
	all := statusTables{}
	var b strings.Builder
	b.WriteString("-- The view of the outbox rows with their status, for the tables of this configuration alone. Its owner reads two columns of each table.\n")
	for _, t := range c.Tables {
		one := statusTable{Schema: t.Schema, Table: t.Name, ID: t.Mapping.ID.Any[0]}
		if len(t.Mapping.Transaction.Any) == 0 {
			return "", &event.Stop{
				Code: event.ExitUsage, Reason: "config", What: fmt.Sprintf("--status-view needs outbox.transaction, which is empty for %s", t),
				Fix: "name the column, or leave out --status-view",
			}
		}
		one.Tx = t.Mapping.Transaction.Any[0]
		if at := t.Mapping.Timestamp; timed || len(at.Any) > 0 && !at.Optional {
			one.Time = timeColumns(at.Any)[0]
		}
		all[c.Slot] = append(all[c.Slot], one)
		b.WriteString(strings.Join(one.grants(OwnerRole), ";\n") + ";\n")
	}
	list, err := all.sql()
	b.WriteString("BEGIN;\nSET LOCAL ROLE " + OwnerRole + ";\n" + strings.Join(list, ";\n") + ";\nCOMMIT;\n\n")
	return b.String(), err
}
