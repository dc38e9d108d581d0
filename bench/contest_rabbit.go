// The contest on RabbitMQ: one exchange, one queue, one consumer.
package main

import (
	"context"
	"fmt"
	"strings"

	debeziumserver "github.com/cdc-relay/cdc-relay/internal/devenv/servers/debezium"
)

// contestRows are the rows of the contest.
func (s *rabbitStand) contestRows() []row {
	c := &contest{stand: s.stand, at: rabbitContest{s}, events: s.size.drainRabbit, dirs: map[string]string{}}
	return append(c.rows(2, 2), row{"unbound", func(ctx context.Context) ([]result, error) { return c.unbound(ctx, bindQueue, unbindQueue) }})
}

// rows are those of every broker; what the drains must reach.
func (c *contest) rows(manyRows, oneRow float64) []row {
	return []row{
		{"drain-100", func(ctx context.Context) ([]result, error) { return c.drains(ctx, 100, manyRows) }},
		{"drain-1", func(ctx context.Context) ([]result, error) { return c.drains(ctx, 1, oneRow) }},
		{"live", c.live},
	}
}

func bindQueue(to destination) error {
	if err := to.(*rabbitDestination).ch.QueueBind(queueName, "#", exchange, false, nil); err != nil {
		return fmt.Errorf("bind queue: %w", err)
	}
	return nil
}

func unbindQueue(to destination) error {
	if err := to.(*rabbitDestination).ch.QueueUnbind(queueName, "#", exchange, nil); err != nil {
		return fmt.Errorf("unbind queue: %w", err)
	}
	return nil
}

// rabbitContest is RabbitMQ's part.
type rabbitContest struct{ *rabbitStand }

func (f rabbitContest) name() string { return "RabbitMQ" }

func (f rabbitContest) ordering() string { return "commit" }

func (f rabbitContest) destination(_ context.Context, room int, _ bool) (destination, error) {
	t, err := f.newTap(room)
	if err != nil {
		return nil, err
	}
	return &rabbitDestination{tap: t, url: strings.TrimSuffix(f.rabbit.URL(), "/")}, nil
}

// rabbitDestination is the exchange and the queue; the routing key is the row's key.
type rabbitDestination struct {
	*tap
	url string
}

func (g *rabbitDestination) topic() string { return "outbox" }

func (g *rabbitDestination) sink() string { return fmt.Sprintf("rabbitmq: {url: %q}", g.url+"/") }

func (g *rabbitDestination) debezium() map[string]string {
	sink := debeziumserver.DebeziumRabbitMQ(g.url)
	sink["debezium.sink.rabbitmq.exchange"] = exchange
	sink["debezium.sink.rabbitmq.routingKey.source"] = "key"
	sink["debezium.format.header.schemas.enable"] = "false"
	return sink
}
