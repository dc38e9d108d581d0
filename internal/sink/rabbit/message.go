package rabbit

import (
	"fmt"
	"slices"
	"strconv"
	"unsafe"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// layout says how an event becomes a message, with every column name resolved to its place. It is immutable.
type layout struct {
	exchange, routingKey                template
	unit, dest                          uint64 // the digests of constants, else 0
	headers                             []boundHeader
	correlationID, priority, expiration int // places in Event.Columns, -1 for none
	dropped                             func(name string)
	trace                               func(ev *outbox.Event, buf []byte) []byte // nil: the row's traceparent
	router                              *debezium.Router                          // nil: no profile makes the messages
	options                             *debezium.Options                         // of the router
}

// template is a sink.Template with its constant value at hand.
type template struct {
	sink.Template
	constant bool
	value    string
	personal bool // it is made from ordering keys: its values are not shown
}

type boundHeader struct {
	name   string
	column int
}

// newLayout resolves the columns that cfg names.
func newLayout(cfg *Config) (layout, error) {
	l := layout{dropped: cfg.Hooks.HeaderDropped, trace: cfg.Traceparent}
	var err error
	if l.exchange, err = bind(cfg.Exchange, cfg.Columns); err != nil {
		return l, fmt.Errorf("exchange: %w", err)
	}
	if l.routingKey, err = bind(cfg.RoutingKey, cfg.Columns); err != nil {
		return l, fmt.Errorf("routing key: %w", err)
	}
	if cfg.Profile != nil { // the templates say only what is shown of a destination
		l.options = cfg.Profile
		l.router, err = cfg.Profile.Bind(cfg.Columns)
		return l, err
	}
	if l.exchange.constant {
		l.unit = sink.UnitOf([]byte(l.exchange.value))
		if l.routingKey.constant {
			l.dest = sink.DestOfPair(l.unit, []byte(l.routingKey.value))
		}
	}
	for _, h := range cfg.Headers {
		i := slices.Index(cfg.Columns, h.Column)
		if i < 0 {
			return l, fmt.Errorf("header %q: column %q is not read", h.Name, h.Column)
		}
		l.headers = append(l.headers, boundHeader{h.Name, i})
	}
	for _, p := range []struct {
		name, column string
		place        *int
	}{
		{"correlation_id", cfg.CorrelationID, &l.correlationID},
		{"priority", cfg.Priority, &l.priority},
		{"expiration", cfg.Expiration, &l.expiration},
	} {
		*p.place = slices.Index(cfg.Columns, p.column)
		if p.column == "" {
			*p.place = -1
		} else if *p.place < 0 {
			return l, fmt.Errorf("property %s: column %q is not read", p.name, p.column)
		}
	}
	return l, nil
}

func bind(t sink.Template, columns []string) (template, error) {
	bound, err := t.Bind(columns)
	if err != nil {
		return template{}, err
	}
	value, constant := bound.Constant()
	return template{bound, constant, value, slices.Contains(t.Uses(), "key")}, nil
}

// message is one lane's scratch space: build fills it from an event, and it is good until the next build. Its strings
// alias the event's bytes, buf and trace, which is sound because amqp091 has serialised them when its publish call returns.
type message struct {
	layout     *layout
	limits     *limits
	exchange   string
	routingKey string
	pub        amqp.Publishing
	replay     bool
	copy       bool // of a dead letter
	tableSize  int  // encoded size of pub.Headers, at most
	buf        []byte
	trace      [64]byte
	record     debezium.Record // of a profile
}

// forget lets go of the last event's bytes, which are the caller's again.
func (m *message) forget() {
	clear(m.pub.Headers)
	m.pub = amqp.Publishing{Headers: m.pub.Headers}
	m.exchange, m.routingKey = "", ""
	m.record.Forget()
}

// destination fills in exchange and routing key; false when one of them has no value.
func (m *message) destination(ev *outbox.Event) (field string, ok bool) {
	m.copy = ev.Copy
	if ev.Route != nil {
		return m.routed(ev.Route)
	}
	if m.layout.profiled(ev) {
		return m.placed(ev)
	}
	m.buf = m.buf[:0]
	if m.exchange, ok = m.resolve(&m.layout.exchange, ev); !ok {
		return "exchange", false
	}
	if m.routingKey, ok = m.resolve(&m.layout.routingKey, ev); !ok {
		return "routing key", false
	}
	return "", true
}

// routed takes the destination that was decided before.
func (m *message) routed(r *outbox.Route) (field string, ok bool) {
	m.exchange, m.routingKey = text(r.Name), text(r.RoutingKey)
	switch {
	case r.Name == nil:
		return "exchange", false
	case r.RoutingKey == nil:
		return "routing key", false
	}
	return "", true
}

func (m *message) resolve(t *template, ev *outbox.Event) (string, bool) {
	if t.constant {
		return t.value, true
	}
	start := len(m.buf)
	var ok bool
	m.buf, ok = t.Append(m.buf, ev)
	return text(m.buf[start:]), ok
}

// build makes the message, or says why the event can never become one.
func (m *message) build(ev *outbox.Event) *sink.Fault {
	if ev.Fault != nil {
		return &sink.Fault{Class: sink.Permanent, Reason: sink.Undecodable, Words: ev.Fault.Error()}
	}
	if m.layout.profiled(ev) {
		return m.render(ev)
	}
	if field, ok := m.destination(ev); !ok {
		return &sink.Fault{Class: sink.Permanent, Reason: sink.NullInTemplate, Words: field + " has a NULL in its template"}
	}
	m.replay = ev.Replay
	p := &m.pub
	p.ContentType = ev.PayloadKind.ContentType()
	p.DeliveryMode = amqp.Persistent
	p.MessageId, p.Type, p.Timestamp, p.Body = text(ev.ID), text(ev.Type), ev.Time, ev.Payload
	p.Priority, p.CorrelationId, p.Expiration = 0, "", ""
	clear(p.Headers)
	m.tableSize = 0

	if fault := m.properties(ev); fault != nil {
		return fault
	}
	if len(ev.Headers) > 0 {
		if fault := m.headersColumn(ev.Headers); fault != nil {
			return fault
		}
	}
	for _, h := range m.layout.headers {
		if v := ev.Columns[h.column]; v != nil {
			m.setText(h.name, v)
		}
	}
	m.ownHeaders(ev)
	return m.check()
}

// properties fills in the properties that are columns.
func (m *message) properties(ev *outbox.Event) *sink.Fault {
	if i := m.layout.correlationID; i >= 0 {
		m.pub.CorrelationId = text(ev.Columns[i])
	}
	if i := m.layout.priority; i >= 0 && ev.Columns[i] != nil {
		n, err := strconv.ParseUint(text(ev.Columns[i]), 10, 8)
		if err != nil {
			return invalid("priority is not a number from 0 to 255")
		}
		m.pub.Priority = uint8(n)
	}
	if i := m.layout.expiration; i >= 0 && ev.Columns[i] != nil {
		// RabbitMQ takes milliseconds up to 2^32-1 and closes the channel over anything else.
		if _, err := strconv.ParseUint(text(ev.Columns[i]), 10, 32); err != nil {
			return invalid("expiration is not a number of milliseconds from 0 to 4294967295")
		}
		m.pub.Expiration = text(ev.Columns[i])
	}
	return nil
}

// ownHeaders writes the headers of the relay's own, last: they win.
func (m *message) ownHeaders(ev *outbox.Event) {
	if ev.Aggregate != nil {
		m.setText(headerAggregate, ev.Aggregate)
	}
	if ev.Key != nil {
		m.setText(headerKey, ev.Key)
	}
	m.set(headerTime, ev.Time.UnixMilli(), 8)
	start := len(m.buf)
	m.buf = ev.Position.Append(m.buf)
	m.setText(headerPosition, m.buf[start:])
	traceparent := ev.Traceparent
	if m.layout.trace != nil {
		traceparent = m.layout.trace(ev, m.trace[:0])
	}
	if traceparent != nil {
		m.setText(headerTraceparent, traceparent)
	}
	if ev.Replay {
		m.set(headerReplay, "true", 4+len("true"))
	}
}

// set writes one header whose encoded value, without its type octet, has size bytes.
func (m *message) set(name string, value any, size int) {
	m.pub.Headers[name] = value
	m.tableSize += 1 + len(name) + 1 + size
}

func (m *message) setText(name string, value []byte) {
	m.set(name, text(value), 4+len(value))
}

// text is b as a string without a copy.
func text(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}
