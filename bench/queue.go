// The queue that a run fills, and how fast it fills.
package main

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	exchange  = "outbox.events"
	queueName = "bench"

	watchEvery = 5 * time.Millisecond
	patience   = 60 * time.Second // without a new message the run has failed
)

// queue is the one queue of a run, bound to the one exchange, and a connection to it. It is deleted at the end.
type queue struct {
	conn *amqp.Connection
	ch   *amqp.Channel
	kind string
}

// newQueue makes the queue anew; kind is classic or quorum.
func (s *stand) newQueue(kind string) (_ *queue, err error) {
	conn, err := amqp.Dial(s.rabbit.URL())
	if err != nil {
		return nil, fmt.Errorf("connect to broker: %w", err)
	}
	q := &queue{conn: conn, kind: kind}
	defer func() {
		if err != nil {
			q.disconnect()
		}
	}()
	if q.ch, err = conn.Channel(); err != nil {
		return nil, fmt.Errorf("open channel: %w", err)
	}
	if err = q.ch.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		return nil, fmt.Errorf("declare exchange: %w", err)
	}
	if _, err = q.ch.QueueDelete(queueName, false, false, false); err != nil {
		return nil, fmt.Errorf("delete old queue: %w", err)
	}
	if _, err = q.ch.QueueDeclare(queueName, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
		return nil, fmt.Errorf("declare queue: %w", err)
	}
	if err = q.ch.QueueBind(queueName, "#", exchange, false, nil); err != nil {
		return nil, fmt.Errorf("bind queue: %w", err)
	}
	return q, nil
}

func (q *queue) disconnect() {
	_ = q.conn.CloseDeadline(time.Now().Add(5 * time.Second)) // nothing depends on it
}

// close deletes the queue with what is in it.
func (q *queue) close() error {
	defer q.disconnect()
	if _, err := q.ch.QueueDelete(queueName, false, false, false); err != nil {
		return fmt.Errorf("delete queue: %w", err)
	}
	return nil
}

// depth is the number of messages that wait in the queue, as the broker counts them.
func (q *queue) depth() (int, error) {
	state, err := q.ch.QueueDeclarePassive(queueName, true, false, false, false, nil)
	if err != nil {
		return 0, fmt.Errorf("ask for depth of queue: %w", err)
	}
	return state.Messages, nil
}

// watch follows the depth until it is n and returns the messages per second from the first look that found some to the
// look that found all. failed ends it early.
func (q *queue) watch(ctx context.Context, n int, failed func() error) (rate float64, err error) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var first struct {
		at    time.Time
		count int
	}
	last, moved := 0, time.Now()
	for {
		count, err := q.depth()
		if err != nil {
			return 0, err
		}
		now := time.Now()
		if count != last {
			last, moved = count, now
		}
		if first.count == 0 && count > 0 {
			first.at, first.count = now, count
		}
		if count >= n {
			return float64(count-first.count) / max(now.Sub(first.at).Seconds(), watchEvery.Seconds()), nil
		}
		if err := failed(); err != nil {
			return 0, err
		}
		if now.Sub(moved) > patience {
			return 0, fmt.Errorf("%d of %d messages are in the queue, and no more came for %s", count, n, patience)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// consume takes every message of the queue, without acknowledgements, until take says that it was the last one.
func (q *queue) consume(ctx context.Context, take func(*amqp.Delivery) (last bool)) error {
	deliveries, err := q.ch.Consume(queueName, "bench", true, false, false, false, nil)
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	idle := time.NewTimer(patience)
	defer idle.Stop()
	for {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return fmt.Errorf("consume: the broker closed the channel")
			}
			if take(&d) {
				return q.ch.Cancel("bench", false)
			}
			idle.Reset(patience)
		case <-idle.C:
			return fmt.Errorf("consume: no message for %s", patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
