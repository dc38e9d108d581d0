// The state of a Publish call: its outcomes, and what waits behind a rejection.

package sink

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

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
	if group, ordered := c.group(i); ordered {
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
	group, ordered := c.group(i)
	first, rejected := c.firstRejected[group]
	return ordered && rejected && first < i
}

// group is the ordering group that a rejection stops: the key in the exchange or topic. The key's
// events for another one go on: if they stopped, events of other keys would overtake them there
// with ordering commit.
func (c *Call) group(i int) (group uint64, ordered bool) {
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
