// Filter selects the rows of a list or of a bulk job.

package dlq

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Filter chooses rows of a table. A row is chosen when it matches all fields that are set; nil and
// zero match everything. Texts of events are bytes: they may not be UTF-8, and JSON, as which a job
// stores its filter, does not change them.
type Filter struct {
	// These are compared byte for byte with the event's columns. "" matches the empty text, not
	// NULL.
	ID, Key, Aggregate, Type []byte
	// NoAggregate wants events without an aggregate.
	NoAggregate bool

	Destination []byte // exchange or topic, or exchange/routing key: as lists show it
	Class       string // of the last refusal: one of Classes
	// of the last rejection: its reason, or a part of its text, in any case and with any digits
	Error string
	State string // of dead letters, one of States; "" is all but Purged

	// When it became a dead letter, or was deferred: From <= at < To.
	From, To time.Time
}

// The states of a row.
const (
	Waiting   = "deferred"  // in the retry table
	Open      = "open"      // a dead letter that somebody has to decide about
	Replaying = "replaying" // an open one whose replay was asked for
	Replayed  = "replayed"
	Discarded = "discarded"
	Purged    = "purged" // nothing is left of it but its position
)

// States are the states of dead letters that a filter can name.
var States = []string{Open, Replaying, Replayed, Discarded, Purged}

// Classes are the classes of a refusal that a filter can name.
var Classes = []string{sink.Destination.String(), sink.Transient.String(), sink.Permanent.String()}

// reasons are the values of Filter.Error that mean a reason, not a part of the broker's text.
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

// Check rejects a filter that could never choose anything.
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

// namesFault reports whether the filter is by the fault of an event, or names the event.
func (f *Filter) namesFault() bool { return f.ID != nil || f.Class != "" || f.Error != "" }

// same adds the comparison of a column of the event. Dead letters have an index on the beginning of
// the value.
func (f *Filter) same(w *where, t *Table, column string, value []byte) {
	if value == nil {
		return
	}
	if t == DeadLetters {
		w.and(prefixExpression("t."+column)+" = ?", prefix(value))
	}
	w.and("t."+column+" = ?", value)
}

// prefixSize is how many bytes of a long value an index has.
const prefixSize = 200

func prefix(b []byte) []byte { return b[:min(len(b), prefixSize)] }

// prefixExpression is the expression that the indexes of cdc_relay.dead_letter are on.
func prefixExpression(column string) string {
	return fmt.Sprintf("substring(%s, 1, %d)", column, prefixSize)
}

// destinationExpression is the destination of a row, as lists show it.
const destinationExpression = `(CASE WHEN t.routing_key IS NULL THEN t.route_name ELSE t.route_name || '/'::bytea || t.routing_key END)`

// destination chooses the rows of a destination, or of an exchange or topic with any routing key.
// The name of an exchange and a routing key may have slashes.
func (f *Filter) destination(w *where, t *Table) {
	name := f.going(w, t, "t.route_name")
	if bytes.Contains(f.Destination, []byte("/")) {
		name = "(" + name + " OR " + f.going(w, t, destinationExpression) + ")"
	}
	w.and(name)
}

// going is the condition that a column, or an expression, is the requested destination.
func (f *Filter) going(w *where, t *Table, column string) string {
	if t == DeadLetters {
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

// isReason reports whether Error names a reason; a reason is never a part of an error text.
func (f *Filter) isReason() bool { return slices.Contains(reasons, sink.Reason(f.Error)) }

// isByColumn reports whether the index on an aggregate, type or destination serves the list of
// dead letters.
func (f *Filter) isByColumn() bool {
	return (f.Aggregate != nil || f.Type != nil || f.Destination != nil) && f.Class == "" && f.Error == "" && f.State == ""
}

// isSplit reports whether a list of dead letters is made of two: of the exchange or topic with that
// name, and of the destination. An index gives each in order, but not both together.
func (f *Filter) isSplit(t *Table) bool {
	return t == DeadLetters && bytes.Contains(f.Destination, []byte("/")) && f.ID == nil && f.Key == nil && f.isByColumn()
}

// byText reports whether the filter has a part of the error text.
func (f *Filter) byText() bool { return f.Error != "" && !f.isReason() }

// textCondition is the condition that the error of alias contains that text.
func (f *Filter) textCondition(w *where, alias string) string {
	return w.bind("strpos(lower("+alias+".error), lower(?)) > 0", WithoutNumbers(f.Error))
}

// WithoutNumbers replaces what differs between equal faults by #: UUIDs, and runs of digits. Error
// texts are stored, and searched, in this form.
func WithoutNumbers(words string) string { return numbers().ReplaceAllString(words, "#") }

var numbers = lazy.Regexp(`\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|[0-9#]+`)

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
