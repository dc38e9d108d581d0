// The text of a traceparent (W3C Trace Context): reading it, and writing it.

package event

import (
	"bytes"
	"encoding/hex"
)

// TraceContext is what a traceparent says (W3C Trace Context, version 00): which trace, which span
// of it, whether it is recorded.
type TraceContext struct {
	Trace [16]byte
	Span  [8]byte
	Flags byte
}

// TraceSampled is the flag of a trace that is recorded.
const TraceSampled = 1

// traceparentSize is the length of version 00: 00-<32 hex digits>-<16 hex digits>-<2 hex digits>.
const traceparentSize = 55

// ParseTraceparent reads the text of a traceparent; ok is false when it is none. A later version,
// which may be longer, is read as far as it is known, as the recommendation says.
func ParseTraceparent(b []byte) (c TraceContext, ok bool) {
	if len(b) < traceparentSize || b[2] != '-' || b[35] != '-' || b[52] != '-' {
		return c, false
	}
	var version, flags [1]byte
	if !lowerHex(version[:], b[:2]) || !lowerHex(c.Trace[:], b[3:35]) || !lowerHex(c.Span[:], b[36:52]) || !lowerHex(flags[:], b[53:55]) {
		return TraceContext{}, false
	}
	switch {
	case version[0] == 0xff, c.Trace == [16]byte{}, c.Span == [8]byte{}:
		return TraceContext{}, false
	case len(b) > traceparentSize && (version[0] == 0 || b[55] != '-'):
		return TraceContext{}, false
	}
	c.Flags = flags[0]
	return c, true
}

const hexDigits = "0123456789abcdef"

// lowerHex decodes twice as many digits as to has bytes. (encoding/hex takes capitals, too.)
func lowerHex(to, from []byte) bool {
	_, err := hex.Decode(to, from)
	return err == nil && !bytes.ContainsAny(from, "ABCDEF")
}

// Append appends the traceparent's text.
func (c *TraceContext) Append(b []byte) []byte {
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, c.Trace[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, c.Span[:])
	b = append(b, '-')
	return hex.AppendEncode(b, []byte{c.Flags})
}

// Sampled reports whether the trace is recorded.
func (c *TraceContext) Sampled() bool { return c.Flags&TraceSampled != 0 }

// TraceID is the id of the trace as text.
func (c *TraceContext) TraceID() string { return hex.EncodeToString(c.Trace[:]) }

// SpanID is the id of the span as text.
func (c *TraceContext) SpanID() string { return hex.EncodeToString(c.Span[:]) }
