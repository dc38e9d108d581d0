// The suite: what every sink must do.

package sinktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Run runs the suite, with the kinds of failure that has says true of: a broker cannot show every
// kind. Without Good only the failures are tested. open makes a fresh broker with a running sink,
// which has no timeouts that end a call soon, and sees to its end by t.Cleanup.
func Run(t *testing.T, has func(kind Kind) bool, open func(t *testing.T) Broker) {
	each := func(name string, kinds []Kind, test func(*testing.T, Broker, Kind)) {
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(kind Kind) bool { return !has(kind) })
		if len(kinds) == 0 {
			return
		}
		t.Run(name, func(t *testing.T) {
			for _, kind := range kinds {
				t.Run(string(kind), func(t *testing.T) { test(t, open(t), kind) })
			}
		})
	}
	if has(Good) {
		t.Run("order", func(t *testing.T) { testOrder(t, open(t)) })
		t.Run("places", func(t *testing.T) { testPlaces(t, open(t)) })
	}
	each("routes", destinationKinds[:1], testRoute) // no route depends on how its destination fails
	each("destinations", destinationKinds, testDestination)
	each("events", eventKinds, testFaulty)
	each("waits", brokerKinds, testWaits)
	each("cancel", append([]Kind{Good}, brokerKinds...), testCancel)
	each("stop", append([]Kind{Good}, brokerKinds...), testStop)
}

// testOrder: nothing fails, so everything arrives once, and of each key in order.
func testOrder(t *testing.T, b Broker) {
	var events []*event.Event
	for i := range 3000 {
		events = append(events, b.Event(Good, fmt.Sprint("key-", i*i%97)))
	}
	l := publishAll(t, b, events)
	if len(l.rejected) > 0 || l.errs > 0 {
		t.Errorf("%d rejected, %d calls failed", len(l.rejected), l.errs)
	}
	if dups := wantDelivered(t, b, events); dups > 0 {
		t.Errorf("%d duplicates", dups)
	}
}

// testDestination: one event among a thousand goes to a broken destination: it alone is rejected,
// as the destination's fault, and fixing that is enough for it to go.
func testDestination(t *testing.T, b Broker, kind Kind) {
	b.Break(kind)
	good, poison := amongMany(t, b, kind, sink.Destination)
	wantDelivered(t, b, good)
	b.Fix(kind)
	for _, ev := range poison {
		wantConfirmed(t, b, ev)
	}
	wantOnce(t, b, wantDelivered(t, b, append(good, poison...)))
}

// testFaulty: one event among a thousand is at fault itself: it alone is rejected.
func testFaulty(t *testing.T, b Broker, kind Kind) {
	good, _ := amongMany(t, b, kind, sink.Permanent, sink.Transient)
	wantDelivered(t, b, good)
}

// amongMany publishes two calls of 500 events with one of kind in each, and wants exactly those
// rejected, with one of the classes and a text for the operator.
func amongMany(t *testing.T, b Broker, kind Kind, classes ...sink.Class) (good, poison []*event.Event) {
	t.Helper()
	ctx := t.Context()
	lane, keys := keysOfOneLane(t, b, 502)
	for n, at := range []int{0, 250} {
		var call []*event.Event
		for i := range 500 {
			k, key := Good, keys[i]
			if i == at {
				// a key of its own: a rejected event stops its key's later ones
				k, key = kind, keys[500+n]
			}
			call = append(call, b.Event(k, key))
		}
		outcomes, err := publishChecked(ctx, t, b.Sink(), lane, call)
		if err != nil {
			t.Fatalf("publish: %v", err)
		}
		for i, o := range outcomes {
			if i != at {
				if o.State != sink.Confirmed {
					t.Fatalf("good event %d: %s %v", i, o.State, o.Fault)
				}
				good = append(good, call[i])
				continue
			}
			if o.State != sink.Rejected || o.Fault.Text == "" || !slices.Contains(classes, o.Fault.Class) {
				t.Fatalf("event with %s: %s %v, want rejected, %v", kind, o.State, o.Fault, classes)
			}
			if o.Fault.Class == sink.Destination && o.Fault.Destination == "" {
				t.Errorf("a destination's fault does not name it: %v", o.Fault)
			}
			if o.Fault.Whole != (kind == DestinationMissing || kind == DestinationForbidden) {
				t.Errorf("event with %s: the whole is accused: %v", kind, o.Fault.Whole)
			}
			poison = append(poison, call[i])
		}
	}
	return good, poison
}

// testWaits: the broker fails as a whole while events are under way: all are delivered once it is
// fixed, in order, and none is rejected. While it blocks nothing is sent again; what is sent again
// is stored once where the broker knows it.
func testWaits(t *testing.T, b Broker, kind Kind) {
	first := someEvents(b, 200)
	publishAll(t, b, first)
	b.Break(kind)
	second := someEvents(b, 200)
	ctx := t.Context()
	l := newLanes(t, b)
	done := make(chan error, 1)
	go func() { done <- l.publish(ctx, second) }()
	if kind == AnswersLost {
		await.Until(t, "an unanswered event to be stored", func() bool { return len(b.Delivered()) > len(first) })
	}
	select {
	case err := <-done:
		t.Fatalf("published to a broker that is %s: %v", kind, err)
	default:
	}
	b.Fix(kind)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(l.rejected) > 0 {
		t.Errorf("%d events rejected for the broker's fault", len(l.rejected))
	}
	dups := wantDelivered(t, b, append(first, second...))
	if kind == Blocked && dups > 0 {
		t.Errorf("%d duplicates: something was sent again while the broker blocked", dups)
	}
	wantOnce(t, b, dups)
	if dups > len(second) {
		t.Errorf("%d duplicates for %d events in doubt", dups, len(second))
	}
}

// testCancel: Publish returns after its context, in any state; and what it left behind is no later
// call's answer.
func testCancel(t *testing.T, b Broker, kind Kind) {
	lane, keys := keysOfOneLane(t, b, 100)
	call := func() (events []*event.Event) {
		for _, key := range keys {
			events = append(events, b.Event(Good, key))
		}
		return events
	}
	first := call()
	if _, err := publishChecked(t.Context(), t, b.Sink(), lane, first); err != nil {
		t.Fatal(err)
	}
	if kind != Good {
		b.Break(kind)
	}
	ctx, cancel := context.WithCancel(t.Context())
	type result struct {
		outcomes []sink.Outcome
		err      error
	}
	second := call()
	done := make(chan result, 1)
	go func() {
		outcomes, err := publishChecked(ctx, t, b.Sink(), lane, second)
		done <- result{outcomes, err}
	}()
	if kind == AnswersLost {
		await.Until(t, "an unanswered event to be stored", func() bool { return len(b.Delivered()) > len(first) })
	}
	cancel()
	got := <-done
	confirmed := 0
	for _, o := range got.outcomes {
		if o.State == sink.Confirmed {
			confirmed++
		}
	}
	if kind == Good {
		if got.err == nil && confirmed < len(second) {
			t.Errorf("no error, and %d of %d confirmed", confirmed, len(second))
		}
	} else if got.err == nil && confirmed > 0 || got.err != nil && kind != Unavailable && !errors.Is(got.err, context.Canceled) {
		t.Errorf("%s: %v, %d confirmed", kind, got.err, confirmed)
	}
	if kind != Good {
		b.Fix(kind)
	}
	publishAll(t, b, append(append(second, someEvents(b, 50)...), call()...))
	wantDelivered(t, b, append(first, second...))
}

// testStop: Run returns after its context, in any state, with work under way.
func testStop(t *testing.T, b Broker, kind Kind) {
	publishAll(t, b, someEvents(b, 10))
	if kind != Good {
		b.Break(kind)
	}
	ctx, cancel := context.WithCancel(t.Context())
	published := make(chan error, 1)
	events := someEvents(b, 100)
	l := newLanes(t, b)
	go func() { published <- l.publish(ctx, events) }()
	stopped := make(chan error, 1)
	go func() { stopped <- b.Stop() }()
	if err := <-stopped; err != nil {
		t.Errorf("Run: %v", err)
	}
	cancel()
	if err := <-published; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("publish: %v", err)
	}
	if kind != Good {
		b.Fix(kind)
	}
}
