// The operator's condition: SQL that runs with the relay's rights.

package recovery

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

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
	for i := range tables {
		t := &tables[i]
		for _, sql := range []string{"SELECT FROM %[1]s t WHERE (%[2]s\n)", "SELECT CASE WHEN %[2]s\n THEN 1 END FROM %[1]s t"} {
			_, err := conn.Conn().PgConn().Prepare(ctx, "", fmt.Sprintf(sql, source.QuoteTable(t.Table.Table), r.opt.Where), nil)
			if source.SQLState(err) != "" {
				return usage(fmt.Sprintf("the WHERE is not a condition on table %s: %s", t, source.OneLine(err)), "write an SQL expression of its columns, such as created_at > '2026-01-31'")
			}
			if err != nil {
				return fmt.Errorf("check the WHERE: %w", err)
			}
		}
		if err := r.checkUsed(ctx, conn, t); err != nil {
			return err
		}
	}
	return nil
}

// usedSQL is what the view of a condition uses: functions, operators, domains and relations other
// than the table. theirs: it is of a role that is not trusted, and its code would run as the relay.
// another: an ordinary table, quoted; "": it is none.
const usedSQL = `
SELECT pg_describe_object(d.refclassid, d.refobjid, 0), pg_get_userbyid(owner),
	coalesce(c.relkind NOT IN ('r', 'p'), true) AND owner NOT IN (SELECT oid FROM pg_roles WHERE rolsuper OR rolname IN (session_user, current_user)),
	coalesce((SELECT format('%I.%I', nspname, c.relname) FROM pg_namespace n WHERE n.oid = c.relnamespace AND c.relkind IN ('r', 'p')), '')
FROM pg_rewrite r
	JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
	LEFT JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
	LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
	LEFT JOIN pg_type t ON d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid AND t.typtype = 'd'
	LEFT JOIN pg_class c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid AND c.oid <> r.ev_class
	CROSS JOIN LATERAL (SELECT coalesce(p.proowner, o.oprowner, t.typowner, c.relowner) AS owner) w
WHERE r.ev_class = 'pg_temp.cdc_relay_where'::regclass AND owner IS NOT NULL AND c.oid IS DISTINCT FROM $1
ORDER BY 1`

// checkUsed refuses a condition that calls code of another role, such as the table's owner. It
// is looked up in a view that is made and rolled back: nothing of it runs.
func (r *run) checkUsed(ctx context.Context, conn *pgxpool.Conn, t *table) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("check the WHERE: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is kept
	_, err = tx.Exec(ctx, "CREATE TEMPORARY VIEW cdc_relay_where AS SELECT FROM "+source.QuoteTable(t.Table.Table)+" t WHERE ("+r.opt.Where+"\n)")
	switch state := source.SQLState(err); {
	case state == "42501" && strings.Contains(err.Error(), "temporary"):
		return usage("the role may not make temporary objects, by which a WHERE is looked at before it runs: "+source.OneLine(err).Error(),
			"GRANT TEMPORARY ON DATABASE to it, or choose the rows without --where")
	case state != "":
		return usage(fmt.Sprintf("the WHERE is not a condition on table %s: %s", t, source.OneLine(err)), "write an SQL expression of its columns, such as created_at > '2026-01-31'")
	case err != nil:
		return fmt.Errorf("check the WHERE: %w", err)
	}
	rows, err := tx.Query(ctx, usedSQL, t.OID)
	if err != nil {
		return fmt.Errorf("check the WHERE: %w", err)
	}
	var what, owner, another string
	var theirs bool
	var tables []string
	_, err = pgx.ForEachRow(rows, []any{&what, &owner, &theirs, &another}, func() error {
		switch {
		case theirs:
			return usage(fmt.Sprintf("the WHERE uses %s of role %s, which would run with the rights of the relay", what, owner),
				"write it without, or have a superuser own it")
		case another != "":
			tables = append(tables, another)
		}
		return nil
	})
	if stop := (*event.Stop)(nil); err != nil && !errors.As(err, &stop) {
		return fmt.Errorf("check the WHERE: %w", err)
	}
	for _, name := range tables {
		if err == nil {
			err = r.readError("check the WHERE", tableread.Check(ctx, tx, name))
		}
	}
	return err
}
