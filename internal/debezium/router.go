// The Event Router: what is known of a table, and where a row of it goes.

package debezium

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unsafe"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Router is the sink.Encoder of a profile.
//
// Nothing is lost in it: an event of which it cannot make a record is refused for ever
// (sink.Permanent) and becomes a dead letter with all its columns, where Debezium's task would end.
// Its record depends on nothing that may differ at the next delivery but the options: a row that
// waits in the retry table carries the shape of its table and the destination it was going to, so
// it is rendered later as it would have been then. Options that were changed meanwhile apply to it,
// all but those that decide the destination.
type Router struct {
	o       *Options
	copies  sink.Encoder
	traits  sink.Traits
	placed  []int // the places in Event.Columns
	version int

	mu         sync.RWMutex
	tables     map[*event.Shape]*table
	tablesRead uint64 // tables so far

	envelopes cache[*connect.Schema] // by table, version and routed value
}

// maxTables bounds the shapes that are kept: a table has a new one each time it is described, and
// rows of the retry table may bring old ones.
const maxTables = 256

// Encoder gives the encoder for events whose extra columns are these; Options.Columns must be among
// them. copies makes the copies of dead letters: they are reports, in the relay's own format.
func (o *Options) Encoder(columns []string, copies sink.Encoder) (*Router, error) {
	r := &Router{o: o, copies: copies, tables: map[*event.Shape]*table{}, version: -1}
	r.traits.Partitions = o.profile == Connect && slices.ContainsFunc(o.placed, func(f placement) bool { return f.where == asPartition })
	place := func(name string) int { return slices.Index(columns, name) }
	for _, f := range o.placed {
		i := place(f.column)
		if i < 0 {
			return nil, fmt.Errorf("column %q is not read", f.column)
		}
		r.placed = append(r.placed, i)
	}
	if o.version != "" {
		if r.version = place(o.version); r.version < 0 {
			return nil, fmt.Errorf("column %q is not read", o.version)
		}
	}
	return r, nil
}

// What keeps an event from being rendered. They are shared by all events concerned, and hold
// nothing of a row.
var (
	errNoRoute = errors.New("the column of route.by.field is NULL, so there is no topic")
	noRoute    = sink.PermanentFault(sink.NullInTemplate, errNoRoute.Error())
	errNoShape = errors.New("the shape of its table is not known: it was deferred without sink.compat, and goes by the configuration of then, or by a version whose shapes this one cannot read")
)

// table is the table of the event's row.
func (r *Router) table(ev *event.Event) (*table, error) {
	if ev.Shape == nil {
		return nil, errNoShape
	}
	r.mu.RLock()
	t := r.tables[ev.Shape]
	r.mu.RUnlock()
	if t != nil {
		return t, nil
	}
	t = r.o.tableOf(ev.Shape)
	r.mu.Lock()
	if len(r.tables) >= maxTables {
		clear(r.tables)
	}
	r.tablesRead++
	t.number = r.tablesRead
	r.tables[ev.Shape] = t
	r.mu.Unlock()
	return t, nil
}

// route makes the topic, and exchange and routing key unless the routing key is the record's key.
func (r *Router) route(ev *event.Event, rec *Record) error {
	if ev.Aggregate == nil {
		return errNoRoute
	}
	var err error
	if rec.Buf, err = r.o.topics.append(rec.Buf, ev.Aggregate, &rec.Budget); err != nil {
		return fmt.Errorf("topic: %w", err)
	}
	rec.Topic = rec.MadeSince(0)
	if r.o.profile == Server {
		r.o.appendDestination(rec)
	}
	return nil
}

// place makes key and partition.
func (r *Router) place(ev *event.Event, t *table, rec *Record) (err error) {
	if t.route != nil {
		return t.route
	}
	if rec.Key, err = rec.convert(r.o.keys, &t.key, ev.Key); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if r.o.profile == Server {
		if r.o.rabbit.source == "key" {
			if rec.RoutingKey = rec.Key; rec.Key == nil {
				rec.RoutingKey = []byte{}
			}
		}
		return nil // its sinks carry no partition
	}
	for i, f := range r.o.placed {
		if f.where == asPartition && !t.placed[i].missing {
			if err := r.partition(ev, &t.placed[i], r.placed[i], rec); err != nil {
				return err
			}
		}
	}
	return nil
}

// partition takes the partition of a column; the last one counts. NULL is none, also where the
// column has a default.
func (r *Router) partition(ev *event.Event, c *column, at int, rec *Record) error {
	if c.err != nil {
		return c.err
	}
	rec.Partition = sink.ByKey
	if ev.Columns[at] == nil {
		return nil
	}
	v, scratch, err := c.Value(rec.scratch, ev.Columns[at])
	rec.scratch = scratch
	switch {
	case err != nil:
		return err
	case v.Int < 0:
		return errors.New("the partition is below 0")
	}
	rec.Partition = int32(v.Int)
	return nil
}

// table is a shape, read: its columns, and the schemas of its envelopes. It is safe for concurrent
// use.
type table struct {
	id, key, payload column
	route            error // what keeps the route from being one
	placed           []column
	version          column
	name             string // of its own schema
	number           uint64 // among those of the router
}

// column is one of its columns, or why rows cannot be rendered with it.
type column struct {
	*connect.Column
	err     error
	missing bool // and that is no error
}

// tableOf makes a table of a shape.
func (o *Options) tableOf(shape *event.Shape) *table {
	t := &table{
		id: o.column(shape, o.id), key: o.column(shape, o.key), payload: o.column(shape, o.payload),
		name: o.names.Schema(topicName(o.prefix+"."+shape.Schema+"."+shape.Table) + ".Value"),
	}
	if route := o.column(shape, o.route); route.err != nil {
		t.route = route.err
	} else if route.Schema.Type != connect.String {
		t.route = fmt.Errorf("column %q routes, but is of Connect's type %s, not string", o.route, route.Schema.Type)
	}
	for _, f := range o.placed {
		c := o.column(shape, f.column)
		c.missing = o.lenient && errors.Is(c.err, errMissing)
		if c.err == nil && f.where == asPartition && c.Schema.Type != connect.Int32 {
			c.err = fmt.Errorf("column %q is the partition, but is of Connect's type %s, not int32", f.column, c.Schema.Type)
		}
		t.placed = append(t.placed, c)
	}
	if o.version != "" {
		t.version = o.column(shape, o.version)
		if t.version.err == nil && t.version.Schema.Type != connect.Int32 {
			t.version.err = fmt.Errorf("column %q is the schema's version, but is of Connect's type %s, not int32", o.version, t.version.Schema.Type)
		}
	}
	return t
}

// topicName is the name of a table's own topic, which its schema is named after: what Kafka takes
// in no topic is "_", each unit of UTF-16 by itself, and what is longer than a topic may be is cut
// (AbstractTopicNamingStrategy.sanitizedTopicName).
func topicName(name string) string {
	const longest = 249
	var out []byte
	for _, unit := range utf16.Encode([]rune(name)) {
		alphabetic := unit >= 'a' && unit <= 'z' || unit >= 'A' && unit <= 'Z'
		if alphabetic || unit >= '0' && unit <= '9' || unit == '.' || unit == '_' || unit == '-' {
			out = append(out, byte(unit))
		} else {
			out = append(out, '_')
		}
	}
	return string(out[:min(len(out), longest)])
}

var errMissing = errors.New("the table has no such column")

// column is what is known of the column of that name, or why there is nothing.
func (o *Options) column(shape *event.Shape, name string) column {
	for _, s := range shape.Columns {
		if s.Name == name {
			c, err := connect.NewColumn(s, o.modes)
			return column{Column: c, err: err}
		}
	}
	return column{err: fmt.Errorf("column %q: %w", name, errMissing)}
}

// envelopeSchema is the schema of an envelope around a payload. It is each event's own: Debezium
// keeps, for all events with a payload of the same schema, that of the first one that its process
// saw, its name and its columns' NOT NULL and defaults, which no two runs have in common.
func (r *Router) envelopeSchema(t *table, payload *connect.Schema, version *int32, rec *Record, route []byte) *connect.Schema {
	if payload != t.payload.Schema {
		// an expanded payload: each has its own
		return t.newEnvelope(r.o, payload, version, string(route))
	}
	end := len(rec.scratch)
	defer func() { rec.scratch = rec.scratch[:end] }()
	rec.scratch = binary.BigEndian.AppendUint64(rec.scratch, t.number)
	if version != nil {
		rec.scratch = strconv.AppendInt(rec.scratch, int64(*version), 10)
	}
	rec.scratch = append(append(rec.scratch, ' '), route...)
	name := rec.scratch[end:]
	s, known := r.envelopes.get(name)
	if !known {
		s = t.newEnvelope(r.o, payload, version, string(route))
		r.envelopes.put(name, s, len(s.Name)+fieldBytes*len(s.Fields))
	}
	return s
}

// fieldBytes is how many bytes a field of a schema takes.
const fieldBytes = int(unsafe.Sizeof(connect.Field{}))

func (t *table) newEnvelope(o *Options, payload *connect.Schema, version *int32, route string) *connect.Schema {
	if version != nil {
		version = connect.Versioned(*version) // the caller's is for one event
	}
	last := strings.LastIndexByte(t.name, '.') // the routed value goes before the last part
	s := &connect.Schema{
		Type: connect.Struct, Name: t.name[:last+1] + route + t.name[last:], Version: version,
		Fields: []connect.Field{{Name: envelopePayload, Schema: payload}},
	}
	for i, f := range o.placed {
		if f.where == inEnvelope && !t.placed[i].missing {
			s.Fields = append(s.Fields, connect.Field{Name: f.alias, Schema: t.placed[i].Schema})
		}
	}
	return s
}

// convert makes the bytes of a column's text, nil for null.
func (rec *Record) convert(to Converter, c *column, text []byte) ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	v, scratch, err := c.Value(rec.scratch, text)
	rec.scratch = scratch
	if err != nil {
		return nil, err
	}
	return rec.writeValue(to, c.Schema, v)
}

func (rec *Record) writeValue(to Converter, schema *connect.Schema, v connect.Value) ([]byte, error) {
	start := len(rec.Buf)
	out, null, err := to.Append(rec.Buf, start+rec.Budget.Left(), schema, v)
	if errors.Is(err, ErrLimit) {
		rec.Budget.UseUp()
		return nil, event.ErrBytes
	}
	if err != nil {
		return nil, err
	}
	rec.Budget.Make(len(out) - start)
	if rec.Buf = out; null {
		return nil, nil
	}
	return rec.MadeSince(start), nil
}

// topics makes topics. It is safe for concurrent use.
type topics struct {
	whole    *regexp.Regexp // matches when the expression matches all of the value
	first    *regexp.Regexp
	template string // of regexp.Expand
	repeats  int    // how often a topic may have the whole value

	known cache[[]byte] // what was made of which value; an outbox has few kinds of aggregates
}

func newTopics(pattern, replace string) (t *topics, regexFault, replaceFault error) {
	t = new(topics)
	if t.first, regexFault = compileRegex(pattern); regexFault != nil {
		return nil, regexFault, nil
	}
	if t.template, replaceFault = javaTemplate(replace, t.first); replaceFault != nil {
		return nil, nil, replaceFault
	}
	t.repeats = 1 + strings.Count(t.template, "$")
	t.whole = regexp.MustCompile(`\A(?:` + t.first.String() + `)\z`)
	return t, nil, nil
}

// append appends the topic for a value to dst, within the budget.
func (t *topics) append(dst, value []byte, budget *event.Budget) ([]byte, error) {
	topic, known := t.known.get(value)
	if !budget.Make(len(t.template) + t.repeats*len(value)) {
		return dst, budget.Err()
	}
	if !known {
		topic = t.makeTopic(value)
		t.known.put(value, topic, len(topic))
	}
	return append(dst, topic...), nil
}

// makeTopic makes a topic. The expression must match all of the value, or the value itself is the
// topic; the replacement is for the first match that a search finds, which need not be all of it.
func (t *topics) makeTopic(value []byte) []byte {
	if !t.whole.Match(value) {
		return bytes.Clone(value)
	}
	loc := t.first.FindSubmatchIndex(value)
	made := bytes.Clone(value[:loc[0]])
	made = t.first.Expand(made, []byte(t.template), value, loc)
	return append(made, value[loc[1]:]...)
}

// pattern is the topic with part for each reference to a group.
func (t *topics) pattern(part string) string {
	groups := slices.Repeat([]int{0, len(part)}, t.first.NumSubexp()+1)
	return string(t.first.ExpandString(nil, t.template, part, groups))
}

// cache keeps values by text. The texts are made from data, so it is bounded by the bytes that it
// keeps (I5): it is emptied when it is full, and keeps nothing of a text that is long. It is safe
// for concurrent use, and the zero value is empty.
type cache[V any] struct {
	mu    sync.RWMutex
	known map[string]V
	bytes int
}

const (
	maxCached  = 1 << 20 // of a cache, in bytes
	maxEntry   = 4 << 10 // of one entry, likewise
	entryBytes = 256     // what one takes beside its texts
)

func (c *cache[V]) get(text []byte) (v V, known bool) {
	c.mu.RLock()
	v, known = c.known[string(text)]
	c.mu.RUnlock()
	return v, known
}

// put keeps a value; size is about how many bytes it has.
func (c *cache[V]) put(text []byte, v V, size int) {
	if size += len(text) + entryBytes; size > maxEntry {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.known[string(text)]; known {
		return
	}
	if c.bytes += size; c.known == nil || c.bytes > maxCached {
		c.known, c.bytes = map[string]V{}, size
	}
	c.known[string(text)] = v
}
