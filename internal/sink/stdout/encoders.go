// What is written of an event: a line, as the Value of its record.

package stdout

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Lines is the encoder of the relay's own lines.
type Lines struct {
	trace func(ev *event.Event, buf []byte) []byte
}

// NewLines makes the encoder. traceparent says what a line has as its traceparent, nil: nothing;
// without that function it is the row's.
func NewLines(traceparent func(ev *event.Event, buf []byte) []byte) *Lines {
	return &Lines{trace: traceparent}
}

// Records is an encoder whose lines show the records of another one.
type Records struct {
	of    sink.Encoder
	lines *Lines // of copies of dead letters
}

// NewRecords makes the encoder.
func NewRecords(of sink.Encoder, lines *Lines) *Records { return &Records{of: of, lines: lines} }

var (
	_ sink.Encoder = (*Lines)(nil)
	_ sink.Encoder = (*Records)(nil)
)

// name is where all lines go.
var name = []byte("stdout")

// Traits implements sink.Encoder.
func (*Lines) Traits() sink.Traits { return sink.Traits{Topic: name} }

// Traits implements sink.Encoder.
func (*Records) Traits() sink.Traits { return sink.Traits{Topic: name} }

// Place implements sink.Encoder.
func (*Lines) Place(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Unplace(ev)
	rec.Topic, rec.Key = name, ev.Key
	return nil
}

// Place implements sink.Encoder.
func (r *Records) Place(ev *event.Event, rec *sink.Record) *sink.Fault { return r.lines.Place(ev, rec) }

// line is what is written of an event. A column that is NULL or not mapped is null.
type line struct {
	ID        *string `json:"id"`
	Type      *string `json:"type"`
	Aggregate *string `json:"aggregate"`
	Key       *string `json:"key"`
	Payload   any     `json:"payload"` // embedded JSON, a string, or null
	// the string is base64: bytea, or no valid UTF-8
	Base64   bool            `json:"payload_base64,omitempty"`
	Headers  json.RawMessage `json:"headers,omitempty"`
	Trace    *string         `json:"traceparent,omitempty"`
	Position string          `json:"position"`
	Replay   bool            `json:"cdc_replay,omitempty"`
	Time     time.Time       `json:"commit_time"`
}

// Encode implements sink.Encoder. Embedded JSON loses the white space between its tokens, which a
// line needs, and nothing else: < > & stay as they are.
func (l *Lines) Encode(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Reset(ev)
	out := line{
		ID: text(ev.ID), Type: text(ev.Type), Aggregate: text(ev.Aggregate), Key: text(ev.Key),
		Headers: ev.Headers, Trace: text(rec.Traceparent(ev, l.trace)), Position: ev.Position.String(), Replay: ev.Replay, Time: ev.CommitTime.UTC(),
	}
	switch {
	case ev.Payload == nil:
	case ev.PayloadKind == event.JSON:
		out.Payload = json.RawMessage(ev.Payload)
	case ev.PayloadKind == event.Text && utf8.Valid(ev.Payload):
		out.Payload = string(ev.Payload)
	default:
		out.Payload, out.Base64 = base64.StdEncoding.EncodeToString(ev.Payload), true
	}
	if !encodeLine(rec, out) {
		return sink.PermanentFault(sink.Invalid, "the payload or headers column is not valid JSON")
	}
	return nil
}

// record is what is written of one. Keys, values and headers are as shown makes them.
type record struct {
	Topic     string    `json:"topic"`
	*address            // of one that has an exchange
	Partition *int32    `json:"partition,omitempty"` // only one that the row names
	Key       any       `json:"key"`
	Value     any       `json:"value"`
	Headers   []header  `json:"headers"`
	Time      time.Time `json:"timestamp"`
	Position  string    `json:"position"`
}

// address is where RabbitMQ takes the record.
type address struct {
	Exchange   string `json:"exchange"`
	RoutingKey string `json:"routing_key"`
}

type header struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// shown is null, text as a string, or anything else as {"base64": ...}.
func shown(b []byte) any {
	switch {
	case b == nil:
		return nil
	case utf8.Valid(b):
		return string(b)
	}
	return map[string]string{"base64": base64.StdEncoding.EncodeToString(b)}
}

// Encode implements sink.Encoder.
func (r *Records) Encode(ev *event.Event, rec *sink.Record) *sink.Fault {
	if ev.Copy {
		return r.lines.Encode(ev, rec)
	}
	if fault := r.of.Encode(ev, rec); fault != nil {
		return fault
	}
	out := record{
		Topic: string(rec.Topic), Key: shown(rec.Key), Value: shown(rec.Value), Headers: []header{},
		Time: time.UnixMilli(rec.Time).UTC(), Position: ev.Position.String(),
	}
	if rec.Exchange != nil {
		out.address = &address{string(rec.Exchange), string(rec.RoutingKey)}
	}
	if rec.Partition >= 0 {
		out.Partition = &rec.Partition
	}
	for _, h := range rec.Headers {
		out.Headers = append(out.Headers, header{h.Name, shown(h.Value)})
	}
	encodeLine(rec, out)
	return nil
}

// encodeLine makes v, as one line of JSON, the record's Value. It has bytes of its own: a write may
// outlive the record.
func encodeLine(rec *sink.Record, v any) (ok bool) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text) // ends the line
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	rec.Value = text.Bytes()
	return err == nil
}

// text is a column's text, nil for NULL.
func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}
