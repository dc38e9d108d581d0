// How the rows of a store are placed, and what a new leader finds out when that has changed.

package store

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Places tells how the sink that is configured places events. A row keeps the route that it was
// given while that is a route of this kind of sink: the names of another broker mean nothing here.
type Places struct {
	Sink      string // the kind
	Templates string // of its routes, as people read them
	Keyed     bool   // its routes have a routing key
	// Route places an event that has no Route.
	Route func(ev *event.Event) event.Route
	// Switched is told what was found in the rows of an earlier configuration; nil: nobody is.
	Switched func(Switch)
}

// Switch is what has changed since the rows were placed.
type Switch struct {
	From            string // the kind of sink; "": not known
	Sink, Templates bool   // it is another one; they are others of the same sink
	// Placed rows and dead letters got a new place. Kept ones have one that the templates would not
	// give them now.
	Placed, Kept int
	Cancelled    int // operators' jobs that named a place of another kind of sink
}

// By is what cdc_relay.slots stores of how rows are grouped and placed. A version before Places
// stores the scope alone, one before keys had a secret nothing of that.
func (p *Places) By(scope event.Scope, keys *event.KeyHash) string {
	by := scope.String()
	if keys != nil {
		by += fmt.Sprintf(" by secret %08x", uint32(keys.Of(nil, nil)))
	}
	if p == nil {
		return by
	}
	return by + "; " + p.Sink + ": " + p.Templates
}

// Since reads what By has stored.
func (p *Places) Since(by string) (s Switch) {
	_, placed, known := strings.Cut(by, "; ")
	if p == nil || !known {
		return s
	}
	kind, templates, _ := strings.Cut(placed, ": ")
	s.From, s.Sink = kind, kind != p.Sink
	s.Templates = !s.Sink && templates != p.Templates
	return s
}

// Place gives the row a new place if its own means nothing any more, and reports whether it did.
// Its partition on Kafka is found when it goes: until it is deferred again its Dest is 0.
func (p *Places) Place(row *Row, s *Switch) bool {
	ev, was := &row.Event, *row.Event.Route
	ev.Route = nil
	now := p.Route(ev)
	ev.Route = &was
	switch {
	case same(was.Name, now.Name) && same(was.RoutingKey, now.RoutingKey):
		return false
	case !s.Sink && was.Name != nil && (was.RoutingKey != nil) == p.Keyed:
		s.Kept++
		return false
	}
	s.Placed++
	ev.Route, row.ExchangeOrTopic, row.Dest = &now, 0, 0
	if ev.Fault != nil || now.Name == nil {
		return true
	}
	if row.ExchangeOrTopic = sink.ExchangeOrTopicOf(now.Name); now.RoutingKey != nil {
		row.Dest = sink.DestOfPair(row.ExchangeOrTopic, now.RoutingKey)
	}
	return true
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
