// Lists of deferred rows and dead letters: pages of rows, the newest first, and the filter that
// chooses rows for lists and for jobs.

package dlq

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Filter chooses rows of a table. A row is chosen when it matches every field that is set; nil and
// zero match everything. Texts of events are bytes, because they may not be UTF-8 and must not
// change in the JSON in which a job stores its filter.
type Filter struct {
	// These are compared byte for byte with the event's columns. An empty value matches the empty
	// text, not NULL.
	ID, Key, Aggregate, Type []byte
	// NoAggregate chooses events without an aggregate.
	NoAggregate bool

	Destination []byte // the exchange or topic, or exchange/routing key, as lists show it
	Class       string // of the last refusal, one of Classes
	// Error is the reason of the last rejection, or a part of its text, in any case and with any
	// digits.
	Error string
	State string // of dead letters, one of States; "" matches all except Purged

	// When the row became a dead letter, or was deferred: From <= at < To.
	From, To time.Time
}

// The states of a row.
const (
	Waiting   = "deferred"  // in the retry table
	Open      = "open"      // a dead letter that somebody has to decide about
	Replaying = "replaying" // an open dead letter whose replay was requested
	Replayed  = "replayed"
	Discarded = "discarded"
	Purged    = "purged" // nothing is left of it except its position
)

// States are the states of dead letters that a filter can name.
var States = []string{Open, Replaying, Replayed, Discarded, Purged}

// Classes are the classes of a refusal that a filter can name.
var Classes = []string{sink.Destination.String(), sink.Transient.String(), sink.Permanent.String()}

// reasons are the values of Filter.Error that mean a reason and not a part of the broker's text.
var reasons = []sink.Reason{
	sink.Unroutable, sink.NoExchange, sink.NotPermitted, sink.NoTopic, sink.NotAllowed, sink.NoLeader, sink.TooFewReplicas, sink.Nacked, sink.Unconfirmed,
	sink.TooLarge, sink.RowTooLarge, sink.Invalid, sink.NullInTemplate, sink.Undecodable, sink.BrokerException,
}

// BadInput is the error for a part of a filter, a cursor or a limit that cannot be used.
type BadInput struct {
	Name string // "class", "state", …
	What string
}

func (e *BadInput) Error() string { return e.Name + " " + e.What }

// Check returns an error for a filter that could never choose a row.
func (f *Filter) Check(of *Table) error {
	oneOf := func(name, value string, want []string) error {
		if value == "" || slices.Contains(want, value) {
			return nil
		}
		return &BadInput{name, fmt.Sprintf("is %q, want one of %s", value, strings.Join(want, ", "))}
	}
	if err := oneOf("class", f.Class, Classes); err != nil {
		return err
	}
	if err := oneOf("state", f.State, States); err != nil {
		return err
	}
	size := len(f.ID) + len(f.Key) + len(f.Aggregate) + len(f.Type) + len(f.Destination) + len(f.Error)
	switch {
	case size > maxFilter:
		return &BadInput{"filter", fmt.Sprintf("has %d bytes, want at most %d", size, maxFilter)}
	case f.State != "" && of == Deferred:
		return &BadInput{"state", "is not asked of deferred rows: they wait, all of them"}
	case f.NoAggregate && f.Aggregate != nil:
		return &BadInput{"aggregate", "is wanted and not wanted"}
	case !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To):
		return &BadInput{"to", fmt.Sprintf("is %s, which is not after from, %s", f.To.Format(time.RFC3339), f.From.Format(time.RFC3339))}
	}
	return nil
}

// choose adds the conditions of the filter.
func (f *Filter) choose(w *where, t *Table) {
	f.same(w, t, "id", f.ID)
	f.same(w, t, "aggregate", f.Aggregate)
	f.same(w, t, "key", f.Key)
	f.same(w, t, "type", f.Type)
	if f.NoAggregate {
		w.and("t.aggregate IS NULL")
	}
	if f.Destination != nil {
		f.destination(w, t)
	}
	if f.Class != "" {
		w.and("t.class = ?", f.Class)
	}
	if f.isReason() {
		w.and("t.reason = ?", f.Error)
	}
	if f.byText() {
		w.and(f.textCondition(w, "t"))
	}
	if t == DeadLetters {
		f.state(w)
	}
	if !f.From.IsZero() {
		w.and("t."+t.at+" >= ?", f.From)
	}
	if !f.To.IsZero() {
		w.and("t."+t.at+" < ?", f.To)
	}
}

// namesFault reports whether the filter names an event, or the fault of events.
func (f *Filter) namesFault() bool { return f.ID != nil || f.Class != "" || f.Error != "" }

// same adds the comparison of a column of the event. It also compares the beginning of the value
// where an index may have that: dead letters have one for each column, the retry table has one of
// ids and may be given one of keys.
func (f *Filter) same(w *where, t *Table, column string, value []byte) {
	if value == nil {
		return
	}
	if t == DeadLetters || column == "id" || column == "key" {
		w.and(prefixExpression("t."+column)+" = ?", prefix(value))
	}
	w.and("t."+column+" = ?", value)
}

// prefixSize is how many bytes of a long value an index has.
const prefixSize = 200

func prefix(b []byte) []byte { return b[:min(len(b), prefixSize)] }

// prefixExpression returns the expression that the indexes of cdc_relay.dead_letter have.
func prefixExpression(column string) string {
	return fmt.Sprintf("substring(%s, 1, %d)", column, prefixSize)
}

// destinationExpression is SQL for the destination of a row, as lists show it.
const destinationExpression = `(CASE WHEN t.routing_key IS NULL THEN t.route_name ELSE t.route_name || '/'::bytea || t.routing_key END)`

// destination chooses the rows of a destination, or of an exchange or topic with any routing key.
// It tries both, because an exchange and a routing key may have slashes in them.
func (f *Filter) destination(w *where, t *Table) {
	name := f.isDestination(w, t, "t.route_name")
	if bytes.Contains(f.Destination, []byte("/")) {
		name = "(" + name + " OR " + f.isDestination(w, t, destinationExpression) + ")"
	}
	w.and(name)
}

// isDestination returns the condition that a column, or an expression, is the destination of the
// filter.
func (f *Filter) isDestination(w *where, t *Table, column string) string {
	switch {
	case t == DeadLetters && len(f.Destination) < prefixSize:
		// That is all of it. With a second condition the planner would take it for rare.
		return w.bind(prefixExpression(column)+" = ?", f.Destination)
	case t == DeadLetters:
		return w.bind(prefixExpression(column)+" = ? AND "+column+" = ?", prefix(f.Destination), f.Destination)
	}
	return w.bind(column+" = ?", f.Destination)
}

func (f *Filter) state(w *where) {
	switch f.State {
	case "":
		w.and("t.state <> 'purged'")
	case Replaying:
		w.and("t.state = 'open' AND (t.n, t.slot, t.system_id) IN (SELECT n, slot, system_id FROM cdc_relay.request WHERE state = 'waiting' AND kind = 'replay')")
	default:
		w.and("t.state = ?", f.State)
	}
}

// isReason reports whether Error names a reason. A reason is never taken for a part of an error
// text.
func (f *Filter) isReason() bool { return slices.Contains(reasons, sink.Reason(f.Error)) }

// isByColumn reports whether the index on an aggregate, type or destination serves a list of
// dead letters.
func (f *Filter) isByColumn() bool {
	return (f.Aggregate != nil || f.Type != nil || f.Destination != nil) && f.Class == "" && f.Error == "" && f.State == ""
}

// isSplit reports whether a list of dead letters is made of two lists: of the exchange or topic
// with that name, and of the destination. An index has each of them in order, but not both
// together.
func (f *Filter) isSplit(t *Table) bool {
	return t == DeadLetters && bytes.Contains(f.Destination, []byte("/")) && f.ID == nil && f.Key == nil && f.isByColumn()
}

// byText reports whether the filter has a part of an error text.
func (f *Filter) byText() bool { return f.Error != "" && !f.isReason() }

// textCondition returns the condition that the error of alias contains the text of the filter.
func (f *Filter) textCondition(w *where, alias string) string {
	return w.bind("strpos(lower("+alias+".error), lower(?)) > 0", WithoutNumbers(f.Error))
}

// WithoutNumbers replaces what differs between equal faults by #: UUIDs and runs of digits. Error
// texts are stored and searched in this form.
func WithoutNumbers(words string) string { return numbers().ReplaceAllString(words, "#") }

var numbers = lazy.Regexp(`\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|[0-9#]+`)

// where collects the conditions of a statement with their arguments.
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

// bind gives the parameters in a piece of SQL their numbers.
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

// FilterInput is a filter as flags of a command, or as a query or body of the API. A nil field was
// not given.
type FilterInput struct {
	ID          *string    `json:"id"`
	Key         *string    `json:"key"`
	KeyOf       *int64     `json:"key_of"` // the number of a row with that key
	Aggregate   *string    `json:"aggregate"`
	Type        *string    `json:"type"`
	Destination *string    `json:"destination"`
	Class       *string    `json:"class"`
	Error       *string    `json:"error"`
	State       *string    `json:"state"`
	From        *time.Time `json:"from"`
	To          *time.Time `json:"to"`
}

// Set sets a part by its name. known is false when there is no such part.
func (in *FilterInput) Set(name, value string) (known bool, err error) {
	texts := map[string]**string{
		"id": &in.ID, "key": &in.Key, "aggregate": &in.Aggregate, "type": &in.Type,
		"destination": &in.Destination, "class": &in.Class, "error": &in.Error, "state": &in.State,
	}
	if text, is := texts[name]; is {
		*text = &value
		return true, nil
	}
	switch name {
	case "key_of":
		in.KeyOf = new(int64)
		if *in.KeyOf, err = strconv.ParseInt(value, 10, 64); err != nil {
			err = &BadInput{name, fmt.Sprintf("is %q, want the number of a row", value)}
		}
	case "from", "to":
		at, failed := time.Parse(time.RFC3339, value)
		if failed != nil {
			err = &BadInput{name, fmt.Sprintf("is %q, want a time such as 2026-11-20T15:04:05Z", value)}
		}
		*map[string]**time.Time{"from": &in.From, "to": &in.To}[name] = &at
	default:
		return false, nil
	}
	return true, err
}

// Filter makes the Filter. a finds the row of KeyOf; with a nil, KeyOf is only checked.
func (in *FilterInput) Filter(ctx context.Context, a *Admin) (Filter, error) {
	f := Filter{ID: octets(in.ID), Key: octets(in.Key), Aggregate: octets(in.Aggregate), Type: octets(in.Type), Destination: octets(in.Destination)}
	for _, text := range []struct {
		name  string
		given *string
		into  *string
	}{{"destination", in.Destination, nil}, {"class", in.Class, &f.Class}, {"error", in.Error, &f.Error}, {"state", in.State, &f.State}} {
		switch {
		case text.given == nil:
		case *text.given == "": // an empty variable of a script must not choose everything
			return f, &BadInput{text.name, "is empty; leave it out to match any"}
		case text.into != nil:
			*text.into = *text.given
		}
	}
	if in.From != nil {
		f.From = *in.From
	}
	if in.To != nil {
		f.To = *in.To
	}
	switch {
	case in.KeyOf == nil:
		return f, nil
	case in.Key != nil || in.Aggregate != nil:
		return f, &BadInput{"key_of", "excludes key and aggregate"}
	case a == nil:
		return f, nil
	}
	return f, a.SameKey(ctx, *in.KeyOf, &f)
}

// MaxLimit is how many rows a page of a list may have.
const MaxLimit = 1000

// List returns a page of rows, the newest first. cursor is the Next of the page before, or "" for
// the first page. Long values are cut, and a page with many long values has fewer rows than limit.
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

// order returns the ORDER BY for the newest first. The numbers of deferred rows rise in the order
// in which the rows came. Dead letters keep the number that they had as deferred rows, so they go
// by time.
func (t *Table) order() string {
	if t == Deferred {
		return "t.n DESC"
	}
	return "t.died_at DESC, t.n DESC"
}

// page makes the statement that reads a page of the rows that w chooses. $1 is the slot.
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
		return "SELECT t.* FROM ((" + query + " AND " + f.isDestination(w, t, "t.route_name") + last + ") UNION ALL (" +
			query + " AND " + f.isDestination(w, t, destinationExpression) + w.bind(" AND t.route_name <> ?", f.Destination) + last + ")) t" + last
	}
	return query + last
}

// byState makes a page from one page for each state, class and reason that the filter chooses,
// because the index has them in this order.
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

// ByState is SQL for the common table g, with the states, classes and reasons of the dead letters
// of slot $1.
var ByState = groups("state", "class", "reason")

// groups makes SQL for the common table g, with the distinct values that dead letters of slot $1
// have in some columns with which an index begins. It skips from one value to the next: for a few
// values among a million rows that takes well under a millisecond.
func groups(columns ...string) string {
	of := func(alias string) string { return alias + "." + strings.Join(columns, ", "+alias+".") }
	next := func(after string) string {
		return "(SELECT " + of("t") + " FROM cdc_relay.dead_letter t WHERE t.slot = $1" + after + " ORDER BY " + of("t") + " LIMIT 1)"
	}
	return "WITH RECURSIVE g AS (" + next("") + " UNION ALL SELECT n.* FROM g CROSS JOIN LATERAL " +
		next(" AND ("+of("t")+") > ("+of("g")+")") + " n)"
}

// columnList returns the columns that scanned reads, with one byte more than most of each value.
func columnList(t *Table, most int) string {
	named := func(columns ...string) string {
		for i, c := range columns {
			columns[i] = start("t."+c, most) + " AS " + c
		}
		return strings.Join(columns, ", ")
	}
	common := `t.n, t.system_id IS DISTINCT FROM (SELECT system_id FROM cdc_relay.slots s WHERE s.slot = t.slot) AS copied, t.commit_lsn::text, t.idx, ` +
		named("id", "aggregate", "key", "type") + `, t.commit_time, octet_length(t.payload)::bigint, ` + named("route_name", "routing_key") + `,
		t.class, t.reason, ` + named("error", "error_text", "destination") + `, t.attempts, t.first_failed_at, t.failed_at, t.deferred_at, `
	if t == Deferred {
		return common + `t.next_attempt, 'deferred'::text AS state, NULL::timestamptz AS died_at, NULL::timestamptz AS closed_at, NULL::timestamptz AS mirrored_at, false AS redacted, t.left_out, t.bytes, t.tx, t.relation`
	}
	return common + `NULL::timestamptz AS next_attempt, CASE WHEN t.state = 'open' AND EXISTS (SELECT FROM cdc_relay.request r
			WHERE r.n = t.n AND (r.slot, r.system_id) = (t.slot, t.system_id) AND r.state = 'waiting' AND r.kind = 'replay') THEN 'replaying' ELSE t.state END AS state,
		t.died_at, t.closed_at, t.mirrored_at, t.redacted_at IS NOT NULL AS redacted, t.left_out, t.bytes, t.tx, t.relation`
}

// again lets a statement be planned at each execution, for its arguments. A cached plan would be
// used for all arguments of a filter, and would be slow for values that few rows have, or only old
// rows.
const again = pgx.QueryExecModeDescribeExec

// rows reads at most limit rows with the columns of columnList, each value cut to most bytes, and
// stops once they have pageBytes. more reports that there are others.
func (a *Admin) rows(ctx context.Context, sql string, args []any, most, limit int) (list []Row, more bool, err error) {
	rows, err := a.db.Query(ctx, sql, append([]any{again}, args...)...)
	if err != nil {
		return nil, false, explain("read the rows", err)
	}
	defer rows.Close()
	list = []Row{} // so that it is [] as JSON
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
	rows.Close() // closing passes over the rest, row by row
	return list, more, explain("read the rows", rows.Err())
}

// find reads a row from the table that has it, and returns that table, or nil when no table has the
// row. It looks at the retry table first, because a row can move from there to the dead letters in
// between, and not the other way.
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

// cursor is a place in a list: behind the row with its number and, among dead letters, its time.
// Rows that come meanwhile do not move it.
type cursor struct {
	n      int64 // 0 means the first page
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

// after adds the condition for the rows behind the cursor.
func (c cursor) after(w *where, t *Table) {
	switch {
	case c.n == 0:
	case t == Deferred:
		w.and("t.n < ?", c.n)
	default:
		w.and("(t.died_at, t.n) < (?, ?)", time.UnixMicro(c.micros), c.n)
	}
}
