// What a service has at the broker: its queues, and how messages get from one to another.

package rabbit

import (
	"slices"
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
	service               string // and its queue
	deadLetters           string
	toSelf, toDeadLetters string  // exchanges
	queues                []queue // the main one is the first
	bindings              []binding
}

// queue is a durable queue with its arguments.
type queue struct {
	name string
	args amqp.Table
}

type binding struct{ queue, exchange, key string }

// deliveryLimit is how often the broker delivers a message that is never acknowledged, because each
// time the process or the connection ends: then it is a dead letter. RabbitMQ 4 would give up after
// 20, earlier versions never. What ends a process takes the messages with it that were delivered at
// the same time: their counts grow, too, until they are processed. So the limit is high, and a
// message that reaches it by bad luck can be replayed.
const deliveryLimit = 100

// noLimit is for queues from which a message is only read to be replayed, or by people: without it
// RabbitMQ 4 would drop a dead letter that was looked at 20 times. That version knows -1; earlier
// ones refuse it.
const noLimit = 1<<31 - 1

func newTopology(in *inbox.Transport, cfg Config) topology {
	service := in.Service()
	t := topology{
		service: service, deadLetters: service + ".dlq",
		toSelf: service + ".return", toDeadLetters: cfg.DeadLetterExchange,
	}
	main := handsOn(t.toDeadLetters, service)
	main["x-delivery-limit"] = int64(deliveryLimit)
	if !cfg.Shared {
		main["x-single-active-consumer"] = true
	}
	// A policy may limit the queue: what does not fit is then refused, and waits where it was. By
	// default RabbitMQ would drop the oldest.
	deadLetters := amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(noLimit), "x-overflow": "reject-publish"}
	t.queues = []queue{{service, main}, {t.deadLetters, deadLetters}}
	t.bindings = []binding{{service, t.toSelf, service}, {t.deadLetters, t.toDeadLetters, service}}
	for _, b := range cfg.Bindings {
		t.bindings = append(t.bindings, binding{service, b.Exchange, b.Key})
	}
	for _, level := range unique(in.Levels()) {
		waits := handsOn(t.toSelf, service)
		waits["x-message-ttl"] = level.Milliseconds()
		waits["x-delivery-limit"] = int64(noLimit)
		name := t.retryQueue(level)
		t.queues = append(t.queues, queue{name, waits})
		t.bindings = append(t.bindings, binding{name, t.toSelf, name})
	}
	return t
}

// handsOn are the arguments of a queue that gives messages to an exchange when they expire, are
// rejected, or were delivered too often. By default the broker would do so without waiting for a
// confirm: a message could be lost on the way. It waits with at-least-once, which asks for
// reject-publish. What the next queue does not take stays where it is.
func handsOn(exchange, key string) amqp.Table {
	return amqp.Table{
		"x-queue-type":              "quorum",
		"x-dead-letter-exchange":    exchange,
		"x-dead-letter-routing-key": key,
		"x-dead-letter-strategy":    "at-least-once",
		"x-overflow":                "reject-publish",
	}
}

// retryQueue is the name of the queue in which messages wait for a level. It has the level, because
// a queue cannot be changed: other levels are other queues, and the old ones drain by themselves.
func (t *topology) retryQueue(level time.Duration) string {
	return t.service + ".retry." + inbox.LevelName(level)
}

func unique(levels []time.Duration) []time.Duration {
	slices.Sort(levels)
	return slices.Compact(levels)
}
