// What the sink declares at the broker (its exchange, once, and the bindings of listed queues), and
// which exchanges may return a message that they have taken.

package rabbit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// Binding binds a queue to the exchange with a routing key. A queue that is missing is declared
// durable.
type Binding struct {
	Queue, Key string
	Arguments  []setting.NamedColumn // the name and the value of each
}

// topology records which declarations the broker has taken.
//
// The exchange is declared at the first connection of the sink and never again, whatever becomes of
// it. Bindings go with their exchange. So if the relay made it again, what waits for it would go to
// the queue that is bound first, and one that is bound a second later would miss it, with nothing
// to see. The pause of a missing exchange is held (sink.Fault.Held) until an operator says that all
// queues are bound.
//
// The queues that are listed need no operator. Their bindings are declared on each new connection
// before anything is sent over it, and after a refusal that says that one may be gone (stale),
// before the probe that would end the pause. While they cannot be declared (fault) nothing is sent
// to the exchange. A listed queue whose binding is removed while other queues take the events
// misses them until then: the broker tells nobody.
type topology struct {
	exchange uint64 // the digest of the exchange when queues are listed; otherwise 0

	mu       sync.Mutex
	declared bool // the broker has answered the declaration of the exchange
	stale    atomic.Bool
	fault    atomic.Pointer[sink.Fault]
}

// bindAllFirst is sink.Fault.Held of a missing exchange.
const bindAllFirst = "declare the exchange, bind all queues, then cdc-relay deferred retry --all"

// Held implements sink.Holder.
func (s *Sink) Held(exchangeOrTopic uint64) string {
	if exchangeOrTopic == s.topology.exchange {
		return ""
	}
	return bindAllFirst
}

// noteRefusal notes what a refusal shows: that the exchange is missing, or that bindings may be
// gone.
func (s *Sink) noteRefusal(exchangeOrTopic uint64, f *sink.Fault) {
	if f.Reason == sink.NoExchange {
		f.Held = s.Held(exchangeOrTopic)
	}
	if exchangeOrTopic == s.topology.exchange && (f.Reason == sink.NoExchange || f.Reason == sink.Unroutable) {
		s.topology.stale.Store(true)
	}
}

// declareTopology declares the exchange and the bindings on a new connection. If the broker refuses
// the exchange, that is only logged: each publish to it will fail with the reason.
func (s *Sink) declareTopology(ctx context.Context, sess *conn.Session) {
	name, constant := s.cfg.Exchange.Constant()
	if !constant || name == "" {
		return
	}
	t := &s.topology
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.cfg.Declare && !t.declared {
		err := sess.OnThrowawayChannel(ctx, func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(name, cmp.Or(s.cfg.ExchangeType, amqp.ExchangeTopic), true, false, false, false, nil)
		})
		t.declared = err == nil || brokerException(err, sess) != nil
		if err != nil {
			s.cfg.Log.Warn("declare exchange", zap.String("exchange", name), zap.Error(err))
		}
	}
	if err := s.declareBindings(ctx, sess, name); err != nil {
		sess.Kill(err)
	}
}

// brokerException returns the broker's exception for something that was asked on a session, or nil
// when it gave none.
func brokerException(err error, sess *conn.Session) *amqp.Error {
	var ex *amqp.Error
	if err != nil && !errors.As(err, &ex) {
		ex = sess.EndError()
	}
	if scopeOn(sess, ex) == noMessage {
		return nil
	}
	return ex
}

// redeclareBindings declares the bindings before an event is sent to a paused destination, if they
// may be gone. fault says that they cannot be declared.
func (s *Sink) redeclareBindings(ctx context.Context, ev *event.Event) (fault *sink.Fault, err error) {
	t := &s.topology
	exchange, _ := s.layout.digestsOf(ev)
	if exchange != t.exchange || !t.stale.Load() && t.fault.Load() == nil {
		return nil, nil
	}
	sess, err := s.links[ev.Hash%uint64(len(s.links))].awaitSession(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	name, _ := s.cfg.Exchange.Constant()
	err = s.declareBindings(ctx, sess, name)
	return t.fault.Load(), err
}

// declareBindings declares the bindings. An error means that the broker has given no answer.
func (s *Sink) declareBindings(ctx context.Context, sess *conn.Session, exchange string) error {
	var fault *sink.Fault
	s.topology.stale.Store(false) // a refusal after this may be later than its binding
	for _, b := range s.cfg.Bindings {
		err := bindQueue(ctx, sess, exchange, b)
		if err == nil {
			continue
		}
		ex := brokerException(err, sess)
		if ex == nil {
			s.topology.stale.Store(true)
			return err
		}
		fault = &sink.Fault{
			Class: sink.Destination, Reason: sink.BrokerException, Whole: true, Destination: exchangeText(exchange),
			Text: fmt.Sprintf("bind queue %q of sink.rabbitmq.bindings: %s", b.Queue, brokerText(ex)),
		}
		switch {
		case ex.Code == amqp.NotFound && namesExchange(ex, exchange):
			fault.Reason = sink.NoExchange
		case ex.Code == amqp.AccessRefused:
			fault.Reason = sink.NotPermitted
		}
		break
	}
	s.topology.fault.Store(fault)
	return nil
}

// bindQueue binds a queue. It does not ask for a queue that exists, because a queue that is stuck
// would not answer.
func bindQueue(ctx context.Context, sess *conn.Session, exchange string, b Binding) error {
	arguments, ofQueue := b.arguments()
	bind := func(ch *amqp.Channel) error { return ch.QueueBind(b.Queue, b.Key, exchange, false, arguments) }
	err := sess.OnThrowawayChannel(ctx, bind)
	if ex := brokerException(err, sess); ex == nil || ex.Code != amqp.NotFound || namesExchange(ex, exchange) {
		return err
	}
	return sess.OnThrowawayChannel(ctx, func(ch *amqp.Channel) error {
		if _, err := ch.QueueDeclare(b.Queue, true, false, false, false, ofQueue); err != nil {
			return err
		}
		return bind(ch)
	})
}

// passiveQueue asks whether a queue exists. ex is the broker's exception.
func passiveQueue(ctx context.Context, sess *conn.Session, queue string) (ex *amqp.Error, err error) {
	err = sess.OnThrowawayChannel(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	if ex = brokerException(err, sess); ex != nil {
		return ex, nil
	}
	return nil, err
}

// rejectUnbound rejects the events of the round for the exchange whose queues cannot be bound.
func (l *lane) rejectUnbound() (some bool) {
	fault := l.sink.topology.fault.Load()
	if fault == nil {
		return false
	}
	for _, i := range l.todo {
		if exchange, _ := l.sink.layout.digestsOf(l.Events[i]); exchange == l.sink.topology.exchange && !l.IsBehindRejected(i) {
			l.Reject(i, fault)
			some = true
		}
	}
	if some {
		l.planNextRound()
	}
	return some
}

// Unroutable says what a returned message of an exchange means, by the first pattern of its name.
//
// A return says that the exchange gave a message to no queue now. Mostly nobody is bound, so the
// event waits. But some types of exchanges give a message to no queue and have taken it all the
// same: they keep it for later (x-delayed-message), or have given it to the queues before
// (x-message-deduplication). To a publisher all of these look alike. Each repeat would be one more
// copy, and the event's key would wait for ever. Only the user knows, and says so for these
// exchanges: ignore.
//
// Then the ack decides alone, as it does for a message that was routed. Nothing else can be lost by
// it: the broker acks a message when each queue that it was given to has it, a nack and a closed
// channel are refusals as before, and a return without its ack leaves the event in doubt. What is
// dropped is what the exchange gave to no queue and has not kept: what the user says he does not
// want. It is counted (Status.Ignored).
type Unroutable []UnroutableOf

// UnroutableOf are the exchanges that match a pattern, as those of sink.Allow.
type UnroutableOf struct {
	Exchange string
	Ignore   bool
}

// isIgnored reports whether a return of the exchange is ignored. The default is that it is not.
func (u Unroutable) isIgnored(exchange string) bool {
	for _, of := range u {
		if sink.Allows(sink.Allow{of.Exchange}, exchange) {
			return of.Ignore
		}
	}
	return false
}

// keepingTypes are the types of exchanges that are known to answer NO_ROUTE for what they took.
var keepingTypes = map[string]string{
	"x-delayed-message":       "keeps messages back",
	"x-message-deduplication": "drops repeats of a message",
	"x-recent-history":        "keeps messages for queues that are bound later",
	"x-lvc":                   "keeps the last message for queues that are bound later",
}
