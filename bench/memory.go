// Peak memory of the relay while much waits for it.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// memory relays a backlog in transactions of rowsPerTx rows, next to a consumer so that the broker
// need not keep it, and reads the most memory that the relay has had resident.
func (s *rabbitStand) memory(ctx context.Context, name string, rowsPerTx int) (_ []result, err error) {
	l := runSpec{keys: keyset{count: 1000}, events: s.size.memory, rowsPerTx: rowsPerTx, ordering: "key"}
	first, err := s.fill(ctx, l)
	if err != nil {
		return nil, err
	}
	h, err := s.readTable(ctx, first, l)
	if err != nil {
		return nil, err
	}
	q, err := s.newQueue("classic")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	var rate float64
	var peak int64
	err = s.withRelay(s.config(l), func(relay *runner.Relay) error {
		var begin time.Time
		err := q.consume(ctx, func(d *amqp.Delivery) bool {
			if begin.IsZero() {
				begin = time.Now()
			}
			return q.take(h, d)
		})
		if err != nil {
			return err
		}
		rate = float64(l.events) / time.Since(begin).Seconds()
		peak, err = relay.PeakRSS()
		return err
	})
	if err != nil {
		return nil, err
	}
	left, err := q.depth()
	if err != nil {
		return nil, err
	}
	return []result{{
		name: "peak RSS (VmHWM), 512 B payloads: " + name, ours: mebibytes(float64(peak)), value: float64(peak) / (1 << 20), unit: "MiB",
		must: 96, aim: 48, once: true, note: fmt.Sprintf("%s beside a consumer", perSecond(rate)),
	}}, h.verdict(left)
}
