// Poison under a live load: how soon it is a dead letter.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// poison is the time from the commit of an event that is too large to its dead letter, under a
// live load.
func (s *rabbitStand) poison(ctx context.Context) (_ result, err error) {
	const poisons = 30
	q, err := s.retryTableQueue()
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	var worst, middle float64
	err = s.withRelay(s.retryTableConfig(runSpec{ordering: "key"}), func(relay *runner.Relay) error {
		if err := ready(ctx, relay); err != nil {
			return err
		}
		p := &phase{db: s.db, first: s.nextRun(), rate: liveRate, length: s.size.live}
		written, rows := make(chan error, 1), 0
		go func() {
			var err error
			rows, err = p.run(ctx)
			written <- err
		}()
		for i := range poisons {
			if err := waitUntil(ctx, time.Now().Add(s.size.live/(2*poisons))); err != nil {
				return err
			}
			err := execSQL(ctx, s.db, fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
				VALUES (gen_random_uuid(), 'order', 'customer-%d', 'created', jsonb_build_object('pad', repeat('x', %d)))`, i, tooLarge))
			if err != nil {
				return err
			}
		}
		if err := errors.Join(s.awaitRetryRows(ctx, relay, poisons), <-written); err != nil {
			return err
		}
		if _, err := watch(ctx, q, rows, alive(relay)); err != nil {
			return err
		}
		return errors.Join(s.ask(ctx, &worst, "SELECT max(extract(epoch FROM died_at - commit_time))::float8 FROM cdc_relay.dead_letter"),
			s.ask(ctx, &middle, "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM died_at - commit_time))::float8 FROM cdc_relay.dead_letter"))
	})
	if err != nil {
		return result{}, err
	}
	return result{
		name: fmt.Sprintf("commit of a permanent poison to its dead letter, beside %s/s", thousands(liveRate)), ours: fmt.Sprintf("median %s, worst of %d %s", milliseconds(middle), poisons, milliseconds(worst)),
		value: worst, unit: "s", must: 1, aim: 0.1, once: true,
	}, nil
}
