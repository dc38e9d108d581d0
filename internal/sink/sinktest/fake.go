// A broker in memory, for the suite itself and for tests of other packages.

package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Fake is a broker in memory and the sink on it, with every kind of failure. Tests of other
// packages may script it with Refuse. Its methods may be called from any goroutine.
type Fake struct {
	lanes int

	mu        sync.Mutex
	broken    map[Kind]bool
	changed   chan struct{} // closed and replaced when broken changes
	refuse    func(*event.Event) *sink.Fault
	kinds     map[string]Kind // of the events that Event made, by id
	delivered []Delivery
	events    uint64
	stop      context.CancelFunc
	stopped   chan error
}

var (
	_ Broker    = (*Fake)(nil)
	_ sink.Sink = (*Fake)(nil)
)

// NewFake makes a broker with so many lanes. Run need not run for Publish to work.
func NewFake(lanes int) *Fake {
	return &Fake{lanes: lanes, broken: map[Kind]bool{}, changed: make(chan struct{}), kinds: map[string]Kind{}}
}

// Refuse has every event asked about: a fault rejects it. nil refuses none.
func (f *Fake) Refuse(fault func(*event.Event) *sink.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = fault
}

// Start starts Run.
func (f *Fake) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	f.stop, f.stopped = cancel, make(chan error, 1)
	go func() { f.stopped <- f.Run(ctx) }()
}

// Stop ends what Start started.
func (f *Fake) Stop() error {
	f.stop()
	err := <-f.stopped
	f.stopped <- err
	return err
}

// Sink is f.
func (f *Fake) Sink() sink.Sink { return f }

// Break makes it fail.
func (f *Fake) Break(kind Kind) { f.set(kind, true) }

// Fix ends it.
func (f *Fake) Fix(kind Kind) { f.set(kind, false) }

func (f *Fake) set(kind Kind, broken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken[kind] = broken
	close(f.changed)
	f.changed = make(chan struct{})
}

// Delivered is what is stored.
func (f *Fake) Delivered() []Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.delivered[:len(f.delivered):len(f.delivered)]
}

// Idempotent is false: each event that arrives is stored.
func (f *Fake) Idempotent() bool { return false }

// Event makes the next event. A destination's kind is the name of its exchange, or its routing key
// when not all of the exchange is at fault.
func (f *Fake) Event(kind Kind, key string) *event.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events++
	ev := NewEvent(f.events, key)
	switch kind {
	case DestinationMissing, DestinationForbidden:
		ev.Aggregate = []byte(kind)
	case DestinationRefusing, DestinationFull:
		ev.Type = []byte(kind)
	default:
	}
	f.kinds[string(ev.ID)] = kind
	return ev
}

// Place has lanes by hash. Events go to an exchange that their aggregate names, with their type as
// routing key.
func (f *Fake) Place(ev *event.Event) (p sink.Place, ok bool) {
	p.Lane = int(ev.Hash % uint64(f.lanes))
	r := f.Route(ev)
	if ev.Fault != nil || r.Name == nil {
		return p, true
	}
	if p.ExchangeOrTopic = sink.ExchangeOrTopicOf(r.Name); r.RoutingKey != nil {
		p.Dest = sink.DestOfPair(p.ExchangeOrTopic, r.RoutingKey)
	}
	return p, true
}

// Route is the aggregate and the type.
func (f *Fake) Route(ev *event.Event) event.Route {
	if ev.Route != nil {
		return *ev.Route
	}
	return event.Route{Name: bytes.Clone(ev.Aggregate), RoutingKey: bytes.Clone(ev.Type)}
}

// Changed is nil.
func (f *Fake) Changed() <-chan struct{} { return nil }

// Run waits for ctx.
func (f *Fake) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// errCut is what a call gets whose connection was cut before it was answered.
var errCut = errors.New("connection cut")

// Publish stores the events in order. A failure of the broker as a whole that sets in during a call
// is met at the next event.
func (f *Fake) Publish(ctx context.Context, _ int, events []*event.Event, outcomes []sink.Outcome) error {
	for i := range outcomes {
		outcomes[i].State = sink.Unsent
	}
	for i, ev := range events {
		if err := f.wait(ctx, Unavailable, Stalled, Blocked); err != nil {
			outcomes[i].State = sink.Unknown
			return fmt.Errorf("publish: %w", err)
		}
		fault := f.store(ev)
		if fault != nil {
			outcomes[i] = sink.Outcome{State: sink.Rejected, Fault: fault}
			continue
		}
		f.mu.Lock()
		lost := f.broken[AnswersLost]
		f.mu.Unlock()
		if lost {
			outcomes[i].State = sink.Unknown
			if err := f.wait(ctx, AnswersLost); err != nil {
				return fmt.Errorf("publish: %w", err)
			}
			return fmt.Errorf("publish: %w", errCut)
		}
		outcomes[i].State = sink.Confirmed
	}
	return nil
}

// wait waits while any of kinds is broken.
func (f *Fake) wait(ctx context.Context, kinds ...Kind) error {
	for {
		f.mu.Lock()
		broken, changed := false, f.changed
		for _, kind := range kinds {
			broken = broken || f.broken[kind]
		}
		f.mu.Unlock()
		if err := ctx.Err(); err != nil || !broken {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// store stores an event, or says why not.
func (f *Fake) store(ev *event.Event) *sink.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ev.Fault != nil {
		return &sink.Fault{Class: sink.Permanent, Reason: sink.Undecodable, Text: ev.Fault.Error()}
	}
	if f.refuse != nil {
		if fault := f.refuse(ev); fault != nil {
			return fault
		}
	}
	switch kind := f.kinds[string(ev.ID)]; kind {
	case EventTooLarge, EventInvalid, EventUndecodable:
		return &sink.Fault{Class: sink.Permanent, Reason: sink.Invalid, Text: string(kind)}
	default:
	}
	if fault := f.destination(f.Route(ev)); fault != nil {
		return fault
	}
	f.delivered = append(f.delivered, Delivery{Position: ev.Position, ID: string(ev.ID), Key: string(ev.Key)})
	return nil
}

// destination is the fault of where an event goes.
func (f *Fake) destination(r event.Route) *sink.Fault {
	if r.Name == nil || r.RoutingKey == nil {
		return &sink.Fault{Class: sink.Permanent, Reason: sink.NullInTemplate, Text: "a name has no value"}
	}
	fault := &sink.Fault{Class: sink.Destination, Whole: true, Destination: fmt.Sprintf("exchange %q", r.Name)}
	switch exchange, routingKey := Kind(r.Name), Kind(r.RoutingKey); {
	case exchange == DestinationMissing && f.broken[exchange]:
		fault.Reason, fault.Text = sink.NoExchange, string(exchange)
	case exchange == DestinationForbidden && f.broken[exchange]:
		fault.Reason, fault.Text = sink.NotPermitted, string(exchange)
	case routingKey == DestinationRefusing && f.broken[routingKey]:
		fault.Reason, fault.Text, fault.Whole = sink.Unroutable, string(routingKey), false
	case routingKey == DestinationFull && f.broken[routingKey]:
		fault.Reason, fault.Text, fault.Whole = sink.Nacked, string(routingKey), false
	default:
		return nil
	}
	if !fault.Whole {
		fault.Destination += fmt.Sprintf(", routing key %q", r.RoutingKey)
	}
	return fault
}
