// Writing to the table.

package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Write is [Write] for this outbox.
func (w *Writer) Write(ctx context.Context, tx pgx.Tx, events ...Event) error {
	return w.insert(ctx, events, func(sql string, args []any) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
}

// WriteSQL is [WriteSQL] for this outbox.
func (w *Writer) WriteSQL(ctx context.Context, tx *sql.Tx, events ...Event) error {
	return w.insert(ctx, events, func(sql string, args []any) error {
		_, err := tx.ExecContext(ctx, sql, args...)
		return err
	})
}

// insert writes all events, or none and returns ErrInvalid. The rows of one INSERT go to the WAL in
// the order of its list, those of several in the order of the statements. A row is in the WAL of
// the caller's transaction, so the relay sees it if that one is committed, and only then.
func (w *Writer) insert(ctx context.Context, events []Event, exec func(sql string, args []any) error) error {
	rows, err := w.rows(ctx, events, w.uuid)
	if err != nil {
		return err
	}
	for batch := range batches(rows) {
		query := w.single
		if len(batch) > 1 {
			query = insertSQL(w.table, w.columns, len(batch))
		}
		args := make([]any, 0, len(batch)*len(w.columns))
		for i := range batch {
			for _, c := range w.columns {
				args = append(args, c.value(&batch[i]))
			}
		}
		if err := exec(query, args); err != nil {
			return fmt.Errorf("outbox: insert into %s: %w", w.table, err)
		}
	}
	return nil
}

// column is one column of the INSERT.
type column struct {
	name  string // quoted
	cast  string
	value func(*row) any // text, or nil for NULL
}

// insertColumns are those that the table has. JSON is a parameter of type json, because drivers
// send its text as it is, and because PostgreSQL converts it to jsonb and to text but refuses it
// for bytea, where the backslashes of JSON would be taken for escapes and the payload changed. The
// other parameters have their column's type.
func insertColumns(c *Columns) (list []column) {
	for _, col := range []column{
		{c.ID, "", func(r *row) any { return r.id }},
		{c.Aggregate, "", func(r *row) any { return r.aggregate }},
		{c.Key, "", func(r *row) any { return r.key }},
		{c.Type, "", func(r *row) any { return r.typ }},
		{c.Payload, "::json", func(r *row) any { return orNull(r.payload) }},
		{c.Headers, "::json", func(r *row) any { return orNull(r.headers) }},
		{c.Traceparent, "", func(r *row) any { return orNull(r.traceparent) }},
	} {
		if col.name != NoColumn {
			col.name = pgx.Identifier{col.name}.Sanitize()
			list = append(list, col)
		}
	}
	return list
}

// orNull is a text, or NULL for an empty one.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// insertSQL is the INSERT of n rows.
func insertSQL(table string, columns []column, n int) string {
	var sql strings.Builder
	sql.WriteString("INSERT INTO " + table)
	for i, c := range columns {
		sql.WriteString(separator(i) + c.name)
	}
	sql.WriteString(") VALUES")
	for param := range n * len(columns) {
		i := param % len(columns)
		if i == 0 && param > 0 {
			sql.WriteString("),")
		}
		sql.WriteString(separator(i) + "$" + strconv.Itoa(param+1) + columns[i].cast)
	}
	sql.WriteString(")")
	return sql.String()
}

func separator(i int) string {
	if i == 0 {
		return " ("
	}
	return ", "
}
