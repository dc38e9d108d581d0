package tracing

import (
	"context"
	"encoding/binary"
	"hash/maphash"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// digested is what an id is made of. A letter that is replayed is a second message, with a span of its own.
type digested struct {
	position outbox.Position
	replay   bool
	part     byte // of the ids
}

// digest fills to, eight bytes, with an id that no other event has. It is never zero, which would be no id.
func (t *Tracer) digest(to []byte, ev *outbox.Event, part byte) {
	n := maphash.Comparable(t.seed, digested{ev.Position, ev.Replay, part})
	binary.BigEndian.PutUint64(to, max(n, 1))
}

// given is the IDGenerator that takes the ids of a span from its context: the message has carried them already.
type given struct{}

var _ sdk.IDGenerator = given{}

type givenKey struct{}

func withIDs(ctx context.Context, ids outbox.TraceContext) context.Context {
	return context.WithValue(ctx, givenKey{}, ids)
}

// NewIDs are the ids of a span that begins a trace.
func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	ids, _ := ctx.Value(givenKey{}).(outbox.TraceContext)
	return ids.Trace, ids.Span
}

// NewSpanID is the id of a span in the trace of its parent.
func (given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	ids, _ := ctx.Value(givenKey{}).(outbox.TraceContext)
	return ids.Span
}
