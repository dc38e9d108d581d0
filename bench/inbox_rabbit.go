// The inbox on RabbitMQ.
package main

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/rabbit"
)

// receive makes the service's queue, a quorum queue, which gets all events.
func (s *rabbitStand) receive(context.Context) (*reception, error) {
	const service = "bench-inbox"
	r := &reception{config: s.config(runSpec{ordering: "key"}), service: service}
	consumer := func(in *inbox.Inbox) (*rabbit.Consumer, error) {
		return rabbit.New(in, rabbit.Config{URL: s.rabbit.URL(), Bindings: []rabbit.Binding{{Exchange: exchange, Key: "#"}}, Prefetch: inboxPrefetch})
	}
	r.declare = func(ctx context.Context, in *inbox.Inbox) (func(context.Context) error, error) {
		c, err := consumer(in)
		if err != nil {
			return nil, err
		}
		return c.Run, c.Declare(ctx)
	}
	r.fill = func(ctx context.Context, first int64, keys []string) (err error) {
		n, end, err := s.newNotifications(ctx, service)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
		if _, err := r.declare(ctx, n.in); err != nil {
			return err
		}
		p, err := dialPublisher(s.rabbit.URL(), 1, false)
		if err != nil {
			return err
		}
		defer p.close()
		return p.publish(ctx, first, keys, 0, 1)
	}
	r.bare = func(ctx context.Context, n int, got func()) error {
		return s.onChannel(func(ch *amqp.Channel) error { return acknowledge(ctx, ch, service, n, got) })
	}
	r.remove = func() error {
		return s.onChannel(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(service, false, false, false)
			return err
		})
	}
	return r, nil
}

// acknowledge takes n messages of a queue and acknowledges each.
func acknowledge(ctx context.Context, ch *amqp.Channel, queue string, n int, got func()) error {
	if err := ch.Qos(inboxPrefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for range n {
		d, ok := <-deliveries
		if !ok {
			return errors.New("consume: the broker closed the channel")
		}
		got()
		if err := d.Ack(false); err != nil {
			return err
		}
	}
	return nil
}

func (s *rabbitStand) onChannel(do func(*amqp.Channel) error) error {
	conn, err := amqp.Dial(s.rabbit.URL())
	if err != nil {
		return fmt.Errorf("connect to broker: %w", err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
	return do(ch)
}
