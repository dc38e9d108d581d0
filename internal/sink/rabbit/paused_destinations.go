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
	// probeEvery is shorter than the relay takes between two events of a paused destination, so each of those is answered
	// by the broker. What the gates spare then is what the lanes had on its way when it was paused.
	probeEvery = 500 * time.Millisecond
	maxGates   = 1000 // beyond it a faulty destination is found by sending, again and again
	// forgetAfter is when a gate is opened that no event has come to: nobody would find it mended.
	forgetAfter = time.Minute
)

// gates are the destinations whose events are rejected unsent, because sending one would close the channel under all the
// others: an exchange that is missing (404) or not permitted (403), and messages over a size the broker has named (406).
// A gate opens only when a probe finds its fault mended; a probe is made by a lane that has an event for it, at most one
// in probeEvery and gate, but for a letter that is replayed: an operator has just mended what was at fault.
//
// The probe is a message that the broker examines and can never route: RabbitMQ checks the size, the right to write, the
// exchange and the right to the topic before it refuses an expiration that is not a number, or a user_id that is not the
// sender's. So the answer to it is the answer to the event's destination, and nothing is published. (A passive declare
// does not tell whether one may write.)
type gates struct {
	count atomic.Int32 // of closed: zero spares the lanes the lock
	mu    sync.Mutex
	gates map[gateKey]*gate
	// raised is when the gate for sizes was opened last, Unix nanoseconds: a channel that was opened before may still refuse
	// what is over the limit that held then.
	raised atomic.Int64
}

// gateKey is an exchange, an exchange and routing key (topic), or a size (oversize, for every destination).
type gateKey struct {
	exchange, routingKey string
	topic, oversize      bool
}

type gate struct {
	fault *sink.Fault
	limit int // of an oversize gate
	since time.Time
	next  time.Time // not to be probed before
}

// Paused is one closed gate.
type Paused struct {
	Destination string
	Reason      sink.Reason
	Words       string
	Since       time.Time
}

// shut closes the gate for what ex accuses, which is fault, and says which; ok is false when ex names no destination to
// close.
func (g *gates) shut(ex *amqp.Error, fault *sink.Fault, exchange, routingKey string) (at gateKey, ok bool) {
	key := gateKey{exchange: exchange}
	limit := sizeLimit(ex)
	switch {
	case fault.Reason == sink.TooLarge:
		key = gateKey{oversize: true}
	case topicRight(ex):
		key.topic, key.routingKey = true, strings.Clone(routingKey)
	case fault.Reason != sink.NoExchange && fault.Reason != sink.NotPermitted:
		return key, false
	}
	key.exchange = strings.Clone(key.exchange)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gates[key] == nil && len(g.gates) >= maxGates {
		return key, false
	}
	if g.gates == nil {
		g.gates = map[gateKey]*gate{}
	}
	now := time.Now()
	shut := &gate{fault: fault, limit: limit, since: now, next: now.Add(probeEvery)}
	if before := g.gates[key]; before != nil {
		shut.since = before.since
	}
	g.gates[key] = shut
	g.count.Store(int32(len(g.gates)))
	return key, true
}

// check says why a message may not be sent now, nil when it may. It may probe, which takes a round trip.
func (s *Sink) checkGates(ctx context.Context, sess *conn.Session, m *message.Message) *sink.Fault {
	if fault := s.unconfirmed.check(m.Exchange, m.RoutingKey); fault != nil {
		return fault
	}
	if s.gates.count.Load() == 0 {
		return nil
	}
	for _, key := range []gateKey{
		{exchange: m.Exchange},
		{exchange: m.Exchange, routingKey: m.RoutingKey, topic: true},
		{oversize: true},
	} {
		fault, probe := s.gates.look(key, len(m.Pub.Body))
		if probe || fault != nil && m.Replay {
			fault = s.reprobe(ctx, sess, key, m, fault)
		}
		if fault != nil {
			if key.oversize {
				fault = message.TooLarge(m.Going(), len(m.Pub.Body), s.gates.limit())
			}
			return fault
		}
	}
	return nil
}

// look finds the closed gate of key, and whether the caller is to probe it.
func (g *gates) look(key gateKey, size int) (fault *sink.Fault, probe bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gate := g.gates[key]
	if gate == nil || key.oversize && size <= gate.limit {
		return nil, false
	}
	if now := time.Now(); !now.Before(gate.next) {
		gate.next = now.Add(probeEvery)
		probe = true
	}
	return gate.fault, probe
}

// limit is the size that the broker has named, for the words of a fault.
func (g *gates) limit() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gate := g.gates[gateKey{oversize: true}]; gate != nil {
		return gate.limit
	}
	return 0
}

// reprobe asks the broker again, and opens the gate when its fault is gone. The gate stays when there is no answer.
func (s *Sink) reprobe(ctx context.Context, sess *conn.Session, key gateKey, m *message.Message, fault *sink.Fault) *sink.Fault {
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
		at, shut := s.gates.shut(ex, refused, m.Exchange, m.RoutingKey)
		if shut && at == key {
			return refused
		}
		if shut {
			again = refused
		}
	}
	s.gates.open(key)
	return again
}

// open opens a gate.
func (g *gates) open(key gateKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(key)
}

// drop is open with the lock held.
func (g *gates) drop(key gateKey) {
	delete(g.gates, key)
	g.count.Store(int32(len(g.gates)))
	if key.oversize {
		g.raised.Store(time.Now().UnixNano())
	}
}

// list is the destinations that are closed.
func (g *gates) list() (out []Paused) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, gate := range g.gates {
		if time.Since(gate.next) > forgetAfter {
			g.drop(key)
		} else if !key.oversize {
			out = append(out, Paused{gate.fault.Destination, gate.fault.Reason, gate.fault.Words, gate.since})
		}
	}
	return out
}
