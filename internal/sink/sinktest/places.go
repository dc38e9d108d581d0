// The places and routes of events.

package sinktest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// testPlaces: whoever asks, and how often, the place of an event is the same, and so is the lane of
// its key; a row of the retry table that has the event's route belongs where the event does.
func testPlaces(t *testing.T, b Broker) {
	const keys, askers = 50, 4
	var events []*event.Event
	for i := range 4 * keys {
		events = append(events, b.Event(Good, fmt.Sprint("key-", i%keys)))
	}
	places := make([][]sink.Place, askers)
	var asking sync.WaitGroup
	for n := range askers {
		places[n] = make([]sink.Place, len(events))
		asking.Go(func() {
			for i := range events {
				at := (i + n*len(events)/askers) % len(events)
				places[n][at] = placeOf(t, b.Sink(), events[at])
			}
		})
	}
	asking.Wait()
	for i, ev := range events {
		place := places[0][i]
		for n := range askers {
			if places[n][i] != place {
				t.Fatalf("event %d has the places %+v and %+v", i, place, places[n][i])
			}
		}
		if place != places[0][i%keys] {
			t.Fatalf("two events of a key have the places %+v and %+v", place, places[0][i%keys])
		}
		if place.ExchangeOrTopic == 0 || place.Dest == 0 || place.Lane < 0 {
			t.Fatalf("event %d with a destination: %+v", i, place)
		}
		deferred := *ev
		route := b.Sink().Route(ev)
		if route.Name == nil {
			t.Fatalf("event %d has no route", i)
		}
		deferred.Route = &route
		deferred.Columns, deferred.Type = nil, nil
		if got := placeOf(t, b.Sink(), &deferred); got != place {
			t.Fatalf("an event has the place %+v, and deferred %+v", place, got)
		}
		if again := b.Sink().Route(&deferred); string(again.Name) != string(route.Name) || string(again.RoutingKey) != string(route.RoutingKey) {
			t.Fatalf("route %q, deferred %q", route, again)
		}
	}
}

// testRoute: an event with a route goes there, whatever its own destination.
func testRoute(t *testing.T, b Broker, kind Kind) {
	ctx := t.Context()
	b.Break(kind)
	well, ill := b.Sink().Route(b.Event(Good, "key")), b.Sink().Route(b.Event(kind, "key"))
	good, bad := b.Event(kind, "key"), b.Event(Good, "another")
	good.Route, good.Replay = &well, true
	bad.Route = &ill
	outcomes, err := publishChecked(ctx, t, b.Sink(), laneOf(t, b.Sink(), good), []*event.Event{good})
	if err != nil || outcomes[0].State != sink.Confirmed {
		t.Fatalf("to a whole destination: %v %+v", err, outcomes[0])
	}
	wantDelivered(t, b, []*event.Event{good})
	outcomes, err = publishChecked(ctx, t, b.Sink(), laneOf(t, b.Sink(), bad), []*event.Event{bad})
	if err != nil || outcomes[0].State != sink.Rejected || outcomes[0].Fault.Class != sink.Destination {
		t.Fatalf("to a destination that is %s: %v %+v", kind, err, outcomes[0])
	}
	b.Fix(kind)
	wantConfirmed(t, b, bad)
	wantDelivered(t, b, []*event.Event{good, bad})
}
