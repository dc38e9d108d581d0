// The destinations whose events are rejected unsent until a probe succeeds.

package rabbit

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

const (
	// probeEvery is shorter than the relay takes between two events of a paused destination, so
	// each of those is answered by the broker. A pause then saves only what the lanes had on its
	// way when it began.
	probeEvery = 500 * time.Millisecond
	maxPaused  = 1000 // beyond it a faulty destination is found by sending, again and again
	// forgetAfter ends the pause of a destination without events: no event would find it fixed.
	forgetAfter = time.Minute
)

// pausedDestinations are the destinations whose events are rejected unsent, because sending one
// would close the channel under all the others: an exchange that is missing (404) or not permitted
// (403), and messages over a size the broker has named (406). A pause ends only when a probe finds
// the fault fixed. A lane that has an event for the destination sends the probe, at most one per
// destination in probeEvery. A dead letter that is replayed is always probed: an operator has just
// fixed what was at fault.
//
// The probe is a message that the broker examines and can never route: RabbitMQ checks the size,
// the right to write, the exchange and the right to the topic before it refuses an expiration that
// is not a number, or a user_id that is not the sender's. So the broker answers as it would for the
// event, and nothing is published. (A passive declare does not show the right to write.)
type pausedDestinations struct {
	count atomic.Int32 // of pauses: at zero the lanes skip the lock
	mu    sync.Mutex
	byKey map[pausedKey]*pausedDestination
	// raised is when the last pause for sizes ended, in Unix nanoseconds: a channel that was opened
	// before may still refuse what is over the earlier limit.
	raised atomic.Int64
}

// pausedKey is an exchange, an exchange and routing key (topic), or a size (oversize, for every
// destination).
type pausedKey struct {
	exchange, routingKey string
	topic, oversize      bool
}

type pausedDestination struct {
	fault *sink.Fault
	limit int // of an oversize pause
	since time.Time
	next  time.Time // not to be probed before
}

// Paused is one paused destination.
type Paused struct {
	Destination string
	Reason      sink.Reason
	Text        string
	Since       time.Time
}

// pause pauses the destination that ex blames for fault, and returns its key; ok is false when ex
// names none to pause.
func (g *pausedDestinations) pause(ex *amqp.Error, fault *sink.Fault, exchange, routingKey string) (at pausedKey, ok bool) {
	key := pausedKey{exchange: exchange}
	limit := sizeLimit(ex)
	switch {
	case fault.Reason == sink.TooLarge:
		key = pausedKey{oversize: true}
	case topicRight(ex):
		key.topic, key.routingKey = true, strings.Clone(routingKey)
	case fault.Reason != sink.NoExchange && fault.Reason != sink.NotPermitted:
		return key, false
	}
	key.exchange = strings.Clone(key.exchange)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byKey[key] == nil && len(g.byKey) >= maxPaused {
		return key, false
	}
	if g.byKey == nil {
		g.byKey = map[pausedKey]*pausedDestination{}
	}
	now := time.Now()
	paused := &pausedDestination{fault: fault, limit: limit, since: now, next: now.Add(probeEvery)}
	if before := g.byKey[key]; before != nil {
		paused.since = before.since
	}
	g.byKey[key] = paused
	g.count.Store(int32(len(g.byKey)))
	return key, true
}

// checkPaused returns why a message may not be sent now; nil when it may. It may probe, which takes
// a round trip.
func (s *Sink) checkPaused(ctx context.Context, sess *conn.Session, m *message.Message) *sink.Fault {
	if fault := s.unconfirmed.check(m.Exchange, m.RoutingKey); fault != nil {
		return fault
	}
	if s.paused.count.Load() == 0 {
		return nil
	}
	for _, key := range []pausedKey{
		{exchange: m.Exchange},
		{exchange: m.Exchange, routingKey: m.RoutingKey, topic: true},
		{oversize: true},
	} {
		fault, probe := s.paused.find(key, len(m.Pub.Body))
		if probe || fault != nil && m.Replay {
			fault = s.reprobe(ctx, sess, key, m, fault)
		}
		if fault != nil {
			if key.oversize {
				fault = message.TooLarge(m.Going(), len(m.Pub.Body), s.paused.limit())
			}
			return fault
		}
	}
	return nil
}

// find returns the fault of the paused destination of key, and whether the caller is to probe it.
func (g *pausedDestinations) find(key pausedKey, size int) (fault *sink.Fault, probe bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	dest := g.byKey[key]
	if dest == nil || key.oversize && size <= dest.limit {
		return nil, false
	}
	if now := time.Now(); !now.Before(dest.next) {
		dest.next = now.Add(probeEvery)
		probe = true
	}
	return dest.fault, probe
}

// limit is the size that the broker has named, for the text of a fault.
func (g *pausedDestinations) limit() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if dest := g.byKey[pausedKey{oversize: true}]; dest != nil {
		return dest.limit
	}
	return 0
}

// reprobe asks the broker again, and ends the pause when the fault is gone. Without an answer the
// pause stays.
func (s *Sink) reprobe(ctx context.Context, sess *conn.Session, key pausedKey, m *message.Message, fault *sink.Fault) *sink.Fault {
	if s.cfg.Declare && fault.Reason == sink.NoExchange {
		s.declare(ctx, sess)
	}
	var body []byte
	if key.oversize {
		body = bytes.Clone(m.Pub.Body)
	}
	ex, err := probe(ctx, sess, strings.Clone(m.Exchange), strings.Clone(m.RoutingKey), body)
	if err != nil {
		return fault
	}
	var again *sink.Fault // the broker refuses the message for another cause now
	if ex != nil {
		refused := refusal(m, ex, len(m.Pub.Body))
		at, paused := s.paused.pause(ex, refused, m.Exchange, m.RoutingKey)
		if paused && at == key {
			return refused
		}
		if paused {
			again = refused
		}
	}
	s.paused.resume(key)
	return again
}

// resume ends a pause.
func (g *pausedDestinations) resume(key pausedKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(key)
}

// drop is resume with the lock held.
func (g *pausedDestinations) drop(key pausedKey) {
	delete(g.byKey, key)
	g.count.Store(int32(len(g.byKey)))
	if key.oversize {
		g.raised.Store(time.Now().UnixNano())
	}
}

// list returns the paused destinations.
func (g *pausedDestinations) list() (out []Paused) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, dest := range g.byKey {
		if time.Since(dest.next) > forgetAfter {
			g.drop(key)
		} else if !key.oversize {
			out = append(out, Paused{dest.fault.Destination, dest.fault.Reason, dest.fault.Text, dest.since})
		}
	}
	return out
}
