// RabbitMQ in the shop.

package main

import (
	"context"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

// rabbitMQ is RabbitMQ, which notification-service reaches through a proxy.
type rabbitMQ struct {
	server *rabbitserver.Rabbit
	proxy  *netproxy.Proxy
}

const exchange = "outbox.events"

func (r *rabbitMQ) name() string        { return "RabbitMQ" }
func (r *rabbitMQ) place() string       { return fmt.Sprintf("queue %q", notificationService) }
func (r *rabbitMQ) destination() string { return notificationService }
func (r *rabbitMQ) system() string      { return "rabbitmq" }
func (r *rabbitMQ) again() string       { return "RabbitMQ delivers them again." }
func (r *rabbitMQ) later() string       { return "retry queues" }
func (r *rabbitMQ) addr() string        { return r.server.Addr() }

func (r *rabbitMQ) start(ctx context.Context) (err error) {
	if r.server, err = rabbitserver.Start(ctx, rabbitserver.Options{}); err != nil {
		return err
	}
	r.proxy, err = netproxy.Start(r.server.Addr())
	return err
}

func (r *rabbitMQ) sink() string {
	return fmt.Sprintf("  rabbitmq:\n    url: %s\n    exchange: %s\n", r.server.URL(), exchange)
}

func (r *rabbitMQ) environment() []string {
	return []string{"AMQP_URL=amqp://guest:guest@" + r.proxy.Addr() + "/"}
}

func (r *rabbitMQ) way() *netproxy.Proxy { return r.proxy }

func (r *rabbitMQ) stop(ctx context.Context) error       { return r.server.Stop(ctx) }
func (r *rabbitMQ) startAgain(ctx context.Context) error { return r.server.Start(ctx) }

// waiting counts what is in the queues and with no consumer.
func (r *rabbitMQ) waiting(context.Context) (n int, err error) {
	for _, name := range []string{notificationService, notificationService + ".retry.1s", notificationService + ".retry.2s", notificationService + ".retry.5s"} {
		here, err := r.messages(name)
		if err != nil {
			return 0, err
		}
		n += here
	}
	return n, nil
}

func (r *rabbitMQ) deadLetters(context.Context) (int, error) {
	return r.messages(notificationService + ".dlq")
}

func (r *rabbitMQ) messages(name string) (n int, err error) {
	err = r.server.OnChannel(func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		n = q.Messages
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count messages in queue %q: %w", name, err)
	}
	return n, nil
}

func (r *rabbitMQ) close() error {
	if r.proxy != nil {
		r.proxy.Close()
	}
	if r.server == nil {
		return nil
	}
	return r.server.Close()
}
