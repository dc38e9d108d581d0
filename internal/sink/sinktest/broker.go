// Package sinktest is the conformance suite of sinks: what every sink.Sink promises, whatever its
// broker. It speaks of kinds of failure, not of a protocol.
package sinktest

import (
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Kind is a kind of failure, in the relay's terms.
type Kind string

// The kinds. Good is no failure.
const (
	Good Kind = "good"

	// The broker as a whole. No event is at fault, no attempt is spent.
	Unavailable Kind = "unavailable" // open connections are cut and new ones refused
	Stalled     Kind = "stalled"     // it neither reads nor answers
	Blocked     Kind = "blocked"     // it takes nothing for the time being, and says so
	// what is sent arrives and is stored, no answer comes back; Fix cuts the connections
	AnswersLost Kind = "answers lost"

	// A destination: those of the events made with this kind. It is whole until Break.
	DestinationMissing   Kind = "destination missing"
	DestinationForbidden Kind = "destination forbidden"
	// it is there, and stores nothing: unroutable, too few replicas
	DestinationRefusing Kind = "destination refusing"
	DestinationFull     Kind = "destination full"

	// An event: those made with this kind are at fault for ever, whatever Break and Fix.
	EventTooLarge    Kind = "event too large"
	EventInvalid     Kind = "event invalid"
	EventUndecodable Kind = "event undecodable"
)

var (
	brokerKinds      = []Kind{Unavailable, Stalled, Blocked, AnswersLost}
	destinationKinds = []Kind{DestinationMissing, DestinationForbidden, DestinationRefusing, DestinationFull}
	eventKinds       = []Kind{EventTooLarge, EventInvalid, EventUndecodable}
)

// Broker is a broker under test with a sink that is running on it. The suite calls its methods from
// one goroutine. Failures of the test bed itself end the test.
type Broker interface {
	Sink() sink.Sink
	// Stop ends the sink's Run and returns what Run returned. It waits for it without bound: the
	// suite bounds it.
	Stop() error

	// Event makes the next event, later in commit order than all before. With a destination's kind
	// it goes to the destination that Break(kind) breaks; with an event's kind it is itself at
	// fault. Events of one key have one lane.
	Event(kind Kind, key string) *event.Event
	// Break makes the broker fail, Fix ends it; both return when that is so for whoever connects or
	// publishes then. A destination's Fix may take effect at the sink a little later.
	Break(kind Kind)
	Fix(kind Kind)

	// Delivered is everything that is stored by now, of each key in order of arrival.
	Delivered() []Delivery
	// Idempotent says that the broker knows again what Publish sends it a second time, and stores
	// it once.
	Idempotent() bool
}

// Delivery is one stored message.
type Delivery struct {
	Position event.Position
	ID, Key  string
}
