// List returns pages of rows, newest first, and the cursors between them.

package dlq

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// MaxLimit is the longest page of a list.
const MaxLimit = 1000

// List returns a page of rows, the newest first, from a cursor on: the Next of the page before, ""
// for the first page. Long values are cut, and a page of many long ones has fewer rows than limit.
func (a *Admin) List(ctx context.Context, of *Table, f Filter, cursor string, limit int) (Page, error) {
	t := of
	if err := f.Check(of); err != nil {
		return Page{}, err
	}
	if limit < 1 || limit > MaxLimit {
		return Page{}, &BadInput{"limit", fmt.Sprintf("is %d, want 1 to %d", limit, MaxLimit)}
	}
	from, err := parseCursor(cursor)
	if err != nil {
		return Page{}, err
	}
	var w where
	w.and("t.slot = ?", a.slot)
	chosen := f
	if f.isSplit(t) {
		chosen.Destination = nil // page adds it
	}
	chosen.choose(&w, t)
	from.after(&w, t)
	rows, more, err := a.rows(ctx, f.page(t, &w, limit+1), w.args, listText, limit)
	if err != nil {
		return Page{}, err
	}
	p := Page{Rows: rows}
	if more {
		p.Next = cursorAt(&rows[len(rows)-1], t)
	}
	return p, nil
}

// order is newest first. The numbers of deferred rows rise in the order in which they came;
// dead letters keep the number from when they were deferred.
func (t *Table) order() string {
	if t == Deferred {
		return "t.n DESC"
	}
	return "t.died_at DESC, t.n DESC"
}

// page is the statement that reads a page of what w chooses. $1 is the slot.
func (f *Filter) page(t *Table, w *where, limit int) string {
	query := "SELECT " + columnList(t, listText) + " FROM " + t.name + " t WHERE " + w.sql.String()
	last := fmt.Sprintf(" ORDER BY %s LIMIT %d", t.order(), limit)
	switch {
	case t == Deferred || f.ID != nil || f.Key != nil || f.State == Replaying:
		return query + last
	case f.byText():
		return groups("error") + " SELECT t.* FROM g CROSS JOIN LATERAL (" + query + " AND t.error = g.error" + last + ") t WHERE " + f.textCondition(w, "g") + last
	case !f.isByColumn():
		return f.byState(query, w, last)
	case f.isSplit(t):
		return "SELECT t.* FROM ((" + query + " AND " + f.going(w, t, "t.route_name") + last + ") UNION ALL (" +
			query + " AND " + f.going(w, t, destinationExpression) + w.bind(" AND t.route_name <> ?", f.Destination) + last + ")) t" + last
	}
	return query + last
}

// byState takes a page of each state, class and reason that the filter chooses.
func (f *Filter) byState(query string, w *where, last string) string {
	of := where{args: w.args}
	if f.State != "" {
		of.and("g.state = ?", f.State)
	} else {
		of.and("g.state <> 'purged'")
	}
	if f.Class != "" {
		of.and("g.class = ?", f.Class)
	}
	if f.isReason() {
		of.and("g.reason = ?", f.Error)
	}
	w.args = of.args
	return ByState + " SELECT t.* FROM g CROSS JOIN LATERAL (" + query +
		" AND t.state = g.state AND t.class = g.class AND t.reason = g.reason" + last + ") t WHERE " + of.sql.String() + last
}

// ByState is the common table g of the states, classes and reasons that dead letters of slot $1
// have.
var ByState = groups("state", "class", "reason")

// groups is the common table g of the distinct values that dead letters of slot $1 have in some
// columns, with which an index begins. It skips from one to the next: for a few groups among a
// million rows that takes well under a millisecond.
func groups(columns ...string) string {
	of := func(alias string) string { return alias + "." + strings.Join(columns, ", "+alias+".") }
	next := func(after string) string {
		return "(SELECT " + of("t") + " FROM cdc_relay.dead_letter t WHERE t.slot = $1" + after + " ORDER BY " + of("t") + " LIMIT 1)"
	}
	return "WITH RECURSIVE g AS (" + next("") + " UNION ALL SELECT n.* FROM g CROSS JOIN LATERAL " +
		next(" AND ("+of("t")+") > ("+of("g")+")") + " n)"
}

// columnList are the columns that scan reads, each value up to most bytes and one.
func columnList(t *Table, most int) string {
	named := func(columns ...string) string {
		for i, c := range columns {
			columns[i] = start("t."+c, most) + " AS " + c
		}
		return strings.Join(columns, ", ")
	}
	common := `t.n, t.system_id IS DISTINCT FROM (SELECT system_id FROM cdc_relay.slots s WHERE s.slot = t.slot) AS copied, t.commit_lsn::text, t.idx, ` +
		named("id", "aggregate", "key", "type") + `, t.commit_time, octet_length(t.payload)::bigint, ` + named("route_name", "routing_key") + `,
		t.class, t.reason, ` + named("error", "destination") + `, t.attempts, t.first_failed_at, t.failed_at, t.deferred_at, `
	if t == Deferred {
		return common + `t.next_attempt, 'deferred'::text AS state, NULL::timestamptz AS died_at, NULL::timestamptz AS closed_at, NULL::timestamptz AS mirrored_at, false AS redacted, t.left_out, t.bytes`
	}
	return common + `NULL::timestamptz AS next_attempt, CASE WHEN t.state = 'open' AND EXISTS (SELECT FROM cdc_relay.request r
			WHERE r.n = t.n AND (r.slot, r.system_id) = (t.slot, t.system_id) AND r.state = 'waiting' AND r.kind = 'replay') THEN 'replaying' ELSE t.state END AS state,
		t.died_at, t.closed_at, t.mirrored_at, t.redacted_at IS NOT NULL AS redacted, t.left_out, t.bytes`
}

// again has a statement planned at each execution, for its arguments. A cached plan would be used
// for all arguments of a filter, and would be slow for values that few rows have, or only old rows.
const again = pgx.QueryExecModeDescribeExec

// rows reads what columnList names: at most limit rows, and none after pageBytes; more reports that
// there are others.
func (a *Admin) rows(ctx context.Context, sql string, args []any, most, limit int) (list []Row, more bool, err error) {
	rows, err := a.db.Query(ctx, sql, append([]any{again}, args...)...)
	if err != nil {
		return nil, false, explain("read the rows", err)
	}
	defer rows.Close()
	list = []Row{} // [] as JSON
	for size := 0; rows.Next(); {
		if len(list) == limit || size >= pageBytes {
			more = true
			break
		}
		var r Row
		var s scanned
		if err := rows.Scan(s.into(&r)...); err != nil {
			return nil, false, explain("read the rows", err)
		}
		for _, value := range rows.RawValues() {
			size += len(value)
		}
		s.finish(&r, most)
		list = append(list, r)
	}
	rows.Close() // what follows is passed, row by row
	return list, more, explain("read the rows", rows.Err())
}

// find reads a row wherever it is, and says in which table; nil when it is nowhere. It looks at the
// retry table first: a row can leave it for the dead letters in between, and not the other way.
func (a *Admin) find(ctx context.Context, n int64) (row Row, is *Table, err error) {
	for _, t := range []*Table{Deferred, DeadLetters} {
		rows, _, err := a.rows(ctx, "SELECT "+columnList(t, showText)+" FROM "+t.name+" t WHERE t.slot = $1 AND t.n = $2",
			[]any{a.slot, n}, showText, 1)
		if err != nil || len(rows) > 0 {
			return append(rows, Row{})[0], t, err
		}
	}
	return Row{}, nil, nil
}

// cursor is a place in a list: behind the row with that number and, in dead letters, that time.
// Rows that come meanwhile do not move it.
type cursor struct {
	n      int64 // 0: the first page
	micros int64 // of died_at, since 1970
}

func cursorAt(r *Row, t *Table) string {
	if t == Deferred {
		return strconv.FormatInt(r.N, 10)
	}
	return fmt.Sprintf("%d-%d", r.DiedAt.UnixMicro(), r.N)
}

// parseCursor reads what cursorAt wrote.
func parseCursor(s string) (c cursor, err error) {
	if s == "" {
		return cursor{}, nil
	}
	micros, n, both := strings.Cut(s, "-")
	if !both {
		micros, n = "0", s
	}
	if c.micros, err = strconv.ParseInt(micros, 10, 64); err == nil {
		c.n, err = strconv.ParseInt(n, 10, 64)
	}
	if err != nil || c.n <= 0 {
		return cursor{}, &BadInput{"cursor", fmt.Sprintf("is %q, which no list has returned", s)}
	}
	return c, nil
}

// after adds the condition for what is behind the cursor.
func (c cursor) after(w *where, t *Table) {
	switch {
	case c.n == 0:
	case t == Deferred:
		w.and("t.n < ?", c.n)
	default:
		w.and("(t.died_at, t.n) < (?, ?)", time.UnixMicro(c.micros), c.n)
	}
}
