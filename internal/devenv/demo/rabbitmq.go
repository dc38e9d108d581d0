// RabbitMQ in the demo.

package main

import (
	"context"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

// rabbitMQ is RabbitMQ with a queue that receives every message of the exchange.
type rabbitMQ struct {
	server *rabbitserver.Rabbit
	reader *consumers.Consumer
}

const (
	exchange = "outbox.events"
	queue    = "orders"
)

func (r *rabbitMQ) words() words {
	return words{
		name: "RabbitMQ", place: "queue", id: "message id", limited: sizeSetting,
		mistake: fmt.Sprintf("deletes exchange %q", exchange), undo: fmt.Sprintf("makes exchange %q again, and its binding", exchange),
	}
}

const (
	sizeSetting            = "max_message_size"
	smallLimit, largeLimit = 64 << 10, 16 << 20
)

func (r *rabbitMQ) start(ctx context.Context) (err error) {
	r.server, err = rabbitserver.Start(ctx, rabbitserver.Options{Config: map[string]string{sizeSetting: fmt.Sprint(smallLimit)}})
	return err
}

func (r *rabbitMQ) addr() string { return r.server.Addr() }

func (r *rabbitMQ) openConsumer(ctx context.Context) (said string, err error) {
	r.reader, err = consumers.StartConsumer(ctx, consumers.ConsumerOptions{URL: r.server.URL(), Exchange: exchange, Queue: queue})
	return fmt.Sprintf("A consumer reads queue %q, bound to exchange %q.", queue, exchange), err
}

func (r *rabbitMQ) consumer() consumer { return r.reader }

func (r *rabbitMQ) sink() string {
	return fmt.Sprintf("  rabbitmq:\n    url: %s\n    exchange: %s\n", r.server.URL(), exchange)
}

func (r *rabbitMQ) watch(db string) consumers.FlushWatch {
	return consumers.FlushWatch{DB: db, Slot: slot, Consumer: r.reader, RetryTable: true}
}

func (r *rabbitMQ) stop(ctx context.Context) error { return r.server.Stop(ctx) }

func (r *rabbitMQ) startAgain(ctx context.Context) error {
	if err := r.server.Reconfigure(sizeSetting, fmt.Sprint(largeLimit)); err != nil {
		return err
	}
	return r.server.Start(ctx)
}

func (r *rabbitMQ) mistake(context.Context) error {
	return r.server.OnChannel(func(ch *amqp.Channel) error { return ch.ExchangeDelete(exchange, false, false) })
}

func (r *rabbitMQ) undo(context.Context) error {
	return r.server.OnChannel(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return err
		}
		return ch.QueueBind(queue, "#", exchange, false, nil)
	})
}

func (r *rabbitMQ) close() error {
	if r.reader != nil {
		r.reader.Close()
	}
	if r.server == nil {
		return nil
	}
	return r.server.Close()
}
