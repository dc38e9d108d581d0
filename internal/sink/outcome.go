// What became of an event in a Publish call: its state, and the fault of a rejection. Call, which
// all sinks share, keeps later events of a key behind a rejected one; digests name exchanges,
// topics and destinations.

package sink

import (
	"encoding/binary"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// State is the state of one event after a Publish call.
type State uint8

const (
	// Unknown means that the event may have been sent and was not answered: the connection broke or
	// ctx ended. It is the zero value because it is the only state that is safe to leave by
	// mistake: the event is sent again, and nothing is settled.
	Unknown State = iota
	// Unsent means that the event is certainly not at the broker: it was skipped, or its turn did
	// not come.
	Unsent
	// Confirmed means that the broker has taken responsibility for the event. Only this settles it.
	Confirmed
	// Rejected means that the broker, or a check on its behalf, has refused the event; Fault says
	// why.
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

// Class says what is at fault for a rejection (invariant I4): the destination, or the event. A
// broker that is not available is no class, but an error of Publish.
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

// Reason says why an event was rejected. The list is closed, because it is a label of
// cdc_relay_rejections_total.
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
	// Destination is what the broker's answer blames, when Class is Destination, in an operator's
	// words: `exchange "outbox.events"`, or `exchange "outbox.events", routing key
	// "order.created"`. With another Class it is where the event was going, or "".
	Destination string
	// Text is the broker's own error text, or names the limit that was exceeded. It carries no
	// payload, key or header value.
	Text string
	// Held says what an operator has to do when only his `deferred retry` may end the pause:
	// consumers that are bound before get what waits, and consumers that are bound later would miss
	// it. "" means that the pause ends by itself.
	Held string
}

// PermanentFault makes the fault of an event that can never be published; text says why.
func PermanentFault(reason Reason, text string) *Fault {
	return &Fault{Class: Permanent, Reason: reason, Text: text}
}

// RowFault returns why an event can never be sent, whatever record it would become, or nil.
func RowFault(ev *event.Event) *Fault {
	if ev.Fault == nil && ev.LeftOut == nil { // the usual case, which the compiler inlines
		return nil
	}
	return leftOutOrUndecodable(ev)
}

// leftOutOrUndecodable returns the fault of an event that has one. It is apart from RowFault so
// that the compiler can inline RowFault.
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

// Call is the state of a lane's Publish call that all sinks need. A lane uses the same Call for all
// its calls, one at a time.
type Call struct {
	Events   []*event.Event
	Outcomes []Outcome
	// The broker's answers so far, by event, for Opening.Confirms.
	Acks, Nacks, Returned, Timeouts int

	confirms        func(acks, nacks, returned, timeouts int)
	exchangeOrTopic func(*event.Event) uint64
	// firstRejected has the first rejected event of each ordering group that has one.
	firstRejected map[uint64]int
}

// NewCall makes a lane's Call. confirms takes the answers of each call and may be nil.
// exchangeOrTopic returns the digest of where an event goes, as in Place.ExchangeOrTopic.
func NewCall(confirms func(acks, nacks, returned, timeouts int), exchangeOrTopic func(*event.Event) uint64) Call {
	return Call{confirms: confirms, exchangeOrTopic: exchangeOrTopic, firstRejected: map[uint64]int{}}
}

// Begin starts a call: every event is Unsent.
func (c *Call) Begin(events []*event.Event, outcomes []Outcome) {
	c.Events, c.Outcomes = events, outcomes
	c.Acks, c.Nacks, c.Returned, c.Timeouts = 0, 0, 0, 0
	for i := range outcomes {
		outcomes[i] = Outcome{State: Unsent}
	}
}

// End reports the answers and drops the references to the call's events.
func (c *Call) End() {
	if c.confirms != nil {
		c.confirms(c.Acks, c.Nacks, c.Returned, c.Timeouts)
	}
	clear(c.firstRejected)
	c.Events, c.Outcomes = nil, nil
}

// Reject rejects an event, unless its outcome is certain already. After that later events of its
// ordering group must not be sent in this call.
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

// IsBehindRejected reports whether an earlier event of the i-th event's ordering group was rejected
// in this call.
func (c *Call) IsBehindRejected(i int) bool {
	if len(c.firstRejected) == 0 {
		return false
	}
	group, ordered := c.groupOf(i)
	first, rejected := c.firstRejected[group]
	return ordered && rejected && first < i
}

// groupOf returns the ordering group that a rejection stops: the key, within its exchange or topic.
// The key's events for another exchange or topic go on. If they stopped, events of other keys would
// overtake them there when the ordering is commit.
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

// ExchangeOrTopicOf returns the digest of the name of an exchange or topic. It is never 0, which
// stands for no name. The retry table stores these digests, so they must never change.
func ExchangeOrTopicOf(name []byte) uint64 { return max(1, event.HashName(0, name)) }

// DestOfPair returns the digest of a routing key with its exchange, which is given by its
// ExchangeOrTopicOf.
func DestOfPair(exchangeOrTopic uint64, routingKey []byte) uint64 {
	return max(1, event.HashName(exchangeOrTopic, routingKey))
}

// DestOfPartition returns the digest of a partition with its topic, which is given by its
// ExchangeOrTopicOf.
func DestOfPartition(exchangeOrTopic uint64, partition int32) uint64 {
	var number [4]byte
	binary.BigEndian.PutUint32(number[:], uint32(partition))
	return max(1, event.HashName(exchangeOrTopic, number[:]))
}
