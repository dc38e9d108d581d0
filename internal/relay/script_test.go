package relay

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// scriptSink is a sink whose calls wait for the test to answer them.
type scriptSink struct {
	lanes   int
	changed chan struct{}

	mu       sync.Mutex
	unknown  bool // Lane has no answer
	calls    map[int]*scriptCall
	arrivals []*scriptCall // since the test last took them
}

// scriptCall is a Publish that waits for its answer.
type scriptCall struct {
	lane     int
	ids      []string
	outcomes []sink.Outcome
	answer   chan error // cap 1
}

func newScriptSink(lanes int) *scriptSink {
	return &scriptSink{lanes: lanes, changed: make(chan struct{}, 1), calls: make(map[int]*scriptCall)}
}

// Place has one exchange or topic; an event's type is its destination in it.
func (s *scriptSink) Place(ev *event.Event) (sink.Place, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dest := uint64(1)
	for _, b := range ev.Type {
		dest = dest<<8 | uint64(b)
	}
	return sink.Place{Lane: int(ev.Hash % uint64(s.lanes)), ExchangeOrTopic: 1 << 32, Dest: dest}, !s.unknown
}

func (s *scriptSink) Route(ev *event.Event) event.Route {
	return event.Route{Name: []byte("x"), RoutingKey: ev.Type}
}

func (s *scriptSink) Changed() <-chan struct{} { return s.changed }

func (s *scriptSink) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (s *scriptSink) Publish(ctx context.Context, lane int, events []*event.Event, outcomes []sink.Outcome) error {
	c := &scriptCall{lane: lane, outcomes: outcomes, answer: make(chan error, 1)}
	for i, ev := range events {
		if outcomes[i] != (sink.Outcome{}) {
			return errors.New("outcomes are not zero at the call")
		}
		c.ids = append(c.ids, string(ev.ID))
	}
	s.mu.Lock()
	s.calls[lane] = c
	s.arrivals = append(s.arrivals, c)
	s.mu.Unlock()
	select {
	case err := <-c.answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// apart is the lane of probes; one waits at a time.
const apart = -1

func (s *scriptSink) Probe(ctx context.Context, ev *event.Event, _ bool) (sink.Outcome, error) {
	outcomes := make([]sink.Outcome, 1)
	err := s.Publish(ctx, apart, []*event.Event{ev}, outcomes)
	return outcomes[0], err
}

// arrived returns the calls made since it was last called, by lane.
func (s *scriptSink) arrived() []*scriptCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.arrivals
	s.arrivals = nil
	slices.SortStableFunc(calls, func(a, b *scriptCall) int { return a.lane - b.lane })
	return calls
}

// waiting is the call of the lane that waits for its answer, or nil.
func (s *scriptSink) waiting(lane int) *scriptCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[lane]
}

// reply ends the call of a lane; set fills in outcomes by id, all others are confirmed.
func (s *scriptSink) reply(lane int, err error, set map[string]sink.Outcome) {
	s.mu.Lock()
	c := s.calls[lane]
	delete(s.calls, lane)
	s.mu.Unlock()
	for i, id := range c.ids {
		if o, ok := set[id]; ok {
			c.outcomes[i] = o
		} else {
			c.outcomes[i].State = sink.Confirmed
		}
	}
	c.answer <- err
}
