// The queue that a run on RabbitMQ fills.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	exchange  = "outbox.events"
	queueName = "bench"
)

// queue is the one queue of a run, bound to the one exchange, and a connection to it. It is deleted
// at the end.
type queue struct {
	conn *amqp.Connection
	ch   *amqp.Channel
	kind string
	want bareMessage
}

// newQueue makes the queue again; kind is classic or quorum.
func (s *rabbitStand) newQueue(kind string) (_ *queue, err error) {
	conn, err := amqp.Dial(s.rabbit.URL())
	if err != nil {
		return nil, fmt.Errorf("connect to broker: %w", err)
	}
	q := &queue{conn: conn, kind: kind, want: newBareMessage()}
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

// consume takes every message of the queue, without acknowledgements, until take says that it was
// the last one.
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

// take notes a delivery in the history, and holds it against what the baseline sends: both must
// have had the same work.
func (q *queue) take(h *history, d *amqp.Delivery) (all bool) {
	key := text(d.Headers["aggregate_id"])
	if i, ok := indexOf(d.MessageId, h.first); ok && !sameShape(d, q.want.build(h.first, i, key)) {
		h.altered++
	}
	return h.note(d.MessageId, key)
}

func sameShape(d *amqp.Delivery, want *amqp.Publishing) bool {
	return bytes.Equal(d.Body, want.Body) && d.ContentType == want.ContentType && d.DeliveryMode == want.DeliveryMode &&
		d.Type == want.Type && d.Timestamp.IsZero() == want.Timestamp.IsZero() && len(d.Headers) == len(want.Headers) &&
		d.Headers["aggregate_type"] == want.Headers["aggregate_type"] && d.Headers["timestamp_in_ms"] != nil &&
		len(text(d.Headers["cdc_position"])) == len(text(want.Headers["cdc_position"]))
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// check reads the queue empty and compares.
func (q *queue) check(ctx context.Context, h *history) error {
	before, err := q.depth()
	if err != nil {
		return err
	}
	taken := 0
	err = q.consume(ctx, func(d *amqp.Delivery) bool {
		q.take(h, d)
		taken++
		return taken == before
	})
	if err != nil {
		return err
	}
	left, err := q.depth()
	if err != nil {
		return err
	}
	return h.verdict(left)
}

// openMissing is a queue for what goes to the exchange that is missing.
func (s *rabbitStand) openMissing(context.Context) (*returning, error) {
	q, err := s.newQueue("classic")
	if err != nil {
		return nil, err
	}
	return &returning{
		place: missingExchange{q}, config: s.configTo(missing, runSpec{ordering: "key"}),
		make: func(ctx context.Context) error { return errors.Join(q.makeMissing(), s.retryMissing(ctx)) },
	}, nil
}

// missingExchange is the queue whose exchange goes with it.
type missingExchange struct{ *queue }

func (m missingExchange) close() error { return errors.Join(m.deleteMissing(), m.queue.close()) }

// makeMissing makes the exchange that was not there, and has the queue take what comes to it.
func (q *queue) makeMissing() error {
	if err := q.ch.ExchangeDeclare(missing, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		return fmt.Errorf("declare exchange: %w", err)
	}
	if err := q.ch.QueueBind(queueName, "#", missing, false, nil); err != nil {
		return fmt.Errorf("bind queue: %w", err)
	}
	return nil
}

// retryMissing says that all queues are bound: a deferred retry of one event.
func (s *rabbitStand) retryMissing(ctx context.Context) error {
	return execSQL(ctx, s.db, `INSERT INTO cdc_relay.request (slot, system_id, kind, n, who) SELECT slot, system_id, 'retry', n, 'bench' FROM cdc_relay.retry LIMIT 1`)
}

// deleteMissing takes it away again.
func (q *queue) deleteMissing() error {
	if err := q.ch.ExchangeDelete(missing, false, false); err != nil {
		return fmt.Errorf("delete exchange: %w", err)
	}
	return nil
}
