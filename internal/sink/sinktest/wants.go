// What the tests of the suite want of a broker.

package sinktest

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// publishAll publishes events as lanes do and wants all of them answered.
func publishAll(t *testing.T, b Broker, events []*event.Event) *lanes {
	t.Helper()
	l := newLanes(t, b)
	if err := l.publish(t.Context(), events); err != nil {
		t.Fatalf("publish %d events: %v", len(events), err)
	}
	return l
}

// maxIdlePolls is after how many polls without an arrival nothing more is waited for.
const maxIdlePolls = 3000

// wantDelivered wants each event delivered, and the first arrivals of each key in order. It returns
// how many arrivals were repeated.
func wantDelivered(t *testing.T, b Broker, events []*event.Event) (duplicates int) {
	t.Helper()
	missing := map[string]bool{}
	for _, ev := range events {
		missing[string(ev.ID)] = true
	}
	var got []Delivery
	idle := 0 // polls since the last arrival
	await.Until(t, fmt.Sprintf("%d events to be delivered", len(events)), func() bool {
		more := b.Delivered()[len(got):]
		for _, d := range more {
			got = append(got, d)
			delete(missing, d.ID)
		}
		if idle++; len(more) > 0 {
			idle = 0
		}
		return len(missing) == 0 || idle > maxIdlePolls
	})
	if len(missing) > 0 {
		t.Fatalf("%d of %d events do not arrive", len(missing), len(events))
	}
	seen, last := map[string]bool{}, map[string]event.Position{}
	for _, d := range got {
		if seen[d.ID] {
			duplicates++
			continue
		}
		seen[d.ID] = true
		if d.Position.Less(last[d.Key]) {
			t.Fatalf("key %s: %s arrived after %s", d.Key, d.Position, last[d.Key])
		}
		last[d.Key] = d.Position
	}
	return duplicates
}

// wantOnce wants no duplicates of what Publish alone can have sent again, where the broker knows it
// again.
func wantOnce(t *testing.T, b Broker, duplicates int) {
	t.Helper()
	if b.Idempotent() && duplicates > 0 {
		t.Errorf("%d duplicates, and the broker knows again what it was sent", duplicates)
	}
}

// wantConfirmed publishes an event to a destination that was fixed until that is noticed.
func wantConfirmed(t *testing.T, b Broker, ev *event.Event) {
	t.Helper()
	lane := laneOf(t, b.Sink(), ev)
	await.Until(t, "the fixed destination to take the event", func() bool {
		outcomes, err := publishChecked(t.Context(), t, b.Sink(), lane, []*event.Event{ev})
		return err == nil && outcomes[0].State == sink.Confirmed
	})
}

// someEvents makes n events of as many keys.
func someEvents(b Broker, n int) (events []*event.Event) {
	for i := range n {
		events = append(events, b.Event(Good, fmt.Sprint("some-", i)))
	}
	return events
}

func keysOfOneLane(t *testing.T, b Broker, n int) (lane int, keys []string) {
	t.Helper()
	byLane := map[int][]string{}
	for i := 0; ; i++ {
		key := fmt.Sprint("key-", i)
		lane := laneOf(t, b.Sink(), b.Event(Good, key))
		byLane[lane] = append(byLane[lane], key)
		if len(byLane[lane]) == n {
			return lane, byLane[lane]
		}
	}
}

func laneOf(t *testing.T, s sink.Sink, ev *event.Event) int {
	t.Helper()
	return placeOf(t, s, ev).Lane
}

// placeOf waits for an event's place.
func placeOf(t *testing.T, s sink.Sink, ev *event.Event) sink.Place {
	t.Helper()
	p, ok := s.Place(ev)
	if !ok {
		await.Until(t, "the place of an event", func() bool { p, ok = s.Place(ev); return ok })
	}
	return p
}
