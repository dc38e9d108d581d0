// Apply writes the results of rows.

package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// addNames adds the columns by which statements name rows: position and number. So a row that was
// deferred again at the same position does not match, and neither does another leader's row.
func (a *arrays) addNames(rows []*store.Row) {
	incarnation, commit := make([]int64, len(rows)), make([]string, len(rows))
	index, n := make([]int64, len(rows)), make([]int64, len(rows))
	for i, row := range rows {
		pos := row.Event.Position
		incarnation[i], commit[i], index[i], n[i] = row.Incarnation, pos.Commit.String(), int64(pos.Index), row.N
	}
	a.add("x_incarnation", "bigint", incarnation)
	a.add("x_commit", "text", commit)
	a.add("x_idx", "bigint", index)
	a.add("x_n", "bigint", n)
}

// named is the condition that t is the row that x names.
var named = `t.n = x_n AND t.incarnation = x_incarnation AND t.commit_lsn = x_commit::pg_lsn AND t.idx = x_idx AND ` + byNumber("t")

// addRefusals adds the columns of the last rejections of rows; NULL class: no new one.
func (a *arrays) addRefusals(results []store.Result, as storable) {
	class, reason := make([]*string, len(results)), make([]string, len(results))
	text, destination := make([]string, len(results)), make([]string, len(results))
	attempts := make([]int32, len(results))
	for i, r := range results {
		c, why := store.Refusal(r.Class, r.Reason)
		if r.Reason != "" {
			class[i] = &c
		}
		reason[i], attempts[i] = why, int32(r.Attempts)
		text[i] = as.errorText(r.Text)
		destination[i] = as(store.BoundedText(r.Destination, store.TextSize))
	}
	a.add("x_class", "text", class)
	a.add("x_reason", "text", reason)
	a.add("x_error", "text", text)
	a.add("x_destination", "text", destination)
	a.add("x_attempts", "integer", attempts)
}

// afterRefusal are the new values of the columns of a row for which x has a rejection; $4 is the
// time of the rejection, by our clock.
var afterRefusal = map[string]string{
	"class":           "CASE WHEN x_class IS NULL THEN t.class ELSE x_class END",
	"reason":          "CASE WHEN x_class IS NULL THEN t.reason ELSE x_reason END",
	"error":           "CASE WHEN x_class IS NULL THEN t.error ELSE x_error END",
	"destination":     "CASE WHEN x_class IS NULL THEN t.destination ELSE x_destination END",
	"first_failed_at": "CASE WHEN x_class IS NULL THEN t.first_failed_at WHEN t.attempts = 0 AND x_attempts > 0 THEN $4::timestamptz ELSE coalesce(t.first_failed_at, $4::timestamptz) END",
	"failed_at":       "CASE WHEN x_class IS NULL THEN t.failed_at ELSE $4::timestamptz END",
	"attempts":        "CASE WHEN x_class IS NULL THEN t.attempts ELSE x_attempts END",
}

// assign returns new values of columns as the assignments of an UPDATE.
func assign(values map[string]string) (assignments string) {
	for _, f := range fields {
		if value, ok := values[f.name]; ok {
			assignments += f.name + " = " + value + ", "
		}
	}
	return assignments
}

// applied are the parameters of one Apply: the rows to delete, to retry later, and to dead-letter.
type applied struct{ gone, wait, dead arrays }

func applyArrays(results []store.Result, as storable) (a applied) {
	var rows [3][]*store.Row
	var of [3][]store.Result
	for _, r := range results {
		rows[r.Kind], of[r.Kind] = append(rows[r.Kind], r.Row), append(of[r.Kind], r)
	}
	a.gone.addNames(rows[store.Delivered])
	a.wait.addNames(rows[store.Backoff])
	a.wait.addRefusals(of[store.Backoff], as)
	after := make([]*float64, len(of[store.Backoff]))
	for i, r := range of[store.Backoff] {
		if r.After > 0 {
			secs := r.After.Seconds()
			after[i] = &secs
		}
	}
	a.wait.add("x_after", "float8", after)
	a.dead.addNames(rows[store.Dead])
	a.dead.addRefusals(of[store.Dead], as)
	return a
}

// sql returns the statement. Its parameters from $5 on are those of args. A row is moved by DELETE
// … RETURNING: if its dead letter exists already, the statement fails and does nothing.
func (a *applied) sql() string {
	first := 5
	from := func(a *arrays) string {
		sql := "fence, " + a.table(first, a.names)
		first += len(a.values)
		return sql
	}
	gone, wait, dead := from(&a.gone), from(&a.wait), from(&a.dead)
	return writeFence + `,
		gone AS (DELETE FROM cdc_relay.retry t USING ` + gone + ` WHERE ` + named + ` RETURNING t.relation, t.tx, t.id),
		sent AS (` + sent.InsertRowsSQL("gone", "$1") + `),
		waits AS (UPDATE cdc_relay.retry t SET ` + assign(afterRefusal) + `next_attempt = now() + make_interval(secs => x_after) FROM ` + wait + ` WHERE ` + named + `),
		dead AS (DELETE FROM cdc_relay.retry t USING ` + dead + ` WHERE ` + named + ` RETURNING t.*, ` + strings.Join(a.dead.names, ", ") + `),
		moved AS (INSERT INTO cdc_relay.dead_letter (slot, system_id, ` + fieldNames() + `, deferred_at)
			SELECT t.slot, t.system_id, ` + fieldList("t", afterRefusal) + `, t.deferred_at FROM dead t)
		SELECT true FROM fence`
}

func (a *applied) args(system string) []any {
	args := []any{system, time.Now()}
	for _, part := range []*arrays{&a.gone, &a.wait, &a.dead} {
		args = append(args, part.values...)
	}
	return args
}

var applySQL = func() string {
	a := applyArrays(nil, nil)
	return a.sql()
}()

// Apply implements Store.
func (p *Store) Apply(ctx context.Context, results []store.Result) error {
	if len(results) == 0 {
		return nil
	}
	args := func(as storable) []any {
		a := applyArrays(results, as)
		return a.args(p.c.SystemID)
	}
	rows := make([]*store.Row, len(results))
	var moved []*store.Row // the others' large columns are not written
	for i, r := range results {
		if rows[i] = r.Row; r.Kind == store.Dead {
			moved = append(moved, r.Row)
		}
	}
	return withRow(p.changeRows(ctx, "apply results", sizeOf(moved), applySQL, args, func(pgx.Rows) error { return nil }), rows...)
}
