package pauses

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// story tells a registry what happens at explicit times.
type story struct {
	*Registry
	t   *testing.T
	now time.Time
}

var (
	orders   = sink.Place{ExchangeOrTopic: 1, Dest: 11}
	invoices = sink.Place{ExchangeOrTopic: 1, Dest: 12} // of the same exchange
	stock    = sink.Place{ExchangeOrTopic: 2, Dest: 21}

	nack       = sink.Fault{Class: sink.Destination, Reason: sink.Nacked, Destination: "orders"}
	unroutable = sink.Fault{Class: sink.Destination, Reason: sink.Unroutable, Destination: "orders"}
	notAllowed = *sink.NotAllowedFault("invoices", "invoices", "allow", false)
	noExchange = sink.Fault{Class: sink.Destination, Reason: sink.NoExchange, Whole: true, Destination: "exchange"}
	held       = sink.Fault{Class: sink.Destination, Reason: sink.NoExchange, Whole: true, Destination: "exchange", Held: "bind all queues"}
	poison     = sink.Fault{Class: sink.Transient, Reason: sink.BrokerException}
)

var began = time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)

func tell(t *testing.T, cfg Config) *story {
	return &story{Registry: New(cfg), t: t, now: began}
}

func dest(p sink.Place) Target  { return Target{p.ExchangeOrTopic, p.Dest} }
func whole(p sink.Place) Target { return dest(p).whole() }

func (s *story) after(d time.Duration) *story {
	s.now = s.now.Add(d)
	return s
}

func (s *story) refused(p sink.Place, f sink.Fault) bool { return s.Refused(p, &f, s.now) }

// probes lets the next probe go when it is due, which the broker answers after a time. It returns
// the wait for that probe.
func (s *story) probes(p sink.Place, f sink.Fault, answered time.Duration) time.Duration {
	s.t.Helper()
	t, _ := s.Target(p)
	waited := s.take(t)
	s.after(answered)
	if f.Class == sink.Destination {
		s.refused(p, f)
	}
	s.ProbeDone(t, sink.Outcome{State: sink.Rejected, Fault: &f}, s.now)
	return waited
}

// take takes the next probe when it is due, and not earlier.
func (s *story) take(t Target) time.Duration {
	s.t.Helper()
	at := s.ProbeAt(t)
	waited := at.Sub(s.now)
	if at.IsZero() || s.TakeProbe(t, at.Add(-time.Nanosecond)) || !s.TakeProbe(t, at) {
		s.t.Fatalf("the probe of %v is not due at %v", t, at)
	}
	if at.After(s.now) {
		s.now = at
	}
	return waited
}

// refuse lets probes be refused for a time.
func (s *story) refuse(p sink.Place, f sink.Fault, d time.Duration) {
	s.t.Helper()
	for end := s.now.Add(d); s.now.Before(end); {
		s.probes(p, f, 0)
	}
}

func (s *story) want(what string, got, want bool) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: %v, want %v", what, got, want)
	}
}
