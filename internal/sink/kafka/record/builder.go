// How an event becomes a record of Kafka's.

package record

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/batch"
)

// MaxRecord bounds key, value and headers of one record, in bytes. A broker closes the connection
// over a request of more than socket.request.max.bytes (100 MiB unless it is raised) without an
// answer, as if the connection was lost: such a record would be sent for ever.
const MaxRecord = 100<<20 - 64<<10

// lengths is the most that a header's two lengths take, in bytes.
const lengths = 10

// Builder is one lane's scratch space: Build fills it from an event, and it is valid until the next
// Build. Key and value are as the encoder gives them; the headers are encoded as in the record.
type Builder struct {
	batch.Record
	layout *Layout
	made   sink.Record
}

// NewBuilder makes a builder for one lane; a layout may serve many.
func NewBuilder(l *Layout) *Builder { return &Builder{layout: l} }

// Enter is called before Build, and Leave when the record is written or dropped: see sink.Large.
func (b *Builder) Enter(alone bool) { b.layout.Large.Enter(&b.made, alone) }

// Leave ends what Enter began. again: the record is to be made once more, alone.
func (b *Builder) Leave(alone bool) (again bool) { return b.layout.Large.Leave(&b.made, alone) }

// Build makes the record, or returns why the event can never become one.
func (b *Builder) Build(ev *event.Event) *sink.Fault {
	if fault := sink.RowFault(ev); fault != nil {
		return fault
	}
	rec := &b.made
	if fault := b.layout.encoder.Encode(ev, rec); fault != nil {
		return fault
	}
	if rec.Time < 0 {
		// A broker may store such a record, but Kafka's own producer refuses to send it, and Kafka
		// Streams stops at it.
		return tooEarly
	}
	b.Key, b.Value, b.Time = rec.Key, rec.Value, rec.Time
	b.Headers, b.HeaderCount = b.Headers[:0], 0
	for i := range rec.Headers {
		h := &rec.Headers[i]
		if !rec.Budget.Make(len(h.Name) + len(h.Value) + lengths) {
			return sink.OverBudget(rec.Budget.Err())
		}
		b.AddHeader(h.Name, h.Value)
	}
	if size := len(b.Key) + len(b.Value) + len(b.Headers); size > MaxRecord {
		return sink.PermanentFault(sink.TooLarge, fmt.Sprintf("a record of %d bytes, a broker's requests carry %d", size, MaxRecord))
	}
	return nil
}

// Forget drops the references to the last event's bytes, which belong to the caller again, and the
// buffers of an unusually large one.
func (b *Builder) Forget() {
	b.Key, b.Value = nil, nil
	b.made.Forget()
	b.Headers = sink.Reuse(b.Headers)
}
