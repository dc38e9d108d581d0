// Reading and deleting rows of the outbox tables. The tables belong to somebody else, and a query
// on them can run code of their owner (in a view, an index, a policy, a trigger) with the relay's
// rights. So each table is checked before and after it is read here. The stream needs no such
// check: the server sends rows without evaluating anything.

package sent

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// HeirsSQL is pg_inherits without temporary tables, in SQL. The rows of a temporary table are in no
// query but those of the session that made it.
const HeirsSQL = "(SELECT inhrelid, inhparent FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE relpersistence <> 't') heirs"

// BaseTypeSQL is SQL of the OID of a type, given by its OID; for a domain it is the OID of the
// domain's base type. Values of a domain are converted to the base type, and compared as values of
// it, without running any code.
func BaseTypeSQL(oid string) string {
	return "(WITH RECURSIVE down (oid, base) AS (SELECT oid, CASE typtype WHEN 'd' THEN typbasetype END FROM pg_type WHERE oid = " + oid +
		" UNION ALL SELECT y.oid, CASE y.typtype WHEN 'd' THEN y.typbasetype END FROM down JOIN pg_type y ON y.oid = down.base) SELECT oid FROM down WHERE base IS NULL)"
}

// OwnTimeSQL is SQL of the column of a table, given by its OID, that says when a row was inserted:
// by its default, or else by being the only timestamp; NULL: there is none.
func OwnTimeSQL(oid string) string {
	return `(SELECT attname::text FROM (
			SELECT attname, attnum, count(*) OVER () AS n, coalesce(pg_get_expr(adbin, adrelid) ~* 'now\(\)|current_timestamp|(statement|clock|transaction)_timestamp\(\)', false) AS timed
			FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
			WHERE attrelid = ` + oid + ` AND attnum > 0 AND NOT attisdropped AND ` + BaseTypeSQL("atttypid") + ` IN ('timestamptz'::regtype, 'timestamp'::regtype)) c
		WHERE timed OR n = 1 ORDER BY timed DESC, attnum LIMIT 1)`
}

// TextSQL is SQL of the text that an event has for a value which is not NULL; of char(n) it is
// without the blanks that fill it. format calls the output function of the value's type. That
// function never belongs to the type's owner: a base type is a superuser's, and the output of all
// other types is PostgreSQL's own.
func TextSQL(column string, padded bool) string {
	if padded {
		return "rtrim(format('%s', " + column + "))"
	}
	return "format('%s', " + column + ")"
}

// Refusal is the error for a table that must not be read, or whose rows must not be deleted: why,
// and what to do about it.
type Refusal struct {
	Table string // quoted
	Why   string // after the table's name
	Fix   string
}

func (r *Refusal) Error() string { return r.Table + " " + r.Why }

// refuseSQL returns why the table $1 must not be read, and what to do about it; no row means that
// it may be read. It reads the catalogue alone.
//
// A view or a foreign table runs what its owner wrote, also when it is a child of a table. An
// expression of an index, of statistics or of a partition key is evaluated when a query is planned,
// as far as it is constant: with it a function of the table's owner would run for every reader.
// Functions that come with PostgreSQL have no rows in pg_depend, or a superuser owns them, as a
// superuser owns those of extensions.
const refuseSQL = `
WITH RECURSIVE tree AS (SELECT to_regclass($1)::oid AS oid UNION SELECT inhrelid FROM ` + HeirsSQL + ` JOIN tree ON inhparent = tree.oid),
trusted AS (SELECT oid FROM pg_roles WHERE rolsuper OR rolname IN (session_user, current_user)),
kinds (relkind, kind) AS (VALUES ('v', 'view'), ('m', 'materialized view'), ('f', 'foreign table')),
planned (classid, objid) AS (SELECT 'pg_class'::regclass::oid, oid FROM tree
	UNION ALL SELECT 'pg_class'::regclass, indexrelid FROM pg_index JOIN tree ON indrelid = tree.oid
	UNION ALL SELECT 'pg_statistic_ext'::regclass, s.oid FROM pg_statistic_ext s JOIN tree ON stxrelid = tree.oid),
used AS (SELECT d.classid, d.objid, refclassid, refobjid, coalesce(p.proowner, o.oprowner, t.typowner) AS owner
	FROM planned JOIN pg_depend d ON d.classid = planned.classid AND d.objid = planned.objid AND d.objsubid = 0
	LEFT JOIN pg_proc p ON refclassid = 'pg_proc'::regclass AND p.oid = refobjid
	LEFT JOIN pg_operator o ON refclassid = 'pg_operator'::regclass AND o.oid = refobjid
	LEFT JOIN pg_type t ON refclassid = 'pg_type'::regclass AND t.oid = refobjid AND t.typtype = 'd')
SELECT why, fix FROM (
	SELECT 1 AS rank, CASE WHEN c.oid = to_regclass($1) THEN 'is a ' || coalesce(kind, 'relation of kind ' || c.relkind::text)
			ELSE format('has %s below it, a %s', c.oid::regclass, coalesce(kind, 'relation of kind ' || c.relkind::text)) END
			|| ': ordinary and partitioned tables alone are read' AS why, 'name an ordinary or partitioned table, without such partitions' AS fix
		FROM tree JOIN pg_class c ON c.oid = tree.oid LEFT JOIN kinds k ON k.relkind = c.relkind::text WHERE c.relkind NOT IN ('r', 'p')
	UNION ALL SELECT 2, 'has row level security, whose policies would run with the rights of role ' || quote_ident(current_user),
			format('ALTER ROLE %I BYPASSRLS, or read as a role that has it', current_user)
		WHERE row_security_active(to_regclass($1)::oid)
	UNION ALL SELECT 3, format('cannot be read without %s of role %I, which is used by %s', pg_describe_object(refclassid, refobjid, 0), pg_get_userbyid(owner), pg_describe_object(classid, objid, 0)),
			'drop what uses it, or have a superuser own it'
		FROM used WHERE owner NOT IN (SELECT oid FROM trusted)
) found ORDER BY rank, why LIMIT 1`

// CheckTable returns a *Refusal if a table, quoted, must not be read. A table that does not exist
// is not refused.
func CheckTable(ctx context.Context, q Querier, table string) error {
	return findRefusal(ctx, q, refuseSQL, table, "read what %s is: %w")
}

// findRefusal asks one of the two statements why a table is refused. It returns nil if the table is
// not refused. failed is the format of the error if the statement itself fails.
func findRefusal(ctx context.Context, q Querier, sql, table, failed string) error {
	r := Refusal{Table: table}
	err := q.QueryRow(ctx, sql, table).Scan(&r.Why, &r.Fix)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf(failed, table, err)
	}
	return &r
}

// LockTable prepares a transaction, which must be read-only, to read a table. It checks the table
// over fresh, which sees what is committed now, before and after it takes the lock: under the lock
// nobody can put a view in the table's place. The settings are the transaction's own, because a
// pooler may have dropped those of the session.
func LockTable(ctx context.Context, tx pgx.Tx, fresh Querier, table string) error {
	if err := CheckTable(ctx, fresh, table); err != nil { // before LOCK, which says less
		return err
	}
	for _, sql := range []string{"SET LOCAL row_security = off", "SET LOCAL constraint_exclusion = off", "LOCK TABLE " + table + " IN ACCESS SHARE MODE"} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return CheckTable(ctx, fresh, table)
}

// Beginner is a pool, or a connection that nothing uses afterwards.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// InOwnConnection calls do in a transaction of a connection that is closed afterwards, and never
// given back to the pool. Somebody can make an index while its table is read. If a function of that
// index has run in the session after all, it may have left settings there, under which the next
// statements would run.
func InOwnConnection(ctx context.Context, pool Beginner, options pgx.TxOptions, do func(pgx.Tx) error) error {
	tx, err := pool.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer func() {
		_ = tx.Conn().Close(ctx)
		_ = tx.Rollback(ctx) //nolint:errcheck // the pool drops a closed connection, nothing is to commit
	}()
	return do(tx)
}

// ReadTable calls read in a transaction in which a table may be read, on a connection of its own.
// It checks the table again afterwards: an index that was made meanwhile is still there then,
// because the lock keeps anybody from dropping it.
func ReadTable(ctx context.Context, pool Beginner, table string, read func(pgx.Tx) error) error {
	return InOwnConnection(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := LockTable(ctx, tx, tx, table); err != nil {
			return err
		}
		if err := read(tx); err != nil {
			return err
		}
		return CheckTable(ctx, tx, table)
	})
}

// IsRefusal returns err as the Refusal that it is or wraps.
func IsRefusal(err error) (*Refusal, bool) { return errors.AsType[*Refusal](err) }

// IsUndefinedTable reports whether err says that the table no longer exists.
func IsUndefinedTable(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (server.Code == "42P01" || server.Code == "3F000")
}

// WholeXIDSQL is the SQL of a transaction's id with its epoch. of has the lower half of the id, as
// a row has it. A row that is visible was written below next, the next transaction to begin, or by
// the transaction that looks, which may be a little above next. So the id is the nearest one below
// next + 2^24. A row that is older than 2^32 transactions gets too high an id: it seems newer than
// it is, and never settled when it is not.
func WholeXIDSQL(of string) string {
	return "(next + 16777216 - ((next + 16777216 - " + of + "::text::bigint) & 4294967295))"
}

// refuseDeleteSQL returns why no row of the table $1 may be deleted, and what to do about it; no
// row means that rows may be deleted. It reads the catalogue alone.
//
// A trigger, also one of a parent, runs as whoever deletes, and so does a rule. A foreign key that
// cascades changes rows of other tables, whose triggers run, too. A foreign key that does not
// cascade only asks the other table, as that table's owner. The condition of a trigger is not
// examined: a trigger with a condition must be of a table whose owner is trusted.
const refuseDeleteSQL = `
WITH RECURSIVE up AS (SELECT to_regclass($1)::oid AS oid UNION SELECT inhparent FROM pg_inherits JOIN up ON inhrelid = up.oid),
down AS (SELECT to_regclass($1)::oid AS oid UNION SELECT inhrelid FROM ` + HeirsSQL + ` JOIN down ON inhparent = down.oid),
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

// CheckTableDelete returns a *Refusal if no row of a table, quoted, may be deleted. Whether the
// table may be read is a question for CheckTable. A table that does not exist is not refused.
func CheckTableDelete(ctx context.Context, q Querier, table string) error {
	return findRefusal(ctx, q, refuseDeleteSQL, table, "read what a DELETE on %s runs: %w")
}

// DeleteFromTable calls do in a transaction of conn in which rows of a table may be deleted, and
// commits it. settings are SQL that begins the transaction. The lock is the one that any writer
// takes: under it nobody can make a rule or a trigger. An index that is made meanwhile is found
// afterwards, as by ReadTable: then nothing is committed, and the caller must close conn.
func DeleteFromTable(ctx context.Context, conn *pgx.Conn, table, settings string, do func(pgx.Tx) error) error {
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
		return cmp.Or(checkReadAndDelete(ctx, conn, table), err) // of a view, say, LOCK says less
	}
	if err := checkReadAndDelete(ctx, tx, table); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	if err := CheckTable(ctx, tx, table); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// checkReadAndDelete is CheckTable and CheckTableDelete, because a DELETE also reads.
func checkReadAndDelete(ctx context.Context, q Querier, table string) error {
	if err := CheckTable(ctx, q, table); err != nil {
		return err
	}
	return CheckTableDelete(ctx, q, table)
}
