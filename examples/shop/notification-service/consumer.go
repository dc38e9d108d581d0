// Receiving the messages.

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/kafka"
	"github.com/cdc-relay/cdc-relay/inbox/rabbit"
)

// consumer receives the messages of one broker.
type consumer struct {
	run    func(context.Context) error
	replay func(context.Context) (int, error)
}

// newConsumer makes the consumer of Kafka if KAFKA_BROKERS has brokers, else that of RabbitMQ.
func newConsumer(pool *pgxpool.Pool) (consumer, error) {
	pauses, err := levels(os.Getenv("RETRY_LEVELS"))
	if err != nil {
		return consumer{}, fmt.Errorf("read RETRY_LEVELS: %w", err)
	}
	in, err := inbox.New(inbox.Config{Service: name, Pool: pool, Handler: notify, Levels: pauses})
	if err != nil {
		return consumer{}, err
	}
	if brokers := os.Getenv("KAFKA_BROKERS"); brokers != "" {
		return onKafka(in, strings.Split(brokers, ","))
	}
	return onRabbitMQ(in, os.Getenv("AMQP_URL"))
}

func onRabbitMQ(in *inbox.Inbox, url string) (consumer, error) {
	c, err := rabbit.New(in, rabbit.Config{
		URL:      url,
		Bindings: []rabbit.Binding{{Exchange: "outbox.events", Key: "order.created"}},
	})
	if err != nil {
		return consumer{}, err
	}
	return consumer{c.Run, func(ctx context.Context) (int, error) { return c.Replay(ctx, inbox.ReplayFilter{}) }}, nil
}

func onKafka(in *inbox.Inbox, brokers []string) (consumer, error) {
	c, err := kafka.New(in, kafka.Config{Brokers: brokers, Topics: []string{"outbox.event.order"}})
	if err != nil {
		return consumer{}, err
	}
	return consumer{c.Run, func(ctx context.Context) (int, error) { return c.Replay(ctx, inbox.ReplayFilter{}) }}, nil
}

// levels reads durations, separated by commas; nil stands for the inbox's own.
func levels(text string) (list []time.Duration, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		level, err := time.ParseDuration(part)
		if err != nil {
			return nil, err
		}
		list = append(list, level)
	}
	return list, nil
}
