// The relay's own format of records.

package record

import (
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// HeaderColumn is one record header whose value is a column's text.
type HeaderColumn struct{ Name, Column string }

// The record headers that are the relay's own, and the ones it never writes for anybody.
const (
	HeaderID          = "id"
	HeaderType        = "eventType"
	headerAggregate   = "aggregateType"
	headerPosition    = "cdc_position"
	headerTraceparent = "traceparent"
	HeaderReplay      = "cdc_replay" // on a dead letter that is published again
)

var reserved = []string{HeaderID, HeaderType, headerAggregate, headerPosition, headerTraceparent, HeaderReplay, "x-retry-count"}

// Reserved reports whether name is a header of the relay's own: not to be configured, dropped from
// the headers column.
func Reserved(name string) bool { return slices.Contains(reserved, name) }

// Plain is the encoder of the relay's own format.
type Plain struct {
	topic   sink.Template
	traits  sink.Traits
	headers []boundHeader
	dropped func(name string)
	trace   func(ev *event.Event, buf []byte) []byte // nil: the row's traceparent
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
	if p.topic, err = cfg.Topic.Bind(cfg.Columns); err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	if name, constant := p.topic.Constant(); constant {
		p.traits.Topic = []byte(name)
	}
	for _, h := range cfg.Headers {
		i := slices.Index(cfg.Columns, h.Column)
		if i < 0 {
			return nil, fmt.Errorf("header %q: column %q is not read", h.Name, h.Column)
		}
		p.headers = append(p.headers, boundHeader{h.Name, i})
	}
	return p, nil
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
	if len(ev.Key) == 0 { // an empty key is written, and orders nothing
		rec.Partition = sink.Anywhere
	}
	if ev.Route != nil {
		return nil
	}
	if rec.Topic = p.traits.Topic; rec.Topic != nil {
		return nil
	}
	var ok bool
	if rec.Buf, ok = p.topic.Append(rec.Buf, ev); !ok {
		rec.Buf = rec.Buf[:0]
		return topicNull
	}
	rec.Topic = rec.Since(0)
	return nil
}

var replayed = []byte("true")

// Encode implements sink.Encoder. Headers come in this order: the relay's own, the configured ones,
// those of the headers column.
func (p *Plain) Encode(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Reset()
	if fault := p.place(ev, rec); fault != nil {
		return fault
	}
	rec.Value, rec.Time = ev.Payload, ev.Time.UnixMilli()
	p.ownHeaders(ev, rec)
	for i := range p.headers {
		h := &p.headers[i]
		if v := ev.Columns[h.column]; v != nil {
			add(rec, h.name, v)
		}
	}
	if len(ev.Headers) > 0 {
		return p.headersColumn(ev, rec)
	}
	return nil
}

func add(rec *sink.Record, name string, value []byte) {
	rec.Headers = append(rec.Headers, sink.Header{Name: name, Value: value, Kind: sink.Text})
}

// ownHeaders writes the headers of the relay's own.
func (p *Plain) ownHeaders(ev *event.Event, rec *sink.Record) {
	add(rec, HeaderID, ev.ID)
	if ev.Type != nil {
		add(rec, HeaderType, ev.Type)
	}
	if ev.Aggregate != nil {
		add(rec, headerAggregate, ev.Aggregate)
	}
	start := len(rec.Buf)
	rec.Buf = ev.Position.Append(rec.Buf)
	add(rec, headerPosition, rec.Since(start))
	if traceparent := rec.Traceparent(ev, p.trace); traceparent != nil {
		add(rec, headerTraceparent, traceparent)
	}
	if ev.Replay {
		add(rec, HeaderReplay, replayed)
	}
}

// headersColumn writes the headers of a JSON object. Kafka's are bytes: a string is its text, null
// is a null value, and a number, true, false, an array or an object is its JSON text unchanged.
// Keys that are the relay's own are dropped and counted; a configured header that has a value goes
// before a key of its name. A key that is there twice (type json keeps it) is written twice, and a
// consumer that asks for the last one has what JSON means. A JSON null is no headers.
func (p *Plain) headersColumn(ev *event.Event, rec *sink.Record) *sink.Fault {
	members, ok := event.MembersOf(ev.Headers)
	if !ok {
		return invalid("the headers column is not a JSON object")
	}
	for name, raw, more := members.Next(); more; name, raw, more = members.Next() {
		if !p.taken(text(name), ev) {
			rec.Headers = append(rec.Headers, sink.JSONHeader(text(name), raw))
		}
	}
	return nil
}

// taken reports whether the record has a header of the relay's own or a configured one of this
// name.
func (p *Plain) taken(name string, ev *event.Event) bool {
	for _, own := range reserved {
		if own == name {
			if p.dropped != nil {
				p.dropped(own) // not name, which aliases the event
			}
			return true
		}
	}
	for i := range p.headers {
		if h := &p.headers[i]; h.name == name && ev.Columns[h.column] != nil {
			return true
		}
	}
	return false
}
