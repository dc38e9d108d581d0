// The outcome of an event: its state, and the fault of a rejection; the state of a Publish call,
// with what waits behind a rejection; and the digests of exchanges, topics and destinations.

package sink

import (
	"encoding/binary"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// State is the state of one event after a Publish call.
type State uint8

const (
	// Unknown: possibly sent, and not answered: the connection broke or ctx ended. It is the zero
	// value because it is the only state that is safe to leave by mistake: the event is sent again
	// and nothing is settled.
	Unknown State = iota
	// Unsent: certainly not at the broker: it was skipped, or not reached.
	Unsent
	// Confirmed: the broker took responsibility for it. Only now is it settled.
	Confirmed
	// Rejected: the broker (or a check on its behalf) refused it; Fault says why.
	Rejected
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"unknown", "unsent", "confirmed", "rejected"}[s]
}

// Outcome is the result of one event in one Publish call.
type Outcome struct {
	State State
	// Fault is non-nil exactly when State is Rejected. Events refused for one cause may share one
	// Fault.
	Fault *Fault
}

// Class says what is at fault for a rejection (invariant I4): the destination, or the event. An
// unavailable broker is not a class: it is Publish's error.
type Class uint8

const (
	// Destination: the broker's answer blames an exchange, a pair of exchange and routing key, a
	// topic or a partition.
	Destination Class = iota
	// Transient: this event's own fault, and it may pass.
	Transient
	// Permanent: this event's own fault, and it never passes: too large, invalid, undecodable.
	Permanent
)

// String is the class's name in metrics, logs and status.
func (c Class) String() string {
	return [...]string{"destination", "transient", "permanent"}[c]
}

// Reason is the closed list of why an event was rejected: the label of cdc_relay_rejections_total.
type Reason string

// The reasons.
const (
	Unroutable   Reason = "unroutable"    // returned: no queue is bound for its routing key
	NoExchange   Reason = "no_exchange"   // 404
	NotPermitted Reason = "not_permitted" // 403
	NoTopic      Reason = "no_topic"      // Kafka: the topic does not exist
	// sink.*.allow has no pattern for it; nothing was sent
	NotAllowed Reason = "not_allowed"
	// Kafka: the partition has no leader that answers, while others confirm
	NoLeader Reason = "no_leader"
	// Kafka: fewer replicas are in sync than min.insync.replicas asks for, while others confirm
	TooFewReplicas Reason = "too_few_replicas"
	// the queue is full (reject-publish), or a queue process died
	Nacked Reason = "nacked"
	// no answer within confirm_timeout (RabbitMQ: twice that) while the broker answers others
	Unconfirmed Reason = "unconfirmed"
	// body or headers over the broker's limit, or the event over its budget (event.Budget)
	TooLarge Reason = "too_large"
	// the row is over source.max_event_bytes: event.Event.LeftOut
	RowTooLarge Reason = "row_too_large"
	// a header, key or property the protocol cannot carry
	Invalid        Reason = "invalid"
	NullInTemplate Reason = "null_in_template" // the exchange, routing key or topic has no value
	Undecodable    Reason = "undecodable"      // the row itself: event.Event.Fault
	// a channel or connection exception for this event sent alone
	BrokerException Reason = "broker_exception"
)

// Rejections lists the reasons of each class: every series of cdc_relay_rejections_total.
var Rejections = map[Class][]Reason{
	Destination: {
		Unroutable, NoExchange, NotPermitted, NoTopic, NotAllowed, NoLeader, TooFewReplicas, Nacked, Unconfirmed,
		Invalid,         // Kafka: the topic takes no records of this kind
		BrokerException, // RabbitMQ: the exchange's type is a plugin's, which is gone
	},
	Transient: {BrokerException},
	Permanent: {
		TooLarge, RowTooLarge, Invalid, NullInTemplate, Undecodable,
		NotAllowed, // RabbitMQ: a further routing key, in a header
	},
}

// Fault is why an event was rejected, and whose fault that is.
type Fault struct {
	Class  Class
	Reason Reason
	// Whole is true when Class is Destination and the answer blames the exchange or topic as a
	// whole (Place.ExchangeOrTopic), not only the pair of exchange and routing key or the partition
	// (Place.Dest).
	Whole bool
	// Destination is what the broker's answer blames, when Class is Destination, as an operator
	// would name it: `exchange "outbox.events"`, `exchange "outbox.events", routing key
	// "order.created"`. Else it is where the event was going, or "".
	Destination string
	// Text is the broker's own error text, or names the limit that was exceeded. It carries no
	// payload, key or header value.
	Text string
	// Held says what an operator does first, where only his `deferred retry` may end the pause: who
	// is bound first would get what waits, and who is bound later would miss it. "": the pause ends
	// by itself.
	Held string
}

// PermanentFault is the fault of an event that can never be published; text says why.
func PermanentFault(reason Reason, text string) *Fault {
	return &Fault{Class: Permanent, Reason: reason, Text: text}
}

// RowFault is why an event is never sent, whatever record it would become; nil: it may be sent.
func RowFault(ev *event.Event) *Fault {
	if ev.Fault == nil && ev.LeftOut == nil { // the usual case, which is inlined
		return nil
	}
	return leftOutOrUndecodable(ev)
}

// leftOutOrUndecodable is RowFault of an event that has one: the rest is inlined without it.
func leftOutOrUndecodable(ev *event.Event) *Fault {
	if ev.Fault != nil {
		return PermanentFault(Undecodable, ev.Fault.Error())
	}
	what := "row of " + ev.LeftOut.Table
	if ev.LeftOut.Table == "" {
		what = "logical message"
	}
	return PermanentFault(RowTooLarge, "the "+what+" has more bytes than source.max_event_bytes allows: its large values are left out")
}

// Call is the Publish call that a lane has under way. A lane uses one for all its calls, one at a
// time.
type Call struct {
	Events   []*event.Event
	Outcomes []Outcome
	// the broker's answers so far, by event; for Opening.Confirms
	Acks, Nacks, Returned, Timeouts int

	confirms        func(acks, nacks, returned, timeouts int)
	exchangeOrTopic func(*event.Event) uint64
	// the first rejected event of each ordering group that has one
	firstRejected map[uint64]int
}

// NewCall makes a lane's call. confirms takes the answers of each call and may be nil;
// exchangeOrTopic digests where an event goes, as Place.ExchangeOrTopic.
func NewCall(confirms func(acks, nacks, returned, timeouts int), exchangeOrTopic func(*event.Event) uint64) Call {
	return Call{confirms: confirms, exchangeOrTopic: exchangeOrTopic, firstRejected: map[uint64]int{}}
}

// Begin starts a call, of which nothing is sent yet.
func (c *Call) Begin(events []*event.Event, outcomes []Outcome) {
	c.Events, c.Outcomes = events, outcomes
	c.Acks, c.Nacks, c.Returned, c.Timeouts = 0, 0, 0, 0
	for i := range outcomes {
		outcomes[i] = Outcome{State: Unsent}
	}
}

// End reports the answers and releases the call's events.
func (c *Call) End() {
	if c.confirms != nil {
		c.confirms(c.Acks, c.Nacks, c.Returned, c.Timeouts)
	}
	clear(c.firstRejected)
	c.Events, c.Outcomes = nil, nil
}

// Reject rejects an event, unless its outcome is certain already. Later events of its ordering
// group are not to be sent in this call.
func (c *Call) Reject(i int, fault *Fault) {
	if c.Outcomes[i].State == Confirmed || c.Outcomes[i].State == Rejected {
		return
	}
	c.Outcomes[i] = Outcome{State: Rejected, Fault: fault}
	if group, ordered := c.groupOf(i); ordered {
		if first, ok := c.firstRejected[group]; !ok || i < first {
			c.firstRejected[group] = i
		}
	}
}

// IsBehindRejected reports whether an earlier event of the i-th one's ordering group was rejected
// in this call.
func (c *Call) IsBehindRejected(i int) bool {
	if len(c.firstRejected) == 0 {
		return false
	}
	group, ordered := c.groupOf(i)
	first, rejected := c.firstRejected[group]
	return ordered && rejected && first < i
}

// groupOf is the ordering group that a rejection stops: the key in the exchange or topic. The key's
// events for another one go on: if they stopped, events of other keys would overtake them there
// with ordering commit.
func (c *Call) groupOf(i int) (group uint64, ordered bool) {
	return event.PerKey.Group(c.Events[i], c.exchangeOrTopic(c.Events[i]))
}

// Unavailable is the error of a call that err ended. By the contract of Publish, an error comes
// with at least one Unknown outcome, or all outcomes are Unsent. So when some events were answered
// and nothing is in doubt, the others become Unknown; that only makes the caller more careful.
// Events behind a rejected one stay Unsent and are not counted here. When no other events are left,
// because the last answer came with the end of ctx, there is no error.
func (c *Call) Unavailable(err error) error {
	answered, doubted, open := 0, 0, 0
	for i, o := range c.Outcomes {
		switch {
		case o.State == Unknown:
			doubted++
		case o.State != Unsent:
			answered++
		case !c.IsBehindRejected(i):
			open++
		}
	}
	if doubted+open == 0 {
		return nil
	}
	for i := range c.Outcomes {
		if o := &c.Outcomes[i]; answered > 0 && doubted == 0 && o.State == Unsent && !c.IsBehindRejected(i) {
			o.State = Unknown
		}
	}
	return fmt.Errorf("publish: %w", err)
}

// ExchangeOrTopicOf digests the name of an exchange or topic; never 0, which means no name. The
// retry table stores these digests, so they must never change.
func ExchangeOrTopicOf(name []byte) uint64 { return max(1, event.HashName(0, name)) }

// DestOfPair digests the pair of an exchange, by its ExchangeOrTopicOf, and a routing key.
func DestOfPair(exchangeOrTopic uint64, routingKey []byte) uint64 {
	return max(1, event.HashName(exchangeOrTopic, routingKey))
}

// DestOfPartition digests a partition of the topic whose ExchangeOrTopicOf is exchangeOrTopic.
func DestOfPartition(exchangeOrTopic uint64, partition int32) uint64 {
	var number [4]byte
	binary.BigEndian.PutUint32(number[:], uint32(partition))
	return max(1, event.HashName(exchangeOrTopic, number[:]))
}
