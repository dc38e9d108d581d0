// init --add-transaction-column: the column by which the relay knows which rows were sent, on
// tables that exist.

package setup

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// transactionColumn is the column that a table has, or is to have; its Name is "": none is mapped.
func transactionColumn(t decode.Table) sent.Column {
	c := sent.Column{Schema: t.Schema, Table: t.Name}
	if names := t.Mapping.Transaction.Any; len(names) > 0 {
		c.Name = names[0]
	}
	return c
}

// AddTransactionColumn adds the column to each configured table, with index and trigger, where
// something of it is missing. Nothing is changed unless all can be done. Writers wait for moments:
// a lock that is not free is given up and asked for again, and the index is made concurrently, also
// on partitions, one by one. It may be run any number of times.
func AddTransactionColumn(ctx context.Context, c source.Config, url string, force bool) error {
	if url != "" {
		c.URL, c.Password = url, nil
	}
	pool, err := source.ConnectPool(&c)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := source.CheckServer(ctx, pool); err != nil {
		return err
	}
	var list []adding
	for _, t := range c.Tables {
		a := adding{pool: pool, log: c.Log, table: t, column: transactionColumn(t), locks: forLocks}
		if a.column.Name == "" {
			return &event.Stop{
				Code: event.ExitUsage, Reason: "config",
				What: "outbox.transaction is empty: there is no column to add", Fix: "name it, or take the key out of the configuration: the default is tx",
			}
		}
		if err := a.examine(ctx, c.Publication, force); err != nil {
			return err
		}
		list = append(list, a)
	}
	for _, a := range list {
		if err := a.add(ctx); err != nil {
			return err
		}
	}
	return nil
}

// adding adds the column to one table.
type adding struct {
	pool   *pgxpool.Pool
	log    *zap.Logger
	table  decode.Table
	column sent.Column
	locks  patience

	missing []string // the statements that make column and trigger
}

// treeSQL is the table $1.$2, with its partitions.
const treeSQL = `
WITH root AS (
	SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = $1::text AND relname = $2::text),
tree AS (
	SELECT c.*, nspname, coalesce(level, 0) AS level, coalesce(parentrelid::oid, 0) AS parent
	FROM root
		LEFT JOIN LATERAL pg_partition_tree(root.oid) ON true
		JOIN pg_class c ON c.oid = coalesce(relid, root.oid)
		JOIN pg_namespace n ON n.oid = c.relnamespace)`

// found is what foundSQL reads.
type found struct {
	Kind, Parent    string // of the table; the table that it is a partition of
	Type, Made      string // of the column, "": there is none; that PostgreSQL makes its values
	Default         bool   // it has ours
	Publications    string // others that have the table with all its columns
	Unlogged        string // a table of the tree that is
	Triggered       bool   // the whole tree has the trigger
	Role            string // ours
	Relation, Owner string // a table of the tree that is not ours, and whose it is
	Schema          string // one of the tree in which we may not create
	FunctionOwner   string // whose the trigger's function is, if it is not ours
}

// $3 is the column, $4 our publication, $5 the trigger and $6 its function. A superuser's function
// and that of the table's owner are good ones: they may change the table, too.
var foundSQL = treeSQL + `
SELECT root.relkind::text,
	coalesce((SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid = root.oid AND root.relispartition), ''),
	coalesce(format_type(` + tableread.BaseTypeSQL("x.atttypid") + `, NULL), ''),
	CASE WHEN x.attgenerated <> '' THEN 'a generated column' WHEN x.attidentity <> '' THEN 'an identity column' ELSE '' END,
	coalesce(pg_get_expr(d.adbin, d.adrelid) LIKE '%pg_current_xact_id()%', false),
	(SELECT coalesce(string_agg(DISTINCT format('%I', p.pubname), ', '), '')
		FROM pg_publication p, pg_get_publication_tables(p.pubname) g
		WHERE p.pubname <> $4
			AND NOT EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = root.oid AND to_jsonb(r)->>'prattrs' IS NOT NULL)
			AND g.relid IN (SELECT oid FROM tree)),
	coalesce((SELECT min(oid::regclass::text) FROM tree WHERE relkind = 'r' AND relpersistence <> 'p'), ''),
	NOT EXISTS (SELECT FROM tree WHERE relkind IN ('r', 'p') AND NOT EXISTS (
		SELECT FROM pg_trigger t JOIN pg_proc f ON f.oid = tgfoid JOIN pg_roles o ON o.oid = proowner
		WHERE tgrelid = tree.oid AND tgname = $5::text AND tgenabled = 'A' AND tgtype & 7 = 7
			AND pronamespace = root.relnamespace AND proname = $6::text AND (proowner = root.relowner OR rolsuper OR pg_has_role(proowner, 'USAGE')))),
	current_user::text,
	coalesce(other.name, ''), coalesce(other.owner, ''),
	coalesce((SELECT min(nspname) FROM tree WHERE NOT has_schema_privilege(relnamespace, 'USAGE') OR NOT has_schema_privilege(relnamespace, 'CREATE')), ''),
	coalesce((SELECT pg_get_userbyid(proowner)::text FROM pg_proc
		WHERE pronamespace = root.relnamespace AND proname = $6::text AND pronargs = 0 AND NOT pg_has_role(proowner, 'USAGE')), '')
FROM root
	LEFT JOIN pg_attribute x ON x.attrelid = root.oid AND x.attname = $3::text AND NOT x.attisdropped
	LEFT JOIN pg_attrdef d ON d.adrelid = root.oid AND d.adnum = x.attnum
	LEFT JOIN LATERAL (
		SELECT oid::regclass::text AS name, pg_get_userbyid(relowner)::text AS owner
		FROM tree WHERE NOT pg_has_role(relowner, 'USAGE') ORDER BY level LIMIT 1) other ON true`

// examine finds what is missing. It returns a Stop if that cannot be made, or is not asked for.
func (a *adding) examine(ctx context.Context, publication string, force bool) error {
	c := &a.column
	rows, err := a.pool.Query(ctx, foundSQL, c.Schema, c.Table, c.Name, publication, c.Trigger(), c.Function())
	if err != nil {
		return fmt.Errorf("read what %s is: %w", a.table, err)
	}
	f, err := pgx.CollectOneRow(rows, pgx.RowToStructByPos[found])
	if source.IsNoRows(err) {
		return &event.Stop{
			Code: event.ExitMapping, Reason: "mapping",
			What: fmt.Sprintf("table %s does not exist", a.table), Fix: "create it, or run `cdc-relay init --outbox-table`, which creates it with the column",
		}
	}
	if err != nil {
		return fmt.Errorf("read what %s is: %w", a.table, err)
	}
	c.Bigint = f.Type == "bigint"
	if what, fix := a.unfit(f, force); what != "" {
		return &event.Stop{Code: event.ExitUsage, Reason: "config", What: what, Fix: fix}
	}
	if f.Type == "" {
		a.missing = append(a.missing, c.AddSQL())
	}
	if !f.Triggered {
		a.missing = append(a.missing, c.TriggerSQL()...)
	}
	tree, err := a.relations(ctx)
	if err != nil {
		return err
	}
	if len(a.missing) == 0 && tree[len(tree)-1].Valid {
		return nil
	}
	if what, fix := a.forbidden(f); what != "" {
		return &event.Stop{Code: event.ExitFailure, Reason: "rights", What: what, Fix: fix}
	}
	return nil
}

// unfit says why the table cannot have the column, or is not to have it; "": it can.
func (a *adding) unfit(f found, force bool) (what, fix string) {
	c := a.column
	table, column := source.QuoteTable(a.table), source.QuoteName(c.Name)
	switch {
	case f.Kind != "r" && f.Kind != "p":
		return fmt.Sprintf("%s is no ordinary or partitioned table: it cannot have the column", a.table), "name the table whose rows are inserted in source.tables"
	case f.Type == "" && f.Parent != "":
		return fmt.Sprintf("%s is a partition of %s, which must have column %s first", a.table, f.Parent, c.Name), fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s, ALTER COLUMN %[2]s SET DEFAULT %[4]s", f.Parent, column, c.Type(), c.Value())
	case f.Made != "":
		return fmt.Sprintf("column %s of %s is %s: it cannot have the row's transaction", c.Name, a.table, f.Made),
			fmt.Sprintf("name another column in outbox.transaction, or if nobody needs this one: ALTER TABLE %s DROP COLUMN %s", table, column)
	case f.Type != "" && f.Type != "xid8" && f.Type != "bigint":
		return fmt.Sprintf("column %s of %s has type %s, wanted xid8 or bigint", c.Name, a.table, f.Type),
			fmt.Sprintf("name another column in outbox.transaction, or if nobody needs this one: ALTER TABLE %s DROP COLUMN %s", table, column)
	case f.Type != "" && !f.Default:
		return fmt.Sprintf("column %s of %s exists without the default pg_current_xact_id(): it may be the application's own, whose values would be overwritten", c.Name, a.table),
			fmt.Sprintf("name another column in outbox.transaction, or if this one is meant: ALTER TABLE %s ALTER COLUMN %s SET DEFAULT %s", table, column, c.Value())
	case f.Unlogged != "":
		return fmt.Sprintf("table %s is not logged: none of its rows is sent", f.Unlogged), fmt.Sprintf("ALTER TABLE %s SET LOGGED", f.Unlogged)
	case f.Type == "" && f.Publications != "" && !force:
		return fmt.Sprintf("%s is also in publication %s: a subscription to it stops at the next row (\"missing replicated column\") until its table has column %s, too", a.table, f.Publications, c.Name),
			"add the column to the subscriber's table first (type xid8, no default), or give the publication a column list; then run this again with --force"
	}
	return "", ""
}

// forbidden says which right is missing; "": none.
func (a *adding) forbidden(f found) (what, fix string) {
	role := source.QuoteName(f.Role)
	switch {
	case f.Relation != "":
		return fmt.Sprintf("role %q may not change %s, which belongs to role %q", f.Role, f.Relation, f.Owner),
			fmt.Sprintf("run `cdc-relay init --add-transaction-column --url <URL of role %s>`, or GRANT %s TO %s", f.Owner, source.QuoteName(f.Owner), role)
	case f.Schema != "":
		return fmt.Sprintf("role %q may not create in schema %q, where index and trigger's function belong", f.Role, f.Schema),
			fmt.Sprintf("GRANT USAGE, CREATE ON SCHEMA %s TO %s", source.QuoteName(f.Schema), role)
	case f.FunctionOwner != "":
		function := pgx.Identifier{a.column.Schema, a.column.Function()}.Sanitize()
		return fmt.Sprintf("function %s() belongs to role %q, who could change what the trigger does", function, f.FunctionOwner),
			fmt.Sprintf("ALTER FUNCTION %s() OWNER TO %s", function, role)
	}
	return "", ""
}

// add makes what is missing.
func (a *adding) add(ctx context.Context) error {
	if len(a.missing) > 0 {
		if err := a.change(ctx, a.missing...); err != nil {
			return err
		}
	}
	return a.index(ctx)
}

// relation is a table of the tree, with its best index of the column; Index is "": it has none.
type relation struct {
	OID, Parent  uint32
	Schema, Name string
	Partitioned  bool
	Index        string // quoted
	Valid        bool
}

// relations reads the tree, the lowest first. What serves the table itself is any index that begins
// with the column. Below it an index of the column alone is wanted, which the parent's takes.
func (a *adding) relations(ctx context.Context) ([]relation, error) {
	rows, err := a.pool.Query(ctx, treeSQL+`
		SELECT tree.oid, parent, nspname::text, tree.relname::text, tree.relkind = 'p',
			coalesce(i.name, ''), coalesce(i.valid, false)
		FROM tree LEFT JOIN LATERAL (
			SELECT indexrelid::regclass::text AS name, indisvalid AS valid
			FROM pg_index JOIN pg_class c ON c.oid = indexrelid
				JOIN pg_am am ON am.oid = c.relam AND amname = 'btree'
				JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0] AND attname = $3::text
			WHERE indrelid = tree.oid AND indpred IS NULL AND (indisvalid AND level = 0 OR indnatts = 1)
			ORDER BY valid DESC, c.relispartition DESC, indexrelid LIMIT 1) i ON true
		WHERE tree.relkind IN ('r', 'p')
		ORDER BY level DESC, tree.oid`, a.column.Schema, a.column.Table, a.column.Name)
	if err != nil {
		return nil, fmt.Errorf("read the indexes of %s: %w", a.table, err)
	}
	tree, err := pgx.CollectRows(rows, pgx.RowToStructByPos[relation])
	if err == nil && len(tree) == 0 {
		err = pgx.ErrNoRows // it was dropped just now
	}
	if err != nil {
		return nil, fmt.Errorf("read the indexes of %s: %w", a.table, err)
	}
	return tree, nil
}

// index makes the index, of a partitioned table on each partition first: its own takes them, is
// valid once it has all, and gives one to partitions that come later. One that is not valid was
// left by somebody who was interrupted.
func (a *adding) index(ctx context.Context) error {
	tree, err := a.relations(ctx)
	if err != nil || tree[len(tree)-1].Valid {
		return err
	}
	for _, r := range tree {
		of := sent.Column{Schema: r.Schema, Table: r.Name, Name: a.column.Name}
		switch {
		case r.Valid || r.Partitioned && r.Index != "":
			continue
		case r.Partitioned:
			err = a.change(ctx, of.IndexSQL("ON ONLY"))
		default:
			if r.Index != "" {
				err = a.concurrently(ctx, "DROP INDEX CONCURRENTLY "+r.Index)
			}
			if err == nil {
				err = a.concurrently(ctx, of.IndexSQL("CONCURRENTLY ON"))
			}
		}
		if err != nil {
			return err
		}
	}
	if tree, err = a.relations(ctx); err != nil {
		return err
	}
	indexes := map[uint32]string{}
	for _, r := range tree {
		indexes[r.OID] = r.Index
	}
	for _, r := range tree {
		// one that is attached stays
		if parent := indexes[r.Parent]; parent != "" && r.Index != "" {
			if err := a.change(ctx, fmt.Sprintf("ALTER INDEX %s ATTACH PARTITION %s", parent, r.Index)); err != nil {
				return err
			}
		}
	}
	return nil
}

// PrintTransactionColumn writes the SQL of AddTransactionColumn. It does not connect, so it does
// not know which tables are partitioned.
func PrintTransactionColumn(w io.Writer, c source.Config) error {
	var b strings.Builder
	b.WriteString("SET search_path = pg_catalog;\n")
	for _, t := range c.Tables {
		column := transactionColumn(t)
		if column.Name == "" {
			continue
		}
		fmt.Fprintf(&b, "\n-- %s. If it is partitioned, make the index on each partition first, and then without CONCURRENTLY on the table.\n", t)
		for _, sql := range append([]string{column.AddSQL(), column.IndexSQL("CONCURRENTLY ON")}, column.TriggerSQL()...) {
			b.WriteString(sql + ";\n")
		}
	}
	b.WriteString("\nRESET search_path;\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// Statements whose locks keep writers waiting for moments.

// patience says how long a lock is waited for.
type patience struct {
	each  time.Duration // at a time; whoever comes behind, waits as long
	pause time.Duration // then they go first
	all   time.Duration // in all
}

var forLocks = patience{each: 200 * time.Millisecond, pause: 800 * time.Millisecond, all: time.Minute}

// change runs statements in one transaction, again and again while somebody else has the table.
func (a *adding) change(ctx context.Context, statements ...string) error {
	a.log.Info("running", zap.Strings("sql", statements))
	for began, told := time.Now(), false; ; {
		err := a.try(ctx, statements)
		if source.SQLState(err) != "55P03" {
			return err
		}
		waited := time.Since(began)
		if waited >= a.locks.all {
			return &event.Stop{
				Code: event.ExitFailure, Reason: "locked",
				What: fmt.Sprintf("table %s could not be locked within %s, because of %s", a.table, a.locks.all, a.holders(ctx)),
				Fix:  "wait for its end, or end it with SELECT pg_terminate_backend(<process>), and run this again",
			}
		}
		if waited >= time.Second && !told {
			told = true
			a.log.Warn("waiting for a lock", zap.String("table", a.table.String()), zap.String("held_by", a.holders(ctx)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(a.locks.pause):
		}
	}
}

func (a *adding) try(ctx context.Context, statements []string) error {
	return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		timeout := fmt.Sprintf("SET LOCAL lock_timeout = %d", a.locks.each.Milliseconds())
		for _, sql := range append([]string{timeout}, statements...) {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
}

// holders names who has the table, or a partition or an index of it: at most three, the oldest
// first.
func (a *adding) holders(ctx context.Context) string {
	var list string
	err := a.pool.QueryRow(ctx, treeSQL+`
		SELECT coalesce(string_agg(text, '; '), '')
		FROM (SELECT DISTINCT coalesce(xact_start, prepared) AS since,
				CASE WHEN gid IS NOT NULL THEN format('prepared transaction %L of role %I', gid, owner)
					ELSE format('process %s%s%s', l.pid, ' of role ' || usename, ' (' || nullif(application_name, '') || ')') END
				|| coalesce(format(', since %s', coalesce(xact_start, prepared)::timestamptz(0)), '') AS text
			FROM pg_locks l
				LEFT JOIN pg_stat_activity a ON a.pid = l.pid
				LEFT JOIN pg_prepared_xacts p ON l.virtualtransaction = '-1/' || p.transaction
			WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
				AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
				AND (relation IN (SELECT oid FROM tree) OR relation IN (SELECT indexrelid FROM pg_index WHERE indrelid IN (SELECT oid FROM tree)))
			ORDER BY since LIMIT 3) holders`, a.column.Schema, a.column.Table).Scan(&list)
	if err != nil || list == "" {
		return "another session"
	}
	return list
}

// concurrently runs a statement that keeps no writer waiting. It waits for old transactions itself.
func (a *adding) concurrently(ctx context.Context, sql string) error {
	a.log.Info("running", zap.String("sql", sql))
	conn, err := a.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	for _, s := range []string{"SET statement_timeout = 0", "SET lock_timeout = 0", sql} {
		if _, err := conn.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	_, err = conn.Exec(ctx, "RESET statement_timeout; RESET lock_timeout")
	return err
}
