// How an event becomes a record, and which topic it goes to.

package kafka

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// maxRecord bounds key, value and headers of one record, in bytes. A broker closes the connection over a request of more
// than socket.request.max.bytes (100 MiB unless it is raised) without a word, which could not be told from a lost
// connection: such a record would be sent for ever.
const maxRecord = 100<<20 - 64<<10

// layout says how an event becomes a record, with every column name resolved to its place. It is immutable.
type layout struct {
	topicName sink.Template
	constant  []byte // the topic of a template without placeholders, else nil
	personal  bool   // the topic is made from ordering keys, which may be about people: its names are not shown
	unit      uint64 // its digest
	headers   []boundHeader
	dropped   func(name string)
	trace     func(ev *outbox.Event, buf []byte) []byte // nil: the row's traceparent
	router    *debezium.Router                          // nil: no profile makes the records
	names     bool                                      // a row may name its partition
}

type boundHeader struct {
	name   string
	column int
}

// newLayout resolves the columns that cfg, which is valid, names.
func newLayout(cfg *Config) (*layout, error) {
	l := &layout{dropped: cfg.Hooks.HeaderDropped, trace: cfg.Traceparent}
	var err error
	if l.topicName, err = cfg.Topic.Bind(cfg.Columns); err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	l.personal = slices.Contains(l.topicName.Uses(), "key")
	if cfg.Profile != nil { // the template says only what is shown of a topic
		l.names = cfg.Profile.NamesPartition()
		l.router, err = cfg.Profile.Bind(cfg.Columns)
		return l, err
	}
	if name, constant := l.topicName.Constant(); constant {
		l.constant = []byte(name)
		l.unit = sink.UnitOf(l.constant)
	}
	for _, h := range cfg.Headers {
		i := slices.Index(cfg.Columns, h.Column)
		if i < 0 {
			return nil, fmt.Errorf("header %q: column %q is not read", h.Name, h.Column)
		}
		l.headers = append(l.headers, boundHeader{h.Name, i})
	}
	return l, nil
}

// maxTopic is how long the name of a topic may be.
const maxTopic = 249

// What is wrong with a topic. They are shared by all events concerned.
var (
	topicNull = &sink.Fault{Class: sink.Permanent, Reason: sink.NullInTemplate, Words: "topic has a NULL in its template"}
	topicNone = invalid("topic name is empty")
	topicLong = invalid("topic name is longer than the 249 characters that Kafka allows")
	topicDots = invalid("topic name is '.' or '..', which Kafka does not allow")
	tooEarly  = invalid("the time is before 1970, a Kafka record carries none")
	topicChar = invalid("topic name has a character other than letters, digits, '.', '_' and '-'")
)

// topic is the name of an event's topic: in buf[:0], grown if need be, when made, else bytes that are not to be written to.
// An event with a fault can never be sent; without a name it has none.
func (l *layout) topic(ev *outbox.Event, buf []byte) (name []byte, fault *sink.Fault) {
	var ok bool
	switch {
	case ev.Fault != nil:
		return nil, undecodable(ev)
	case ev.Route != nil:
		name, ok = ev.Route.Name, ev.Route.Name != nil
	case l.constant != nil:
		return l.constant, nil
	case l.router != nil:
		return l.routed(ev, buf)
	default:
		name, ok = l.topicName.Append(buf[:0], ev)
	}
	if !ok {
		return nil, topicNull
	}
	return name, checkTopic(name)
}

// made reports whether topic puts an event's topic together.
func (l *layout) made(ev *outbox.Event) bool { return ev.Route == nil && l.constant == nil }

// route names an event's topic; nil when it has none.
func (l *layout) route(ev *outbox.Event) outbox.Route {
	if ev.Route != nil {
		return *ev.Route
	}
	if l.router != nil {
		name, err := l.router.Topic(ev, []byte{})
		if err != nil {
			name = nil
		}
		return outbox.Route{Name: name}
	}
	name, ok := l.topicName.Append([]byte{}, ev)
	if !ok {
		name = nil
	}
	return outbox.Route{Name: name}
}

// shown is a topic as logs, status and spans may show it: one that is made from an ordering key stands there as its template.
// So does the mirror's then: a stream does not know whose records it carries.
func (l *layout) shown(topic string) string {
	if l.personal {
		return l.topicName.String()
	}
	return topic
}

// checkTopic says what is wrong with a topic's name, as org.apache.kafka.common.internals.Topic.validate does.
func checkTopic(name []byte) *sink.Fault {
	switch {
	case len(name) == 0:
		return topicNone
	case len(name) > maxTopic:
		return topicLong
	case string(name) == "." || string(name) == "..":
		return topicDots
	}
	for _, c := range name {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			continue
		}
		return topicChar
	}
	return nil
}

// message is one lane's scratch space: build fills it from an event, and it is good until the next build. Key and value
// alias the event's bytes; the headers are encoded as they stand in the record.
type message struct {
	layout     *layout
	key, value []byte // nil: null
	time       int64  // ms since 1970
	headers    []byte
	count      int // of headers
	trace      [64]byte
	record     debezium.Record // of a profile
}

func newMessage(l *layout) *message { return &message{layout: l} }

// build makes the record, or says why the event can never become one.
func (m *message) build(ev *outbox.Event) *sink.Fault {
	if ev.Fault != nil {
		return undecodable(ev)
	}
	if m.layout.profiled(ev) {
		return m.render(ev)
	}
	m.key, m.value, m.time = ev.Key, ev.Payload, ev.Time.UnixMilli()
	if m.time < 0 {
		// A broker may store it, but Kafka's own producer refuses to send one and Kafka Streams stops at it.
		return tooEarly
	}
	m.headers, m.count = m.headers[:0], 0
	m.ownHeaders(ev)
	for i := range m.layout.headers {
		h := &m.layout.headers[i]
		if v := ev.Columns[h.column]; v != nil {
			m.header(h.name, v)
		}
	}
	if len(ev.Headers) > 0 {
		if fault := m.headersColumn(ev); fault != nil {
			return fault
		}
	}
	return m.fits()
}

// fits says what is wrong with the record's size.
func (m *message) fits() *sink.Fault {
	if size := len(m.key) + len(m.value) + len(m.headers); size > maxRecord {
		return &sink.Fault{
			Class: sink.Permanent, Reason: sink.TooLarge,
			Words: fmt.Sprintf("a record of %d bytes, a broker's requests carry %d", size, maxRecord),
		}
	}
	return nil
}

// forget lets go of the last event's bytes, which are the caller's again, and of what an unusually large one has left.
func (m *message) forget() {
	m.key, m.value = nil, nil
	m.record.Forget()
	if cap(m.headers) > 64<<10 {
		m.headers = nil
	}
}

var replayed = []byte("true")

// ownHeaders writes the headers of the relay's own.
func (m *message) ownHeaders(ev *outbox.Event) {
	m.header(headerID, ev.ID)
	if ev.Type != nil {
		m.header(headerType, ev.Type)
	}
	if ev.Aggregate != nil {
		m.header(headerAggregate, ev.Aggregate)
	}
	var position [32]byte
	m.header(headerPosition, ev.Position.Append(position[:0]))
	traceparent := ev.Traceparent
	if m.layout.trace != nil {
		traceparent = m.layout.trace(ev, m.trace[:0])
	}
	if traceparent != nil {
		m.header(headerTraceparent, traceparent)
	}
	if ev.Replay {
		m.header(headerReplay, replayed)
	}
}

// header writes one header; a nil value is null.
func (m *message) header(name string, value []byte) {
	m.count++
	m.headers = appendNullable(append(appendLength(m.headers, len(name)), name...), value)
}

func undecodable(ev *outbox.Event) *sink.Fault {
	return &sink.Fault{Class: sink.Permanent, Reason: sink.Undecodable, Words: ev.Fault.Error()}
}

func invalid(words string) *sink.Fault {
	return &sink.Fault{Class: sink.Permanent, Reason: sink.Invalid, Words: words}
}

// text is b as a string without a copy: not to be kept.
func text(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}
