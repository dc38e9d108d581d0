// How an event becomes a record.

package record

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/batch"
)

// MaxRecord bounds key, value and headers of one record, in bytes. A broker closes the connection
// over a request of more than socket.request.max.bytes (100 MiB unless it is raised) without an
// answer, as if the connection was lost: such a record would be sent for ever.
const MaxRecord = 100<<20 - 64<<10

// Encoder is one lane's scratch space: Build fills it from an event, and it is valid until the next
// Build. Key and value alias the event's bytes; the headers are encoded as in the record.
type Encoder struct {
	batch.Record
	layout  *Layout
	trace   [64]byte
	profile debezium.Record // of a profile
}

// NewEncoder makes an encoder for one lane; a layout may serve many.
func NewEncoder(l *Layout) *Encoder { return &Encoder{layout: l} }

// Build makes the record, or returns why the event can never become one.
func (e *Encoder) Build(ev *event.Event) *sink.Fault {
	if ev.Fault != nil {
		return undecodable(ev)
	}
	if e.layout.profiled(ev) {
		if fault := e.render(ev); fault != nil {
			return fault
		}
		return e.fits()
	}
	e.Key, e.Value, e.Time = ev.Key, ev.Payload, ev.Time.UnixMilli()
	if e.Time < 0 {
		// A broker may store such a record, but Kafka's own producer refuses to send it, and Kafka
		// Streams stops at it.
		return tooEarly
	}
	e.Headers, e.HeaderCount = e.Headers[:0], 0
	e.ownHeaders(ev)
	for i := range e.layout.headers {
		h := &e.layout.headers[i]
		if v := ev.Columns[h.column]; v != nil {
			e.AddHeader(h.name, v)
		}
	}
	if len(ev.Headers) > 0 {
		if fault := e.headersColumn(ev); fault != nil {
			return fault
		}
	}
	return e.fits()
}

// fits returns the fault of a record that is too large.
func (e *Encoder) fits() *sink.Fault {
	if size := len(e.Key) + len(e.Value) + len(e.Headers); size > MaxRecord {
		return &sink.Fault{
			Class: sink.Permanent, Reason: sink.TooLarge,
			Text: fmt.Sprintf("a record of %d bytes, a broker's requests carry %d", size, MaxRecord),
		}
	}
	return nil
}

// Forget drops the references to the last event's bytes, which belong to the caller again, and the
// buffers of an unusually large one.
func (e *Encoder) Forget() {
	e.Key, e.Value = nil, nil
	e.profile.Forget()
	if cap(e.Headers) > 64<<10 {
		e.Headers = nil
	}
}

var replayed = []byte("true")

// ownHeaders writes the headers of the relay's own.
func (e *Encoder) ownHeaders(ev *event.Event) {
	e.AddHeader(HeaderID, ev.ID)
	if ev.Type != nil {
		e.AddHeader(HeaderType, ev.Type)
	}
	if ev.Aggregate != nil {
		e.AddHeader(headerAggregate, ev.Aggregate)
	}
	var position [32]byte
	e.AddHeader(headerPosition, ev.Position.Append(position[:0]))
	traceparent := ev.Traceparent
	if e.layout.trace != nil {
		traceparent = e.layout.trace(ev, e.trace[:0])
	}
	if traceparent != nil {
		e.AddHeader(headerTraceparent, traceparent)
	}
	if ev.Replay {
		e.AddHeader(HeaderReplay, replayed)
	}
}
