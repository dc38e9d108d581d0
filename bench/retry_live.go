// The retry table under a live load: a destination that comes back, and poison.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// resume has a destination come back while events go on coming to it at half of what the relay can
// do, of the same keys: what was deferred must come to an end.
func (s *rabbitStand) resume(ctx context.Context) (_ result, err error) {
	l := runSpec{keys: keyset{count: 1000}, events: s.size.events, rowsPerTx: 100, ordering: "key"}
	whole, err := s.goodRun(ctx, l, badness{}, 0)
	if err != nil {
		return result{}, err
	}
	rate := int(whole.rate / 2)
	// The events are there from the beginning, and are let go in time: nothing has to keep up but
	// the relay.
	writing := s.size.live
	l.events = rate * int(longestLoad/time.Second)
	if err := execSQL(ctx, s.db, "TRUNCATE outbox"); err != nil {
		return result{}, err
	}
	q, err := s.retryTableQueue()
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, q.deleteMissing(), q.close()) }()
	first, poured, deferred := s.nextRun(), 0, 0
	var took time.Duration
	err = s.withRelay(s.retryTableConfig(l), func(relay *runner.Relay) error {
		if err := ready(ctx, relay); err != nil {
			return err
		}
		writer, enough := make(chan error, 1), make(chan struct{})
		life, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			var err error
			poured, err = s.pour(life, enough, first, l, rate)
			writer <- err
		}()
		if err := waitUntil(ctx, time.Now().Add(writing)); err != nil {
			return err
		}
		var err error
		if deferred, err = s.retryRows(ctx); err == nil {
			err = q.makeMissing()
		}
		if err != nil {
			return err
		}
		fixed := time.Now()
		if err := s.awaitEmpty(ctx, relay); err != nil {
			return err
		}
		took = time.Since(fixed)
		close(enough)
		if err := <-writer; err != nil {
			return err
		}
		_, err = watch(ctx, q, poured, alive(relay))
		return err
	})
	if err != nil {
		return result{}, err
	}
	under := poured < l.events
	l.events = poured
	h, err := s.readTable(ctx, first, l)
	if err != nil {
		return result{}, err
	}
	r := result{
		name: fmt.Sprintf("a paused destination comes back under %s of live load on the same keys, half of the capacity: deferred in the end", perSecond(float64(rate))),
		ours: fmt.Sprintf("0 after %.1f s", took.Seconds()), unit: "events", none: true, once: true, note: fmt.Sprintf("%d were deferred", deferred),
	}
	if !under {
		r.void = true
		r.note += fmt.Sprintf("; the load had ended after %s", longestLoad)
	}
	return r, q.check(ctx, h)
}

// pour commits the events of l at so many a second, in transactions of rowsPerTx rows, until it is
// enough or all are committed. It returns how many events there are then. The keys take turns.
func (s *stand) pour(ctx context.Context, enough <-chan struct{}, first int64, l runSpec, rate int) (n int, err error) {
	conn, err := pgx.Connect(ctx, s.db)
	if err != nil {
		return 0, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	const sql = `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, destination)
		SELECT lpad(to_hex($1::bigint + i), 32, '0')::uuid, 'order', 'customer-' || i % $4, 'created',
			('{"n": ' || i || ', "pad": "' || repeat('x', $5 - 18 - length(i::text)) || '"}')::jsonb, $6
		FROM generate_series($2::bigint, $3::bigint) i`
	start := time.Now()
	for i := 0; i < l.events; i += l.rowsPerTx {
		select {
		case <-enough:
			return i, nil
		default:
		}
		if err := waitUntil(ctx, start.Add(time.Duration(i)*time.Second/time.Duration(rate))); err != nil {
			return i, err
		}
		if _, err := conn.Exec(ctx, sql, first, i, min(i+l.rowsPerTx, l.events)-1, l.keys.count, l.bytes(), missing); err != nil {
			return i, fmt.Errorf("insert: %w", err)
		}
	}
	return l.events, nil
}

// longestLoad is how long the load goes on at the most while what was deferred is to come to an
// end.
const longestLoad = time.Minute

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
