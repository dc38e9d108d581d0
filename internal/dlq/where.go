// Conditions of SQL statements, and the two tables.

package dlq

import (
	"fmt"
	"strings"
)

// where collects the conditions of a statement, with their arguments.
type where struct {
	sql  strings.Builder
	args []any
}

// and adds a condition, in which each ? becomes the next parameter.
func (w *where) and(condition string, args ...any) {
	if w.sql.Len() > 0 {
		w.sql.WriteString(" AND ")
	}
	w.sql.WriteString(w.bind(condition, args...))
}

// bind gives the parameters of a piece of SQL their numbers.
func (w *where) bind(sql string, args ...any) string {
	var b strings.Builder
	for _, arg := range args {
		before, after, _ := strings.Cut(sql, "?")
		w.args = append(w.args, arg)
		fmt.Fprintf(&b, "%s$%d", before, len(w.args))
		sql = after
	}
	b.WriteString(sql)
	return b.String()
}

// table is what differs between the two tables of rows.
type table struct {
	of   Of
	name string
	at   string // when a row came to it
}

var (
	deadLetters = &table{DeadLetters, "cdc_relay.dead_letter", "died_at"}
	deferred    = &table{Deferred, "cdc_relay.retry", "deferred_at"}
)

func tableOf(of Of) *table {
	if of == Deferred {
		return deferred
	}
	return deadLetters
}
