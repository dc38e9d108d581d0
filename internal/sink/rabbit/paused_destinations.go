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
	// each of those is answered by the broker. What the paused destinations spare then is what the
	// lanes had on its way when it was paused.
	probeEvery     = 500 * time.Millisecond
	maxPausedDests = 1000 // beyond it a faulty destination is found by sending, again and again
	// forgetAfter is when a paused destination is opened that no event has come to: nobody would
	// find it fixed.
	forgetAfter = time.Minute
)

// paused destinations are the destinations whose events are rejected unsent, because sending one
// would close the channel under all the others: an exchange that is missing (404) or not permitted
// (403), and messages over a size the broker has named (406). A paused destination opens only when
// a probe finds its fault fixed; a probe is made by a lane that has an event for it, at most one in
// probeEvery and paused destination, but for a dead letter that is replayed: an operator has just
// fixed what was at fault.
//
// The probe is a message that the broker examines and can never route: RabbitMQ checks the size,
// the right to write, the exchange and the right to the topic before it refuses an expiration that
// is not a number, or a user_id that is not the sender's. So the answer to it is the answer to the
// event's destination, and nothing is published. (A passive declare does not tell whether one may
// write.)
type pausedDests struct {
	count       atomic.Int32 // of closed: zero spares the lanes the lock
	mu          sync.Mutex
	pausedDests map[pausedDestKey]*pausedDest
	// raised is when the paused destination for sizes was opened last, Unix nanoseconds: a channel
	// that was opened before may still refuse what is over the limit that held then.
	raised atomic.Int64
}

// pausedDestKey is an exchange, an exchange and routing key (topic), or a size (oversize, for every
// destination).
type pausedDestKey struct {
	exchange, routingKey string
	topic, oversize      bool
}

type pausedDest struct {
	fault *sink.Fault
	limit int // of an oversize paused destination
	since time.Time
	next  time.Time // not to be probed before
}

// Paused is one closed paused destination.
type Paused struct {
	Destination string
	Reason      sink.Reason
	Words       string
	Since       time.Time
}

// shut closes the paused destination for what ex accuses, which is fault, and says which; ok is
// false when ex names no destination to close.
func (g *pausedDests) shut(ex *amqp.Error, fault *sink.Fault, exchange, routingKey string) (at pausedDestKey, ok bool) {
	key := pausedDestKey{exchange: exchange}
	limit := sizeLimit(ex)
	switch {
	case fault.Reason == sink.TooLarge:
		key = pausedDestKey{oversize: true}
	case topicRight(ex):
		key.topic, key.routingKey = true, strings.Clone(routingKey)
	case fault.Reason != sink.NoExchange && fault.Reason != sink.NotPermitted:
		return key, false
	}
	key.exchange = strings.Clone(key.exchange)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pausedDests[key] == nil && len(g.pausedDests) >= maxPausedDests {
		return key, false
	}
	if g.pausedDests == nil {
		g.pausedDests = map[pausedDestKey]*pausedDest{}
	}
	now := time.Now()
	shut := &pausedDest{fault: fault, limit: limit, since: now, next: now.Add(probeEvery)}
	if before := g.pausedDests[key]; before != nil {
		shut.since = before.since
	}
	g.pausedDests[key] = shut
	g.count.Store(int32(len(g.pausedDests)))
	return key, true
}

// check says why a message may not be sent now, nil when it may. It may probe, which takes a round
// trip.
func (s *Sink) checkPausedDests(ctx context.Context, sess *conn.Session, m *message.Message) *sink.Fault {
	if fault := s.unconfirmed.check(m.Exchange, m.RoutingKey); fault != nil {
		return fault
	}
	if s.pausedDests.count.Load() == 0 {
		return nil
	}
	for _, key := range []pausedDestKey{
		{exchange: m.Exchange},
		{exchange: m.Exchange, routingKey: m.RoutingKey, topic: true},
		{oversize: true},
	} {
		fault, probe := s.pausedDests.look(key, len(m.Pub.Body))
		if probe || fault != nil && m.Replay {
			fault = s.reprobe(ctx, sess, key, m, fault)
		}
		if fault != nil {
			if key.oversize {
				fault = message.TooLarge(m.Going(), len(m.Pub.Body), s.pausedDests.limit())
			}
			return fault
		}
	}
	return nil
}

// look finds the closed paused destination of key, and whether the caller is to probe it.
func (g *pausedDests) look(key pausedDestKey, size int) (fault *sink.Fault, probe bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	pausedDest := g.pausedDests[key]
	if pausedDest == nil || key.oversize && size <= pausedDest.limit {
		return nil, false
	}
	if now := time.Now(); !now.Before(pausedDest.next) {
		pausedDest.next = now.Add(probeEvery)
		probe = true
	}
	return pausedDest.fault, probe
}

// limit is the size that the broker has named, for the words of a fault.
func (g *pausedDests) limit() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if pausedDest := g.pausedDests[pausedDestKey{oversize: true}]; pausedDest != nil {
		return pausedDest.limit
	}
	return 0
}

// reprobe asks the broker again, and opens the paused destination when its fault is gone. The
// paused destination stays when there is no answer.
func (s *Sink) reprobe(ctx context.Context, sess *conn.Session, key pausedDestKey, m *message.Message, fault *sink.Fault) *sink.Fault {
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
		at, shut := s.pausedDests.shut(ex, refused, m.Exchange, m.RoutingKey)
		if shut && at == key {
			return refused
		}
		if shut {
			again = refused
		}
	}
	s.pausedDests.open(key)
	return again
}

// open opens a paused destination.
func (g *pausedDests) open(key pausedDestKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(key)
}

// drop is open with the lock held.
func (g *pausedDests) drop(key pausedDestKey) {
	delete(g.pausedDests, key)
	g.count.Store(int32(len(g.pausedDests)))
	if key.oversize {
		g.raised.Store(time.Now().UnixNano())
	}
}

// list is the destinations that are closed.
func (g *pausedDests) list() (out []Paused) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, pausedDest := range g.pausedDests {
		if time.Since(pausedDest.next) > forgetAfter {
			g.drop(key)
		} else if !key.oversize {
			out = append(out, Paused{pausedDest.fault.Destination, pausedDest.fault.Reason, pausedDest.fault.Words, pausedDest.since})
		}
	}
	return out
}
