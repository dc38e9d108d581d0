// Trace and span ids, made from an event's position.

package tracing

import (
	"encoding/binary"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// part is what of the ids is made; odd numbers without structure, or none.
type part uint64

const (
	lowerHalf part = 0 // of the trace's id: decides whether a new trace is recorded
	upperHalf part = 0x9e3779b97f4a7c15
	spanID    part = 0xd1b54a32d192ed03
	replayed  part = 0x94d049bb133111eb // a replay is a second message with its own span
)

// digest is an id that no other event has. It is never zero, which would be no id.
func (t *Tracer) digest(ev *event.Event, of part) uint64 {
	if ev.Replay {
		of ^= replayed
	}
	at := ev.Position
	at.Commit ^= pglogrepl.LSN(t.seed ^ uint64(of))
	return max(event.HashPosition(at), 1)
}

// isPlainlyNotSampled recognizes most events that are not sampled, in a few nanoseconds: it is
// called twice for each event, at its message and at its confirm. Of the others span decides.
func (t *Tracer) isPlainlyNotSampled(ev *event.Event) bool {
	if len(ev.Traceparent) == 0 {
		return !t.env.records(t.digest(ev, lowerHalf))
	}
	return t.env.parentBased && event.IsUnsampled(ev.Traceparent)
}

// spanContext is the context of an event's span and of its parent, which is zero for one that
// begins a trace.
func (t *Tracer) spanContext(ev *event.Event) (own, parent event.TraceContext, sampled bool) {
	if ev.Copy || t.shut.Load() {
		return own, parent, false
	}
	parent, ok := event.ParseTraceparent(ev.Traceparent)
	if ok {
		own.Trace, own.Flags = parent.Trace, parent.Flags|event.TraceSampled
	} else {
		binary.BigEndian.PutUint64(own.Trace[8:], t.digest(ev, lowerHalf))
		own.Flags = event.TraceSampled
	}
	switch {
	case ok && t.env.parentBased && !parent.Sampled():
		return own, parent, false
	case !(ok && t.env.parentBased) && !t.env.records(binary.BigEndian.Uint64(own.Trace[8:])):
		return own, parent, false
	case !ok:
		binary.BigEndian.PutUint64(own.Trace[:8], t.digest(ev, upperHalf))
	}
	binary.BigEndian.PutUint64(own.Span[:], t.digest(ev, spanID))
	return own, parent, true
}
