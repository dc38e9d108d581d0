package main

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// rabbitMQ is RabbitMQ with a queue that takes everything of the exchange.
type rabbitMQ struct {
	server *devenv.Rabbit
	reader *devenv.Consumer
}

const (
	exchange = "outbox.events"
	queue    = "orders"
)

func (r *rabbitMQ) words() words { return words{name: "RabbitMQ", place: "queue", id: "message id"} }

func (r *rabbitMQ) start(ctx context.Context) (err error) {
	r.server, err = devenv.StartRabbitMQ(ctx, devenv.RabbitOptions{})
	return err
}

func (r *rabbitMQ) addr() string { return r.server.Addr() }

func (r *rabbitMQ) openConsumer(ctx context.Context) (said string, err error) {
	r.reader, err = devenv.StartConsumer(ctx, devenv.ConsumerOptions{URL: r.server.URL(), Exchange: exchange, Queue: queue})
	return fmt.Sprintf("A consumer reads queue %q, bound to exchange %q.", queue, exchange), err
}

func (r *rabbitMQ) consumer() consumer { return r.reader }

func (r *rabbitMQ) sink() string {
	return fmt.Sprintf("  rabbitmq:\n    url: %s\n    exchange: %s\n", r.server.URL(), exchange)
}

func (r *rabbitMQ) watch(db string) devenv.FlushWatch {
	return devenv.FlushWatch{DB: db, Slot: slot, Consumer: r.reader}
}

func (r *rabbitMQ) stop(ctx context.Context) error { return r.server.Stop(ctx) }

func (r *rabbitMQ) startAgain(ctx context.Context) error { return r.server.Start(ctx) }

func (r *rabbitMQ) close() error {
	if r.reader != nil {
		r.reader.Close()
	}
	if r.server == nil {
		return nil
	}
	return r.server.Close()
}
