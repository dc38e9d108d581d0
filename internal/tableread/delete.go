// What a DELETE on a table that belongs to somebody else would run.

package tableread

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// refuseDeleteSQL returns why no row of the table $1 is deleted; no row: it may be. It reads the
// catalogue alone.
//
// A trigger, also one of a parent, runs as whoever deletes, and so does a rule. A foreign key that
// cascades changes rows of other tables, whose triggers run, too. One that does not cascade asks
// the other table alone, as its owner. A condition of a trigger is not looked into: with one, the
// trigger must be of a table whose owner is trusted.
const refuseDeleteSQL = `
WITH RECURSIVE up AS (SELECT to_regclass($1)::oid AS oid UNION SELECT inhparent FROM pg_inherits JOIN up ON inhrelid = up.oid),
down AS (SELECT to_regclass($1)::oid AS oid UNION SELECT inhrelid FROM ` + Heirs + ` JOIN down ON inhparent = down.oid),
tree AS (SELECT oid FROM up UNION SELECT oid FROM down),
trusted AS (SELECT oid FROM pg_roles WHERE rolsuper OR rolname IN (session_user, current_user))
SELECT why, fix FROM (
	SELECT format('has the rule %I for DELETE', rulename) AS why, format('DROP RULE %I ON %s', rulename, ev_class::regclass) AS fix
		FROM pg_rewrite JOIN tree ON ev_class = tree.oid WHERE ev_type = '4'
	UNION ALL SELECT format('has the trigger %I for DELETE, which would run function %s of role %I', tgname, p.oid::regprocedure, pg_get_userbyid(p.proowner)),
			'have a superuser own the function, drop the trigger, or leave out retention'
		FROM pg_trigger JOIN tree ON tgrelid = tree.oid JOIN pg_proc p ON p.oid = tgfoid JOIN pg_class c ON c.oid = tgrelid
		WHERE NOT tgisinternal AND tgtype & 8 <> 0 AND tgenabled IN ('O', 'A')
			AND (p.proowner NOT IN (SELECT oid FROM trusted) OR tgqual IS NOT NULL AND c.relowner NOT IN (SELECT oid FROM trusted))
	UNION ALL SELECT format('is referenced by %s, whose rows a DELETE would change (constraint %I)', conrelid::regclass, conname),
			format('ALTER TABLE %s DROP CONSTRAINT %I, or make it ON DELETE NO ACTION', conrelid::regclass, conname)
		FROM pg_constraint JOIN tree ON confrelid = tree.oid WHERE contype = 'f' AND confdeltype IN ('c', 'n', 'd')
) found ORDER BY why LIMIT 1`

// CheckDelete returns a *Refusal if no row of a table, quoted, must be deleted. Whether it may be
// read is Check's. A table that does not exist is not refused.
func CheckDelete(ctx context.Context, q Querier, table string) error {
	r := Refusal{Table: table}
	err := q.QueryRow(ctx, refuseDeleteSQL, table).Scan(&r.Why, &r.Fix)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("read what a DELETE on %s runs: %w", table, err)
	}
	return &r
}

// Delete calls do in a transaction of conn in which rows of a table may be deleted, and commits it.
// settings are SQL that begins the transaction. The lock is that of any writer: under it nobody
// makes a rule or a trigger. An index that is made meanwhile is found afterwards, as by Read: then
// nothing is committed, and the caller must close conn.
func Delete(ctx context.Context, conn *pgx.Conn, table, settings string, do func(pgx.Tx) error) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // after a commit there is nothing to roll back
	sql := "SET LOCAL row_security = off; SET LOCAL constraint_exclusion = off; " + settings + "; LOCK TABLE ONLY " + table + " IN ROW EXCLUSIVE MODE"
	if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		err = fmt.Errorf("lock %s: %w", table, err)
		if tx.Rollback(ctx) != nil {
			return err
		}
		return cmp.Or(checkBoth(ctx, conn, table), err) // of a view, say, LOCK says less
	}
	if err := checkBoth(ctx, tx, table); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	if err := Check(ctx, tx, table); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func checkBoth(ctx context.Context, q Querier, table string) error {
	if err := Check(ctx, q, table); err != nil {
		return err
	}
	return CheckDelete(ctx, q, table)
}
