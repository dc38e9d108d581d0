package dlq

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
)

// MaxLimit is the longest page of a list.
const MaxLimit = 1000

// List gives a page of rows, the newest first, from the place that cursor names: the Next of the page before, "" for the
// first.
func (d *Desk) List(ctx context.Context, of Of, f Filter, cursor string, limit int) (Page, error) {
	t := tableOf(of)
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
	w.and("t.slot = ?", d.slot)
	f.choose(&w, t)
	from.after(&w, t)
	rows, err := d.rows(ctx, f.page(t, &w, limit+1), w.args)
	if err != nil {
		return Page{}, err
	}
	p := Page{Rows: rows}
	if len(rows) > limit {
		p.Rows = rows[:limit]
		p.Next = cursorAt(&p.Rows[limit-1], t)
	}
	return p, nil
}

// order is newest first. Parked rows have numbers in the order they came; letters have them from when they were parked.
func (t *table) order() string {
	if t == parked {
		return "t.n DESC"
	}
	return "t.died_at DESC, t.n DESC"
}

// page is the statement that reads a page of what w chooses. With a part of the error's words it takes a page of each text that
// has it: the server has an index for one text in order, not for several.
func (f *Filter) page(t *table, w *where, limit int) string {
	query := "SELECT " + columnsOf(t) + " FROM " + t.name + " t LEFT JOIN cdc_relay.error_text e ON e.slot = t.slot AND e.id = t.error_id WHERE " + w.sql.String()
	last := fmt.Sprintf(" ORDER BY %s LIMIT %d", t.order(), limit)
	if f.byWords() {
		return "SELECT t.* FROM (" + f.texts(w) + ") x CROSS JOIN LATERAL (" + query + " AND t.error_id = x.id" + last + ") t" + last
	}
	return query + last
}

// byWords is true when a part of the error's words is asked for.
func (f *Filter) byWords() bool { return f.Error != "" && !f.isReason() }

// texts is the query for the texts of slot $1 that have the words asked for.
func (f *Filter) texts(w *where) string {
	return w.bind(`SELECT id FROM cdc_relay.error_text WHERE slot = $1 AND strpos(lower(regexp_replace(text, '#+', '#', 'g')), lower(?)) > 0`,
		numbers.ReplaceAllString(f.Error, "#"))
}

// said adds the condition on the error's words, where no order is wanted.
func (f *Filter) said(w *where) {
	if f.byWords() {
		w.and("t.error_id = ANY (ARRAY(" + f.texts(w) + "))")
	}
}

// numbers are what error texts are kept without, UUIDs among them; # stands for each.
var numbers = regexp.MustCompile(`\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|[0-9#]+`)

// columnsOf are the columns that scan reads.
func columnsOf(t *table) string {
	common := `t.n, t.system_id IS DISTINCT FROM (SELECT system_id FROM cdc_relay.slots s WHERE s.slot = t.slot) AS copied, t.commit_lsn::text, t.idx, t.id, t.aggregate, t.key, t.type, t.commit_time, octet_length(t.payload)::bigint,
		t.route_name, t.routing_key, t.class, t.reason, coalesce(e.text, '') AS words, t.destination, t.attempts, t.first_failed_at, t.failed_at, t.parked_at, `
	if t == parked {
		return common + `t.next_attempt, 'parked'::text AS state, NULL::timestamptz AS died_at, NULL::timestamptz AS closed_at, NULL::timestamptz AS mirrored_at, false AS redacted`
	}
	return common + `NULL::timestamptz AS next_attempt, CASE WHEN t.state = 'open' AND EXISTS (SELECT FROM cdc_relay.request r
			WHERE r.n = t.n AND r.state = 'waiting' AND r.kind = 'replay') THEN 'replaying' ELSE t.state END AS state,
		t.died_at, t.closed_at, t.mirrored_at, t.redacted_at IS NOT NULL AS redacted`
}

// anew has a statement planned for its arguments at each execution. A plan that is kept would serve any argument of a filter,
// and be a bad one for those that few rows have, or only old ones.
const anew = pgx.QueryExecModeDescribeExec

// rows reads what columnsOf names.
func (d *Desk) rows(ctx context.Context, sql string, args []any) ([]Row, error) {
	rows, err := d.db.Query(ctx, sql, append([]any{anew}, args...)...)
	if err != nil {
		return nil, explain("read the rows", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Row, error) {
		var r Row
		var s scanned
		err := row.Scan(s.into(&r)...)
		s.finish(&r)
		return r, err
	})
	if err != nil {
		return nil, explain("read the rows", err)
	}
	return list, nil
}
