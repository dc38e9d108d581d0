// The problems that keep delivered rows from being deleted, with the fix for each. `cdc-relay
// check` shows them, so that an operator learns of them before the tables grow.

package retention

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// Problem is something that keeps rows from being deleted, or that an operator should know.
type Problem struct {
	Warn      bool // rows are deleted all the same
	What, Fix string
}

// Examine looks for problems of tables with retention, for `cdc-relay check`. It reads the
// catalogue, and changes nothing. A table that does not exist is reported by another check. What
// PostgreSQL refuses when a row is deleted, such as a foreign key, a pass logs with its words.
func Examine(ctx context.Context, q sent.Querier, publication string, tables []sent.Table) (list []Problem, err error) {
	for _, t := range tables {
		d, err := sent.Describe(ctx, q, t)
		if err != nil {
			return nil, err
		}
		if d.OID == 0 {
			continue
		}
		if what, fix := missingColumn(&d, t); what != "" {
			list = append(list, Problem{What: what, Fix: fix})
		}
		if none := missingIndex(&d, d.Leaves...); none != nil && d.Transaction != "" {
			list = append(list, Problem{What: none.what, Fix: none.fix})
		}
		list = append(list, weakColumn(&d, t)...)
		if d.Usable { // else rightsSQL says so
			found, err := codeProblems(ctx, q, t)
			if err != nil {
				return nil, err
			}
			list = append(list, found...)
		}
		for _, sql := range []string{unsentColumnSQL, rightsSQL} {
			found, err := askProblems(ctx, q, sql, d, publication)
			if err != nil {
				return nil, fmt.Errorf("read what retention needs on %s: %w", t, err)
			}
			list = append(list, found...)
		}
	}
	return list, nil
}

// ExamineColumns looks for problems of the column of the transaction alone, for a relay without
// retention: without the column nothing is known of which rows were sent.
func ExamineColumns(ctx context.Context, q sent.Querier, publication string, tables []sent.Table) (list []Problem, err error) {
	for _, t := range tables {
		d, err := sent.Describe(ctx, q, t)
		if err != nil {
			return nil, err
		}
		list = append(list, weakColumn(&d, t)...)
		unsent, err := askProblems(ctx, q, unsentColumnSQL, d, publication)
		if err != nil {
			return nil, fmt.Errorf("read whether the transactions of %s are sent: %w", t, err)
		}
		for _, p := range unsent {
			p.Warn = true
			list = append(list, p)
		}
	}
	return list, nil
}

// codeProblems lists why a SELECT or a DELETE on the table would run somebody else's code, for
// which the relay refuses it.
func codeProblems(ctx context.Context, q sent.Querier, t sent.Table) (list []Problem, err error) {
	for _, refused := range []error{sent.CheckTable(ctx, q, pgx.Identifier{t.Schema, t.Name}.Sanitize()), sent.CheckTableDelete(ctx, q, pgx.Identifier{t.Schema, t.Name}.Sanitize())} {
		refusal, ok := sent.IsRefusal(refused)
		switch {
		case ok:
			list = append(list, Problem{What: refusal.Error(), Fix: refusal.Fix})
		case refused != nil:
			return nil, refused
		}
	}
	return list, nil
}

// leafRowsSQL begins each question about one table. leaves are the tables that have its rows: $1 is
// its OID, $2 the columns of the id, $3 our publication, $4 the column of the transaction, $5 the
// OIDs of the table's relatives. A role without USAGE on a schema may ask all of this: nothing is
// named by its text.
const leafRowsSQL = `
WITH given AS (SELECT $1::oid, $2::text[], $3::text, $4::text, $5::oid[]),
leaves AS (
	SELECT
		nspname,
		c.oid::regclass::text AS leaf,
		has_schema_privilege(relnamespace, 'USAGE') AS uses,
		has_table_privilege(c.oid, 'SELECT') AS selects,
		has_table_privilege(c.oid, 'DELETE') AS deletes,
		has_any_column_privilege(c.oid, 'UPDATE') AS updates
	FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
	WHERE relkind = 'r' AND c.oid IN (SELECT $1::oid UNION SELECT relid FROM pg_partition_tree($1::oid)))
`

// unsentColumnSQL asks whether the publication sends the column of the transaction: nothing is
// recorded of a table without it. Only PostgreSQL 15 and later have column lists.
const unsentColumnSQL = `SELECT
		false,
		format('publication %I has a column list of %s without %I: no delivery is recorded', pubname, prrelid::regclass, attname),
		format('in one transaction: ALTER PUBLICATION %1$I DROP TABLE ONLY %2$s; ALTER PUBLICATION %1$I ADD TABLE ONLY %2$s (%3$s)', pubname, prrelid::regclass, (
			SELECT string_agg(quote_ident(l.attname), ', ' ORDER BY l.attnum) FROM pg_attribute l
			WHERE l.attrelid = prrelid AND (to_jsonb(r)->'prattrs' @> to_jsonb(l.attnum) OR l.attnum = a.attnum)))
	FROM pg_publication_rel r
		JOIN pg_publication p ON p.oid = prpubid
		JOIN pg_attribute a ON attrelid = prrelid AND attname = $4
	WHERE pubname = $3 AND prrelid = ANY ($5) AND NOT puballtables
		AND jsonb_typeof(to_jsonb(r)->'prattrs') = 'array' AND NOT to_jsonb(r)->'prattrs' @> to_jsonb(a.attnum)`

// rightsSQL asks which rights on the tables with the rows are missing.
const rightsSQL = `SELECT
		false,
	format('role %I may not delete from %s: it lacks %s', current_user, leaf, concat_ws(', ',
		CASE WHEN NOT uses THEN 'USAGE of the schema' END,
		CASE WHEN NOT selects THEN 'SELECT' END,
		CASE WHEN NOT deletes THEN 'DELETE' END,
		CASE WHEN NOT updates THEN 'UPDATE of a column, which SELECT ... FOR UPDATE takes' END)),
	format('GRANT USAGE ON SCHEMA %I TO %I; GRANT SELECT, DELETE, UPDATE (%I) ON %s TO %2$I',
		nspname, current_user, ($2::text[])[1], leaf)
	FROM leaves
	WHERE NOT (uses AND selects AND deletes AND updates)`

// askProblems asks a question whose columns are those of a Problem. If many leaves have the same
// problem, three are named.
func askProblems(ctx context.Context, q sent.Querier, sql string, d sent.Description, publication string) ([]Problem, error) {
	rows, err := q.Query(ctx, leafRowsSQL+sql+" ORDER BY 2 LIMIT 3", d.OID, d.ID, publication, d.Transaction, d.Family)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Problem, err error) {
		return p, row.Scan(&p.Warn, &p.What, &p.Fix)
	})
}

// CheckTables returns a Stop with exit code event.ExitUsage if a table lacks the column of the
// transaction, without which retention cannot tell its rows apart. A table that does not exist, or
// could not be read, is reported by another check.
func CheckTables(ctx context.Context, q sent.Querier, tables []sent.Table) error {
	for _, t := range tables {
		d, err := sent.Describe(ctx, q, t)
		if err != nil {
			return err
		}
		if what, fix := missingColumn(&d, t); what != "" {
			return &event.Stop{Code: event.ExitUsage, Reason: "config", What: "retention: " + what, Fix: fix}
		}
	}
	return nil
}

// missingColumn says which column retention misses on a table that exists, and the fix; "" means
// that it misses none, or that there is no such table.
func missingColumn(d *sent.Description, t sent.Table) (what, fix string) {
	const command = "run the SQL that `cdc-relay init --add-transaction-column` prints, or set retention.mode to none"
	if d.OID == 0 {
		return "", ""
	}
	if d.Unfit != "" {
		return fmt.Sprintf("%s has a column %s, wanted xid8 or bigint (outbox.transaction)", t, d.Unfit), "name another column in outbox.transaction, for which `cdc-relay init --add-transaction-column` prints the SQL, or set retention.mode to none"
	}
	if d.Transaction == "" {
		return fmt.Sprintf("%s has no column %s of type xid8 (outbox.transaction), which says of a row whether it was delivered", t, strings.Join(t.Transaction, ", ")), command
	}
	return "", ""
}

// missingIndex is why nothing is deleted from those of the leaves that have no index on the
// transaction; nil means that each leaf has one.
func missingIndex(d *sent.Description, leaves ...sent.Leaf) *refusal {
	var names, indexes []string
	for _, l := range leaves {
		if !l.Indexed {
			names = append(names, l.Name)
			indexes = append(indexes, fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s)", l.Name, pgx.Identifier{d.Transaction}.Sanitize()))
		}
	}
	if len(names) == 0 {
		return nil
	}
	const most = 3
	more := ""
	if len(names) > most {
		names, indexes, more = names[:most], indexes[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	fix := strings.Join(indexes, "; ")
	if d.Leaves[0].OID != d.OID {
		fix = "on each partition, and then without CONCURRENTLY on the table: " + fix
	}
	return &refusal{"no valid btree index begins with column " + d.Transaction + " of " + strings.Join(names, ", ") + more, fix}
}

// weakColumn lists why rows of a table that has the column of the transaction may lack a value in
// it. Such rows are delivered, and never recorded as sent.
func weakColumn(d *sent.Description, t sent.Table) (list []Problem) {
	if d.Transaction == "" {
		return nil
	}
	c := sent.Column{Schema: t.Schema, Table: t.Name, Name: d.Transaction, Bigint: d.Bigint}
	for _, l := range d.Leaves {
		if !l.Defaults {
			list = append(list, Problem{
				Warn: true, What: fmt.Sprintf("column %s of %s has no default pg_current_xact_id(): rows without a value are not known to be delivered", d.Transaction, l.Name),
				Fix: fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT %s", l.Name, pgx.Identifier{d.Transaction}.Sanitize(), c.DefaultSQL()),
			})
		}
		if !l.Triggered {
			list = append(list, Problem{
				Warn: true, What: fmt.Sprintf("%s has no trigger %s that is ENABLE ALWAYS and sets column %s to pg_current_xact_id(): rows that are inserted with another transaction's id are not known to be delivered", l.Name, c.TriggerName(), d.Transaction),
				Fix: strings.Join(c.TriggerSQL(), "; "),
			})
		}
	}
	return list[:min(len(list), 3)]
}

// isPassing reports whether an error goes away by itself and is not logged: somebody holds a lock,
// or the table was dropped.
func isPassing(err error) bool {
	return sqlClass(err, "55P03") || sent.IsUndefinedTable(err)
}

// isOfRows reports whether an error is about some rows, and not about a whole table or the server.
// After such an error the pass goes on with other rows of the table.
func isOfRows(err error) bool {
	for _, class := range []string{"21", "22", "23", "54", "57014", "XX"} {
		if sqlClass(err, class) {
			return true
		}
	}
	return false
}

// sqlClass reports whether err is a server's error whose SQLSTATE begins with class.
func sqlClass(err error, class string) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(server.Code, class)
}

// warnOnce logs why rows of a table are not deleted. While the reason stays the same, only the
// first pass logs it.
func (p *pass) warnOnce(of string, err error) {
	text := of + ": " + err.Error()
	p.warnings[text] = true
	if p.loggedWarnings[text] {
		return
	}
	p.loggedWarnings[text] = true
	fields := []zap.Field{zap.String("table", of), zap.Error(err)}
	if fix := fixOf(of, err); fix != "" {
		fields = append(fields, zap.String("fix", fix))
	}
	p.cfg.Log.Warn("cannot delete delivered rows: they stay, and delivery goes on", fields...)
}

// fixOf is what an operator does about an error of warnOnce; "" means that the error says it.
func fixOf(table string, err error) string {
	if lack, ok := errors.AsType[*refusal](err); ok {
		return lack.fix
	}
	if refusal, ok := sent.IsRefusal(err); ok {
		return refusal.Fix
	}
	if sqlClass(err, "42501") {
		return "run `cdc-relay check`, which names the right that is missing"
	}
	return ""
}

// refusal is the error for a table, or a leaf, that lacks what retention needs: nothing is deleted
// from it.
type refusal struct{ what, fix string }

func (r *refusal) Error() string { return r.what }
