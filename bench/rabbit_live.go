// Latency on RabbitMQ: the relay and the bare loop, with and without bursts of one key.
package main

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// listen starts the consumer of the live rows.
func (s *rabbitStand) listen(ctx context.Context) (*listener, error) {
	q, err := s.newQueue("classic") // the consumer would take over an old one
	if err != nil {
		return nil, err
	}
	c, err := consumers.StartConsumer(ctx, consumers.ConsumerOptions{URL: s.rabbit.URL(), Exchange: exchange, Queue: queueName})
	if err != nil {
		return nil, errors.Join(err, q.close())
	}
	return &listener{Witness: c, config: s.config(runSpec{ordering: "key"}), dial: s.dialLoop, remove: q.close}, nil
}

// bursts is what a burst of one key does to the other ones.
func (s *rabbitStand) bursts(ctx context.Context) (_ []result, err error) {
	l, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.end()) }()
	var p50 [2][]float64
	side := func(bursts int) side {
		return func(ctx context.Context) (float64, error) {
			took, err := l.hear(ctx, &phase{db: s.db, first: s.nextRun(), rate: liveRate, length: s.size.burst, bursts: bursts == 1})
			p50[bursts] = append(p50[bursts], median(took))
			return quantile(took, 0.99), err
		}
	}
	var found series
	err = s.withRelay(l.config, func(relay *runner.Relay) (err error) {
		if err = ready(ctx, relay); err == nil {
			found, err = s.turns(ctx, s.size.tails, side(0), side(1), milliseconds)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r := found.result("cold keys at 1,000/s beside a burst of 2,000 events of one key every 5 s: their p99 ÷ without bursts", "×", milliseconds)
	r.must, r.aim = 3, 1.5
	r.note = fmt.Sprintf("p50 %s, without bursts %s", milliseconds(median(p50[1])), milliseconds(median(p50[0])))
	return []result{r}, nil
}

// dialLoop connects a bare loop, which publishes a row and awaits the confirm.
func (s *rabbitStand) dialLoop() (publish, error) {
	p, err := dialPublisher(s.rabbit.URL(), 1, false)
	if err != nil {
		return publish{}, err
	}
	send := func(_ context.Context, r *loopRow) error {
		answer, err := p.send(&amqp.Publishing{
			ContentType: "application/json", DeliveryMode: amqp.Persistent, MessageId: r.columns["id"], Type: r.columns["type"],
			Timestamp: r.commitTime, Body: []byte(r.columns["payload"]),
			Headers: amqp.Table{
				"aggregate_type": r.columns["aggregatetype"], "aggregate_id": r.columns["aggregateid"],
				"timestamp_in_ms": r.commitTime.UnixMilli(), "cdc_position": r.position,
			},
		})
		if err != nil {
			return err
		}
		return confirmed(answer)
	}
	return publish{send: send, close: p.close}, nil
}
