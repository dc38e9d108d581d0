// Latency on RabbitMQ: the relay and the bare loop, with and without bursts of one key.
package main

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
)

const liveRate = 1000 // rows a second

// listen starts the consumer of the live rows. What it returns besides ends it.
func (s *rabbitStand) listen(ctx context.Context) (*listener, func() error, error) {
	q, err := s.newQueue("classic") // the consumer would take over an old one
	if err != nil {
		return nil, nil, err
	}
	c, err := consumers.StartConsumer(ctx, consumers.ConsumerOptions{URL: s.rabbit.URL(), Exchange: exchange, Queue: queueName})
	if err != nil {
		return nil, nil, errors.Join(err, q.close())
	}
	return &listener{Witness: c}, func() error {
		c.Close()
		return q.close()
	}, nil
}

// bursts is what a burst of one key does to the other ones.
func (s *rabbitStand) bursts(ctx context.Context) (_ []result, err error) {
	l, end, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	relay, err := s.startLive(ctx, s.config(runSpec{ordering: "key"}))
	if err != nil {
		return nil, err
	}
	var p50 [2][]float64
	side := func(bursts int) side {
		return func(ctx context.Context) (float64, error) {
			took, err := l.hear(ctx, &phase{db: s.db, first: s.nextRun(), rate: liveRate, length: s.size.burst, bursts: bursts == 1})
			p50[bursts] = append(p50[bursts], median(took))
			return quantile(took, 0.99), err
		}
	}
	turns, err := s.turns(ctx, s.size.tails, side(0), side(1), milliseconds)
	if err != nil {
		return nil, errors.Join(err, relay.Kill())
	}
	r := turns.result("cold keys at 1,000/s beside a burst of 2,000 events of one key every 5 s: their p99 ÷ without bursts", "×", milliseconds)
	r.must, r.aim = 3, 1.5
	r.note = fmt.Sprintf("p50 %s, without bursts %s", milliseconds(median(p50[1])), milliseconds(median(p50[0])))
	return []result{r}, s.stopRelay(relay)
}

// live is the relay against the bare loop.
func (s *rabbitStand) live(ctx context.Context) (_ []result, err error) {
	l, end, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	r, err := s.besideLoop(ctx, l, liveRate, s.size.tails, s.config(runSpec{ordering: "key"}), s.dialLoop)
	r.must, r.aim = 1.5, 1.1
	return []result{r}, err
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

// leaderChange measures the loss of a leader that has a standby.
func (s *rabbitStand) leaderChange(ctx context.Context) (_ []result, err error) {
	l, end, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	return s.leaderChanges(ctx, s.config(runSpec{ordering: "key"}), l.Witness)
}
