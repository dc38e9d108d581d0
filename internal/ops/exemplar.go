package ops

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sampled observes with an exemplar, the trace of an event, at most once in each second: it costs a microsecond and nine
// allocations, and what reads exemplars keeps a few a minute.
type sampled struct {
	prometheus.Histogram
	second atomic.Int64 // of the last exemplar, Unix time
}

// due is the second of the last exemplar, and whether there may be one at this time.
func (s *sampled) due(at time.Time) (last int64, due bool) {
	last = s.second.Load()
	return last, last != at.Unix()
}

// observe is Observe, with an exemplar when the traceparent is that of a sampled trace and no other exemplar came since last.
func (s *sampled) observe(seconds float64, traceparent []byte, last int64, at time.Time) (taken bool) {
	id := sampledTrace(traceparent)
	with, can := s.Histogram.(prometheus.ExemplarObserver)
	if id == nil || !can || !s.second.CompareAndSwap(last, at.Unix()) {
		s.Observe(seconds)
		return false
	}
	with.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": string(id)})
	return true
}

// sampledTrace is the trace id of a traceparent (https://www.w3.org/TR/trace-context/#traceparent-header) whose flag says that
// the trace is sampled; nil of any other, and of one that is none. A service has written it, so nothing of it is believed.
func sampledTrace(traceparent []byte) []byte {
	const length = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	if len(traceparent) < length || !odd(traceparent[length-1]) {
		return nil
	}
	version := string(traceparent[:2])
	if more := traceparent[length:]; version == "ff" || len(more) > 0 && (version == "00" || more[0] != '-') {
		return nil
	}
	const id, span, flags = 3, 36, 53
	zero := true
	for i, c := range traceparent[:length] {
		switch {
		case i == id-1 || i == span-1 || i == flags-1:
			if c != '-' {
				return nil
			}
		case c >= '1' && c <= '9' || c >= 'a' && c <= 'f':
			zero = zero && (i < id || i >= span)
		case c != '0':
			return nil
		}
	}
	if zero {
		return nil
	}
	return traceparent[id : span-1]
}

// odd reports whether the last bit of a hexadecimal digit is set: of its letter too, counted from a, it is the other way round.
func odd(digit byte) bool {
	if digit >= 'a' {
		return digit&1 == 0
	}
	return digit&1 == 1
}
