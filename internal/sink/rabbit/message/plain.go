// The relay's own format of messages.

package message

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// HeaderColumn is one message header whose value is a column's text.
type HeaderColumn struct{ Name, Column string }

// The message headers that are the relay's own, and the ones it never writes for anybody.
const (
	headerAggregate   = "aggregate_type"
	HeaderKey         = "aggregate_id"
	headerTime        = "timestamp_in_ms"
	HeaderPosition    = "cdc_position"
	headerTraceparent = "traceparent"
	HeaderReplay      = "cdc_replay" // on a dead letter that is published again
)

var reserved = []string{headerAggregate, HeaderKey, headerTime, HeaderPosition, headerTraceparent, HeaderReplay, "x-retry-count"}

// Reserved reports whether name is a header of the relay's own: not to be configured, dropped from
// the headers column.
func Reserved(name string) bool { return slices.Contains(reserved, name) }

// Plain is the encoder of the relay's own format.
type Plain struct {
	exchange, routingKey                sink.Template
	traits                              sink.Traits
	headers                             []boundHeader
	correlationID, priority, expiration int // places in Event.Columns, -1 for none
	dropped                             func(name string)
	// nil: the row's traceparent
	trace func(ev *event.Event, buf []byte) []byte
}

var _ sink.Encoder = (*Plain)(nil)

type boundHeader struct {
	name   string
	column int
}

// NewPlain resolves the columns that cfg names.
func NewPlain(cfg *Config) (*Plain, error) {
	p := &Plain{dropped: cfg.HeaderDropped, trace: cfg.Traceparent}
	var err error
	if p.exchange, err = cfg.Exchange.Bind(cfg.Columns); err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	if p.routingKey, err = cfg.RoutingKey.Bind(cfg.Columns); err != nil {
		return nil, fmt.Errorf("routing key: %w", err)
	}
	p.traits.Exchange, p.traits.RoutingKey = constant(p.exchange), constant(p.routingKey)
	for _, h := range cfg.Headers {
		i := slices.Index(cfg.Columns, h.Column)
		if i < 0 {
			return nil, fmt.Errorf("header %q: column %q is not read", h.Name, h.Column)
		}
		p.headers = append(p.headers, boundHeader{h.Name, i})
	}
	for _, of := range []struct {
		name, column string
		place        *int
	}{
		{"correlation_id", cfg.CorrelationID, &p.correlationID},
		{"priority", cfg.Priority, &p.priority},
		{"expiration", cfg.Expiration, &p.expiration},
	} {
		*of.place = slices.Index(cfg.Columns, of.column)
		if of.column == "" {
			*of.place = -1
		} else if *of.place < 0 {
			return nil, fmt.Errorf("property %s: column %q is not read", of.name, of.column)
		}
	}
	return p, nil
}

// constant is the value of a template without placeholders, else nil.
func constant(t sink.Template) []byte {
	if value, ok := t.Constant(); ok {
		return append([]byte{}, value...)
	}
	return nil
}

// Traits implements sink.Encoder.
func (p *Plain) Traits() sink.Traits { return p.traits }

// Place implements sink.Encoder.
func (p *Plain) Place(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Unplace()
	return p.place(ev, rec)
}

func (p *Plain) place(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Key = ev.Key
	if ev.Route != nil {
		return nil
	}
	rec.Exchange = name(&p.exchange, p.traits.Exchange, ev, rec)
	rec.RoutingKey = name(&p.routingKey, p.traits.RoutingKey, ev, rec)
	if rec.Exchange == nil || rec.RoutingKey == nil {
		return nowhere(rec.Exchange != nil)
	}
	return nil
}

// name is the value of a template; nil when it has none.
func name(t *sink.Template, constant []byte, ev *event.Event, rec *sink.Record) []byte {
	if constant != nil {
		return constant
	}
	var ok bool
	start := len(rec.Buf)
	if rec.Buf, ok = t.Append(rec.Buf, ev); !ok {
		rec.Buf = rec.Buf[:start]
		return nil
	}
	return rec.Since(start)
}

// Encode implements sink.Encoder. Headers come as they win: those of the headers column, the
// configured ones, the relay's own.
func (p *Plain) Encode(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Reset()
	if fault := p.place(ev, rec); fault != nil {
		return fault
	}
	rec.Value, rec.Time = ev.Payload, ev.Time.UnixMilli()
	of := &rec.Properties
	of.ContentType, of.ID, of.Type, of.Timestamp = ev.PayloadKind.ContentType(), ev.ID, ev.Type, ev.Time
	if fault := p.properties(ev, of); fault != nil {
		return fault
	}
	if len(ev.Headers) > 0 {
		if fault := p.headersColumn(ev.Headers, rec); fault != nil {
			return fault
		}
	}
	for _, h := range p.headers {
		if v := ev.Columns[h.column]; v != nil {
			rec.Headers = append(rec.Headers, sink.Header{Name: h.name, Value: v, Kind: sink.Text})
		}
	}
	p.ownHeaders(ev, rec)
	return nil
}

// properties fills in the properties that are columns.
func (p *Plain) properties(ev *event.Event, of *sink.Properties) *sink.Fault {
	if i := p.correlationID; i >= 0 {
		of.CorrelationID = ev.Columns[i]
	}
	if i := p.priority; i >= 0 && ev.Columns[i] != nil {
		n, err := strconv.ParseUint(text(ev.Columns[i]), 10, 8)
		if err != nil {
			return Invalid("priority is not a number from 0 to 255")
		}
		of.Priority = uint8(n)
	}
	if i := p.expiration; i >= 0 && ev.Columns[i] != nil {
		// RabbitMQ takes milliseconds up to 2^32-1 and closes the channel over anything else.
		if _, err := strconv.ParseUint(text(ev.Columns[i]), 10, 32); err != nil {
			return Invalid("expiration is not a number of milliseconds from 0 to 4294967295")
		}
		of.Expiration = ev.Columns[i]
	}
	return nil
}

// headersColumn writes the headers of a JSON object, types kept. Keys that are the relay's own are
// dropped and counted. A JSON null is no headers.
func (p *Plain) headersColumn(doc []byte, rec *sink.Record) *sink.Fault {
	members, ok := event.MembersOf(doc)
	if !ok {
		return Invalid("the headers column is not a JSON object")
	}
	for name, raw, more := members.Next(); more; name, raw, more = members.Next() {
		if i := slices.Index(reserved, text(name)); i >= 0 {
			if p.dropped != nil {
				// not name, which aliases the event: a counter keeps its label
				p.dropped(reserved[i])
			}
			continue
		}
		rec.Headers = append(rec.Headers, sink.JSONHeader(text(name), raw))
	}
	return nil
}

// ownHeaders writes the headers of the relay's own, last: they win.
func (p *Plain) ownHeaders(ev *event.Event, rec *sink.Record) {
	add := func(name string, value []byte, kind sink.HeaderKind) {
		rec.Headers = append(rec.Headers, sink.Header{Name: name, Value: value, Kind: kind})
	}
	if ev.Aggregate != nil {
		add(headerAggregate, ev.Aggregate, sink.Text)
	}
	if ev.Key != nil {
		add(HeaderKey, ev.Key, sink.Text)
	}
	start := len(rec.Buf)
	rec.Buf = strconv.AppendInt(rec.Buf, rec.Time, 10)
	add(headerTime, rec.Since(start), sink.JSON)
	start = len(rec.Buf)
	rec.Buf = ev.Position.Append(rec.Buf)
	add(HeaderPosition, rec.Since(start), sink.Text)
	if traceparent := rec.Traceparent(ev, p.trace); traceparent != nil {
		add(headerTraceparent, traceparent, sink.Text)
	}
	if ev.Replay {
		add(HeaderReplay, replayed, sink.Text)
	}
}

var replayed = []byte("true")
