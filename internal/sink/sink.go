// Package sink defines the contract between the lanes and a broker: what a sink does, and the
// outcomes it reports.
package sink

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Place is where an event belongs inside the relay. Digests are of 64 bits; two names that share
// one only wait and pause together.
type Place struct {
	Lane            int    // from 0
	ExchangeOrTopic uint64 // digest of the exchange or topic; order is kept per key within it
	// digest of the pair of exchange and routing key, or of topic and partition
	Dest uint64
}

// Sink publishes events to one broker. Publish is called by one goroutine per lane, Run by one
// goroutine of its own.
type Sink interface {
	// Place says where an event belongs. It does no I/O and does not block; it may be called from
	// several goroutines. All events of an ordering key and exchange or topic have the same lane
	// for the life of the sink. ok is false while a topic is unknown, and for a bounded time while
	// a topic that may be new is requested again. The reader then waits until Changed delivers,
	// with the event outside the in-flight budget, and reads no event of any topic. A topic that
	// was answered with an error has a lane of its own, events without a topic share one: Publish
	// there returns the fault. An event with a Route goes there.
	Place(ev *event.Event) (p Place, ok bool)

	// Route names where the event goes, for a row of the retry table: what Publish would use now. A
	// template without a value leaves its part nil.
	Route(ev *event.Event) event.Route

	// Changed delivers after metadata changed, so that Place is worth asking again. A sink whose
	// Place always answers returns nil.
	Changed() <-chan struct{}

	// Publish sends the events in order and fills in one outcome each; len(outcomes) ==
	// len(events), all zero at the call.
	//
	// A call carries at most one event of an ordering key, unless the sink appends a call
	// atomically or ordering is pipelined. After a rejected event nothing of its key and exchange
	// or topic is sent in that call: those are Unsent. Others go on, those of the key elsewhere
	// too. With a nil error every outcome is Confirmed, Rejected or Unsent.
	//
	// A non-nil error means unavailable, or a refusal that does not say which of several events it
	// is about; and at least one outcome is Unknown or all are Unsent. Those two are offered again,
	// in order and before anything new: one by one until one is confirmed, not as the same call. So
	// what was refused is alone in the end. A sink whose broker knows a repeat by the call it came
	// in makes that call again inside Publish. While the broker is away, or has blocked its
	// publishers, Publish waits; no attempt is spent. It returns soon after ctx is done, then with
	// ctx's error, and never hangs on a dead connection.
	Publish(ctx context.Context, lane int, events []*event.Event, outcomes []Outcome) error

	// Run keeps the connections until ctx is done; it returns nil then, and an error only when the
	// sink can never work (an *event.Stop). Publish works only while Run runs.
	Run(ctx context.Context) error
}

// Placer is a Sink whose Place may have no answer before the broker gives one.
type Placer interface {
	// PlaceAnyway tells that the disk guard is on, or off. While it is on, Place answers for a
	// topic of which nothing is known, too: like one in error it has a lane of its own, for the
	// life of the sink. Changed delivers when the guard begins.
	PlaceAnyway(on bool)
}

// Prober is a Sink that can send an event apart from its lanes. Without it such events go through
// their lane with the others.
type Prober interface {
	// Probe sends one event that was refused before: for its destination's fault, or (suspect) for
	// one of its own. What the broker closes over the event carries no other, and no other waits
	// for its answer, which may take as long as the broker takes. The caller sends nothing of the
	// event's ordering group meanwhile. Outcome and error are those of a Publish of one event.
	// Probe may be called by several goroutines. It works only while Run runs.
	Probe(ctx context.Context, ev *event.Event, suspect bool) (Outcome, error)
}

// Leader is a Sink that takes more of the broker while its relay leads. Lead is called when a term
// begins, and when all calls of the term have ended. It returns at once.
type Leader interface{ Lead(on bool) }

// Holder is a Sink whose exchanges give a message only to who is bound when it comes.
type Holder interface {
	// Held is Fault.Held of an exchange that was missing.
	Held(exchangeOrTopic uint64) string
}

// A call carries at most MaxCallEvents events or MaxCallBytes bytes (one larger event goes alone),
// which bounds what a sink must keep in addition to the in-flight budget: a lane of RabbitMQ has
// room for as many returned messages.
const (
	MaxCallEvents = 512
	MaxCallBytes  = 1 << 20
)

// Finding is the result of one step of a sink's check.
type Finding struct {
	Name   string
	OK     bool
	Warn   bool   // not OK, but the relay can work
	Detail string // what was found
	Fix    string // what to do about it; "" when OK
}
