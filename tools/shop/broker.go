// The broker of the shop: the interface that RabbitMQ and Kafka implement.

package main

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
)

// broker is the broker between the services.
type broker interface {
	name() string  // "RabbitMQ"
	place() string // where the orders' events are: "queue ..."
	again() string // when messages come again after their consumer was killed
	later() string // where messages wait for another attempt
	addr() string  // where it listens
	// the queue or topic, and the broker's name, in the spans of notification-service
	destination() string
	system() string
	start(ctx context.Context) error
	sink() string          // the relay's configuration of it
	environment() []string // by which notification-service finds it
	way() *netproxy.Proxy  // between it and notification-service; nil: there is none
	stop(ctx context.Context) error
	startAgain(ctx context.Context) error
	waiting(ctx context.Context) (int, error)     // messages in the queues of notification-service
	deadLetters(ctx context.Context) (int, error) // those of notification-service
	close() error
}

// brokers are the values of -sink.
var brokers = map[string]func() broker{
	"rabbitmq": func() broker { return &rabbitMQ{} },
	"kafka":    func() broker { return &kafka{} },
}
