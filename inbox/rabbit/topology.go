// The service's queues and exchanges at the broker, and how messages move between them. They are
// declared; when the broker has one with other settings, the consumer refuses to start.

package rabbit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// topology has the names of a service's queues and exchanges.
//
//	relay -> exchange -> SERVICE -> the handler -> done
//	                       ^          |  failed, another attempt follows
//	                       |          v
//	        SERVICE.return +<- SERVICE.retry.30s (kept for 30 s)
//	                       |          |  failed for good
//	                       | replay   v
//	                       +<- SERVICE.dlq <- outbox.dlx
//
// Messages that wait come back through an exchange of the service's own. Through the relay's they
// would reach the other services again.
type topology struct {
	service                            string // the service's name, which is also that of its queue
	deadLetters                        string
	returnExchange, deadLetterExchange string  // names of exchanges
	queues                             []queue // the service's queue comes first
	bindings                           []binding
}

// queue is a durable queue with its arguments.
type queue struct {
	name string
	args amqp.Table
}

type binding struct{ queue, exchange, key string }

// deliveryLimit is how often the broker delivers a message that is never acknowledged, because the
// process or the connection ends each time. After that the message is a dead letter. RabbitMQ 4
// would give up after 20 deliveries by default, earlier versions never. When a message ends a
// process, the other messages that were delivered at the same time are counted, too, until they are
// processed. So the limit is high, and a message that reaches it by bad luck can be replayed.
const deliveryLimit = 100

// noDeliveryLimit is the limit of queues from which messages are only read by people or for a
// replay. Without it RabbitMQ 4 would drop a dead letter that was looked at 20 times. RabbitMQ 4
// would take -1 for no limit, but earlier versions refuse that.
const noDeliveryLimit = 1<<31 - 1

func newTopology(in *inbox.Transport, cfg Config) topology {
	service := in.Service()
	t := topology{
		service: service, deadLetters: service + ".dlq",
		returnExchange: service + ".return", deadLetterExchange: cfg.DeadLetterExchange,
	}
	main := deadLetteringTo(t.deadLetterExchange, service)
	main["x-delivery-limit"] = int64(deliveryLimit)
	if !cfg.Shared {
		main["x-single-active-consumer"] = true
	}
	// A policy may limit the queue. A message that does not fit is then refused, and waits where it
	// was. By default RabbitMQ would drop the oldest one.
	deadLetters := amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(noDeliveryLimit), "x-overflow": "reject-publish"}
	t.queues = []queue{{service, main}, {t.deadLetters, deadLetters}}
	t.bindings = []binding{{service, t.returnExchange, service}, {t.deadLetters, t.deadLetterExchange, service}}
	for _, b := range cfg.Bindings {
		t.bindings = append(t.bindings, binding{service, b.Exchange, b.Key})
	}
	for _, level := range slices.Compact(slices.Sorted(slices.Values(in.Levels()))) {
		waits := deadLetteringTo(t.returnExchange, service)
		waits["x-message-ttl"] = level.Milliseconds()
		waits["x-delivery-limit"] = int64(noDeliveryLimit)
		name := t.retryQueue(level)
		t.queues = append(t.queues, queue{name, waits})
		t.bindings = append(t.bindings, binding{name, t.returnExchange, name})
	}
	return t
}

// deadLetteringTo returns the arguments of a queue that passes messages to an exchange when they
// expire, are rejected or were delivered too often. By default the broker would not wait for a
// confirm, and a message could be lost on the way. The strategy at-least-once waits for it, and
// requires reject-publish. A message that the next queue does not take stays where it is.
func deadLetteringTo(exchange, key string) amqp.Table {
	return amqp.Table{
		"x-queue-type":              "quorum",
		"x-dead-letter-exchange":    exchange,
		"x-dead-letter-routing-key": key,
		"x-dead-letter-strategy":    "at-least-once",
		"x-overflow":                "reject-publish",
	}
}

// retryQueue returns the name of the queue in which messages wait for a level. The level is part of
// the name because the arguments of a queue cannot be changed: other levels have other queues, and
// the old ones drain by themselves.
func (t *topology) retryQueue(level time.Duration) string {
	return t.service + ".retry." + inbox.LevelName(level)
}

// Declare declares the queues, exchanges and bindings of the service, and leaves those that exist
// as they are. It returns an error when the broker has one of them with other settings: a list of
// what differs. Nothing is deleted. Run does the same first.
func (c *Consumer) Declare(ctx context.Context) error {
	l, err := c.connect(ctx, "declare")
	if err != nil {
		return err
	}
	defer l.close()
	return c.declare(ctx, l)
}

// differenceError lists the queues, exchanges and bindings that the broker has with other settings.
type differenceError struct{ lines []string }

func (e *differenceError) Error() string {
	return "declare the topology: the broker has it otherwise:\n  " + strings.Join(e.lines, "\n  ") +
		"\nRestore the configuration of the service, or delete what differs when it is empty and nobody uses it: it is then declared again"
}

// declare is declareAll with a context. When ctx ends it kills the connection, because nothing else
// ends a call of amqp091.
func (c *Consumer) declare(ctx context.Context, l *link) error {
	defer context.AfterFunc(ctx, l.kill)()
	err := c.declareAll(l)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// declareAll declares the whole topology. It goes on after a refusal, so that one error lists all
// differences. It reports how many messages wait in each queue, and logs what was missing. It
// cannot do that for bindings, because RabbitMQ does not tell whether it had one.
func (c *Consumer) declareAll(l *link) error {
	t, a := &c.topology, declarations{link: l}
	defer a.closeChannel()
	a.declareExchange(t.returnExchange)
	a.declareExchange(t.deadLetterExchange)
	for _, b := range c.cfg.Bindings {
		a.declareForeignExchange(b.Exchange)
	}
	for _, q := range t.queues {
		if waiting := a.declareQueue(q); a.err == nil {
			c.in.Waiting(q.name, int64(waiting))
		}
	}
	for _, b := range t.bindings {
		if a.err != nil || len(a.different) > 0 {
			break
		}
		a.request("binding of", b.queue, func(ch *amqp.Channel) error { return ch.QueueBind(b.queue, b.key, b.exchange, false, nil) })
	}
	if a.err != nil {
		return a.err
	}
	if len(a.different) > 0 {
		return &differenceError{a.different}
	}
	if len(a.missing) > 0 {
		c.in.Log().Info("declared what the broker did not have", "missing", a.missing)
	}
	for _, name := range a.foreign {
		c.in.Log().Warn("declared an exchange of Bindings, which the broker did not have: is it the relay's?", "exchange", name)
	}
	return nil
}

// declarations declares queues, exchanges and bindings one after another, and collects those that
// the broker has with other settings.
type declarations struct {
	link      *link
	ch        *amqp.Channel
	different []string
	missing   []string // the service's queues and exchanges that were missing
	foreign   []string // others' exchanges that were missing
	err       error    // any other error; nothing is declared after it
}

// closeChannel closes the channel, because the connection may live long.
func (a *declarations) closeChannel() {
	if a.ch != nil {
		_ = a.ch.Close() //nolint:errcheck // it is closed with the connection anyway
	}
}

// request calls question with a channel. It opens a new one when the last refusal has closed it.
func (a *declarations) request(kind, name string, question func(*amqp.Channel) error) {
	if a.err != nil {
		return
	}
	if a.ch == nil || a.ch.IsClosed() {
		if a.ch, a.err = a.link.Channel(); a.err != nil {
			return
		}
	}
	err := question(a.ch)
	var refused *amqp.Error
	if errors.As(err, &refused) && refused.Code == amqp.PreconditionFailed {
		a.different = append(a.different, fmt.Sprintf("%s %q: %s", kind, name, refused.Reason))
	} else if err != nil {
		a.err = fmt.Errorf("declare %s %q: %w", kind, name, err)
	}
}

// isMissing reports whether the broker does not know the thing that passive declares passively.
func (a *declarations) isMissing(kind, name string, passive func(*amqp.Channel) error) (missing bool) {
	a.request(kind, name, func(ch *amqp.Channel) error {
		err := passive(ch)
		var refused *amqp.Error
		if missing = errors.As(err, &refused) && refused.Code == amqp.NotFound; missing {
			return nil
		}
		return err
	})
	return missing
}

// declareQueue declares a queue and returns how many messages wait in it.
func (a *declarations) declareQueue(q queue) (waiting int) {
	if a.isMissing("queue", q.name, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(q.name, true, false, false, false, nil)
		return err
	}) {
		a.missing = append(a.missing, q.name)
	}
	a.request("queue", q.name, func(ch *amqp.Channel) error {
		found, err := ch.QueueDeclare(q.name, true, false, false, false, q.args)
		waiting = found.Messages
		return err
	})
	return waiting
}

// declareExchange declares one of the service's own exchanges.
func (a *declarations) declareExchange(name string) {
	if a.isMissing("exchange", name, declarePassively(name)) {
		a.missing = append(a.missing, name)
	}
	a.request("exchange", name, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(name, amqp.ExchangeDirect, true, false, false, false, nil)
	})
}

// declareForeignExchange declares an exchange of the relay when it is missing. One that exists may
// have any type.
func (a *declarations) declareForeignExchange(name string) {
	if !a.isMissing("exchange", name, declarePassively(name)) {
		return
	}
	a.foreign = append(a.foreign, name)
	a.request("exchange", name, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, false, nil)
	})
	if isRefusal(a.err) {
		a.err = fmt.Errorf("there is no exchange %q: start the relay with sink.rabbitmq.declare, or let the user configure it: %w", name, a.err)
	}
}

// declarePassively returns a question that finds an exchange of any type, because a passive
// declaration ignores the type.
func declarePassively(name string) func(*amqp.Channel) error {
	return func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(name, amqp.ExchangeTopic, true, false, false, false, nil)
	}
}
