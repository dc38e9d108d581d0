// The broker of a demo: the interface that RabbitMQ and Kafka implement.

package main

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
)

// broker is the broker of a demo and its consumer: RabbitMQ or Kafka.
type broker interface {
	words() words
	start(ctx context.Context) error // with nothing in it
	addr() string                    // where it listens
	// makes what the consumer reads, and starts it
	openConsumer(ctx context.Context) (said string, _ error)
	consumer() consumer                   // only after openConsumer
	sink() string                         // the relay's configuration of it
	watch(db string) consumers.FlushWatch // of the slot, next to the consumer
	stop(ctx context.Context) error
	// with what was in it, and a higher limit of what a message may have
	startAgain(ctx context.Context) error
	mistake(ctx context.Context) error // after it the relay cannot publish any more
	undo(ctx context.Context) error
	close() error // the consumer, too; what was never started is left out
}

// consumer is the interface of both brokers' consumers.
type consumer interface {
	Connected() bool
	Count() (distinct, duplicates int)
	Deliveries() []checker.Delivery
	DeliveriesFrom(n int) []checker.Delivery
	Marks() []checker.Mark
	WaitIDs(ctx context.Context, ids []string) error
	Drain(ctx context.Context) error
}

// words are the names and phrases with which the output describes a broker.
type words struct {
	name  string // "RabbitMQ"
	place string // where events are stored: "queue"
	id    string // what a consumer deduplicates by: "message id"

	once bool // nothing may lie there twice as long as the relay lives

	// what limits a message until the broker is started again: "max_message_size"
	limited       string
	mistake, undo string // what an operator does, and takes back
}

// brokers are the values of -sink.
var brokers = map[string]func() broker{
	"rabbitmq": func() broker { return &rabbitMQ{} },
	"kafka":    func() broker { return &kafka{} },
}
