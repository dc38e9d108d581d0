package dlq

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Filter chooses rows of a table. A row is chosen when it fits all that is set; what is nil or zero asks for nothing.
type Filter struct {
	// These are compared byte for byte with the event's columns; "" is the empty text, which NULL is not.
	ID, Key, Aggregate, Type *string
	// NoAggregate wants events without an aggregate.
	NoAggregate bool

	Destination string // exchange or topic, or exchange/routing key: as lists show it
	Class       string // of the last refusal: one of Classes
	Error       string // of the last refusal: its reason, or a part of its words, in any case and with any digits
	State       string // of letters, one of States; "" is all but Purged

	// When it became a dead letter, or was parked: From <= at < To.
	From, To time.Time
}

// The states of a row.
const (
	Waiting   = "parked"    // in the retry table
	Open      = "open"      // a dead letter that somebody has to decide about
	Replaying = "replaying" // an open one whose replay was asked for
	Replayed  = "replayed"
	Discarded = "discarded"
	Purged    = "purged" // nothing is left of it but its position
)

// States are the states of letters that a filter can name.
var States = []string{Open, Replaying, Replayed, Discarded, Purged}

// Classes are the classes of a refusal that a filter can name.
var Classes = []string{sink.Destination.String(), sink.Transient.String(), sink.Permanent.String()}

// reasons are the words of Filter.Error that mean a reason and no part of the broker's words.
var reasons = []sink.Reason{
	sink.Unroutable, sink.NoExchange, sink.NotPermitted, sink.NoTopic, sink.NoLeader, sink.TooFewReplicas, sink.Nacked, sink.Unconfirmed,
	sink.TooLarge, sink.Invalid, sink.NullInTemplate, sink.Undecodable, sink.BrokerException,
}

// BadInput is a part of a filter, a cursor or a limit that cannot be used.
type BadInput struct {
	Name string // "class", "state", …
	What string
}

func (e *BadInput) Error() string { return e.Name + " " + e.What }

// Check refuses a filter that could never choose anything.
func (f *Filter) Check(of Of) error {
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
	switch {
	case f.State != "" && of == Parked:
		return &BadInput{"state", "is not asked of parked rows: they wait, all of them"}
	case f.NoAggregate && f.Aggregate != nil:
		return &BadInput{"aggregate", "is wanted and not wanted"}
	case !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To):
		return &BadInput{"to", fmt.Sprintf("is %s, which is not after from, %s", f.To.Format(time.RFC3339), f.From.Format(time.RFC3339))}
	}
	return nil
}

// where is the conditions of a statement, with their arguments.
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
	letters = &table{Letters, "cdc_relay.dead_letter", "died_at"}
	parked  = &table{Parked, "cdc_relay.retry", "parked_at"}
)

func tableOf(of Of) *table {
	if of == Parked {
		return parked
	}
	return letters
}

// choose adds the conditions of the filter.
func (f *Filter) choose(w *where, t *table) {
	f.same(w, t, "id", f.ID)
	f.same(w, t, "aggregate", f.Aggregate)
	f.same(w, t, "key", f.Key)
	f.same(w, t, "type", f.Type)
	if f.NoAggregate {
		w.and("t.aggregate IS NULL")
	}
	if f.Destination != "" {
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
	if t == letters {
		f.state(w)
	}
	if !f.From.IsZero() {
		w.and("t."+t.at+" >= ?", f.From)
	}
	if !f.To.IsZero() {
		w.and("t."+t.at+" < ?", f.To)
	}
}

// same compares a column of the event. A dead letter is found by the beginning of the value.
func (f *Filter) same(w *where, t *table, column string, value *string) {
	if value == nil {
		return
	}
	b := []byte(*value)
	if t == letters {
		w.and(prefixOf("t."+column)+" = ?", prefix(b))
	}
	w.and("t."+column+" = ?", b)
}

// prefixSize is how many bytes of a long value an index has.
const prefixSize = 200

func prefix(b []byte) []byte { return b[:min(len(b), prefixSize)] }

// prefixOf is the expression that the indexes of cdc_relay.dead_letter are on.
func prefixOf(column string) string { return fmt.Sprintf("substring(%s, 1, %d)", column, prefixSize) }

// destinationOf is where a row goes, as lists show it.
const destinationOf = `(CASE WHEN t.routing_key IS NULL THEN t.route_name ELSE t.route_name || '/'::bytea || t.routing_key END)`

// destination chooses the rows of a destination, or of an exchange or topic with any routing key. A slash may be part of both.
func (f *Filter) destination(w *where, t *table) {
	name := f.going(w, t, "t.route_name")
	if strings.Contains(f.Destination, "/") {
		name = "(" + name + " OR " + f.going(w, t, destinationOf) + ")"
	}
	w.and(name)
}

// going is the condition that a column, or an expression, is the destination asked for.
func (f *Filter) going(w *where, t *table, column string) string {
	b := []byte(f.Destination)
	if t == letters {
		return w.bind(prefixOf(column)+" = ? AND "+column+" = ?", prefix(b), b)
	}
	return w.bind(column+" = ?", b)
}

func (f *Filter) state(w *where) {
	switch f.State {
	case "":
		w.and("t.state <> 'purged'")
	case Replaying:
		w.and("t.state = 'open' AND t.n IN (SELECT n FROM cdc_relay.request WHERE state = 'waiting' AND kind = 'replay')")
	default:
		w.and("t.state = ?", f.State)
	}
}

// isReason is true when Error names a reason; a reason is never a part of an error text.
func (f *Filter) isReason() bool { return slices.Contains(reasons, sink.Reason(f.Error)) }

// SameKey makes the filter choose the aggregate and key of a row: for keys that are too long or odd to be typed.
func (d *Desk) SameKey(ctx context.Context, n int64, f *Filter) error {
	row, is, err := d.find(ctx, n)
	switch {
	case err != nil:
		return err
	case is == "":
		return &NotFound{What: "row", N: n, Slot: d.slot}
	case row.Key == nil:
		return &NotNow{"key of", n, "that event has no key"}
	}
	f.Key, f.Aggregate, f.NoAggregate = row.Key, row.Aggregate, row.Aggregate == nil
	return nil
}
