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
func (m *Encoder) Build(ev *event.Event) *sink.Fault {
	if ev.Fault != nil {
		return undecodable(ev)
	}
	if m.layout.profiled(ev) {
		if fault := m.render(ev); fault != nil {
			return fault
		}
		return m.fits()
	}
	m.Key, m.Value, m.Time = ev.Key, ev.Payload, ev.Time.UnixMilli()
	if m.Time < 0 {
		// A broker may store it, but Kafka's own producer refuses to send one and Kafka Streams
		// stops at it.
		return tooEarly
	}
	m.Headers, m.HeaderCount = m.Headers[:0], 0
	m.ownHeaders(ev)
	for i := range m.layout.headers {
		h := &m.layout.headers[i]
		if v := ev.Columns[h.column]; v != nil {
			m.AddHeader(h.name, v)
		}
	}
	if len(ev.Headers) > 0 {
		if fault := m.headersColumn(ev); fault != nil {
			return fault
		}
	}
	return m.fits()
}

// fits returns the fault of a record that is too large.
func (m *Encoder) fits() *sink.Fault {
	if size := len(m.Key) + len(m.Value) + len(m.Headers); size > MaxRecord {
		return &sink.Fault{
			Class: sink.Permanent, Reason: sink.TooLarge,
			Text: fmt.Sprintf("a record of %d bytes, a broker's requests carry %d", size, MaxRecord),
		}
	}
	return nil
}

// Forget drops the references to the last event's bytes, which belong to the caller again, and the
// buffers of an unusually large one.
func (m *Encoder) Forget() {
	m.Key, m.Value = nil, nil
	m.profile.Forget()
	if cap(m.Headers) > 64<<10 {
		m.Headers = nil
	}
}

var replayed = []byte("true")

// ownHeaders writes the headers of the relay's own.
func (m *Encoder) ownHeaders(ev *event.Event) {
	m.AddHeader(HeaderID, ev.ID)
	if ev.Type != nil {
		m.AddHeader(HeaderType, ev.Type)
	}
	if ev.Aggregate != nil {
		m.AddHeader(headerAggregate, ev.Aggregate)
	}
	var position [32]byte
	m.AddHeader(headerPosition, ev.Position.Append(position[:0]))
	traceparent := ev.Traceparent
	if m.layout.trace != nil {
		traceparent = m.layout.trace(ev, m.trace[:0])
	}
	if traceparent != nil {
		m.AddHeader(headerTraceparent, traceparent)
	}
	if ev.Replay {
		m.AddHeader(HeaderReplay, replayed)
	}
}
