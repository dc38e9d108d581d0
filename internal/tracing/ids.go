package tracing

import (
	"context"
	"encoding/binary"

	"github.com/jackc/pglogrepl"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// part is what of the ids is made; odd numbers without structure, or none.
type part uint64

const (
	lowerHalf part = 0 // of the trace's id: the half that decides whether a trace that begins here is recorded
	upperHalf part = 0x9e3779b97f4a7c15
	spanID    part = 0xd1b54a32d192ed03
	replayed  part = 0x94d049bb133111eb // a letter that is replayed is a second message, with a span of its own
)

// digest fills to, eight bytes, with an id that no other event has. It is never zero, which would be no id.
func (t *Tracer) digest(to []byte, ev *outbox.Event, of part) {
	if ev.Replay {
		of ^= replayed
	}
	at := ev.Position
	at.Commit ^= pglogrepl.LSN(t.seed ^ uint64(of))
	binary.BigEndian.PutUint64(to, max(outbox.HashPosition(at), 1))
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
