// The retry table: what bad events cost the good ones.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// badEvery is how many events there are for each that is bad. The keys take turns, so that some
// keys' events are all bad, and the others' all good.
const badEvery = 100

// badness is what is wrong with an event.
type badness struct {
	destination string // exchange
	routingKey  string
	payload     int // bytes
}

const (
	missing = "missing.events" // an exchange that is not there
	unbound = "nowhere"        // a routing key that nothing is bound for
	// bytes that the broker takes, in the rows about the retry table
	largestBody  = 4 << 10
	tooLarge     = 8 << 10
	usualLargest = 128 << 20 // RabbitMQ's default
)

// retryTableRows are the rows about the retry table. The table is routed by two columns more in
// each of them, and only in them.
func (s *rabbitStand) retryTableRows() []row {
	one := func(measure func(context.Context) (result, error)) func(context.Context) ([]result, error) {
		return func(ctx context.Context) (_ []result, err error) {
			if err := s.route(ctx); err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, s.unroute(context.WithoutCancel(ctx))) }()
			r, err := measure(ctx)
			return []result{r}, err
		}
	}
	beside := func(name string, must float64, b badness) func(context.Context) ([]result, error) {
		return one(func(ctx context.Context) (result, error) { return s.besideBad(ctx, name, must, b) })
	}
	drain := func(keys int, must float64) func(context.Context) ([]result, error) {
		return one(func(ctx context.Context) (result, error) { return s.drainDeferred(ctx, keys, must) })
	}
	return []row{
		{"retry-too-large", beside("1 % too large", 0.9, badness{payload: tooLarge})},
		{"retry-missing", beside("1 % to a missing exchange", 0.8, badness{destination: missing})},
		{"retry-unbound", beside("1 % to an unroutable routing key", 0.9, badness{routingKey: unbound})},
		{"retry-million-deferred", one(s.besideDeferred)},
		{"retry-million-keys", one(s.keysDeferred)},
		{"retry-drain-1000", drain(1000, 8000)},
		{"retry-drain-1", drain(1, 1000)},
		{"retry-resume-1000", func(ctx context.Context) ([]result, error) {
			l := runSpec{keys: keyset{count: 1000}, events: s.size.events, rowsPerTx: 100, ordering: "key"}
			return s.resume(ctx, "1,000 keys", l, s.openMissing)
		}},
		{"retry-start", one(s.startBehind)},
		{"retry-poison", one(s.poison)},
		{"retry-lists", one(s.lists)},
	}
}

// route adds the columns that the rows of the retry table are routed by.
func (s *rabbitStand) route(ctx context.Context) error {
	if _, err := s.rabbit.Ctl(ctx, "eval", fmt.Sprintf("application:set_env(rabbit, max_message_size, %d).", largestBody)); err != nil {
		return err
	}
	return execSQL(ctx, s.db, fmt.Sprintf("ALTER TABLE outbox ADD COLUMN destination text NOT NULL DEFAULT '%s', ADD COLUMN routing_key text NOT NULL DEFAULT 'order.created'", exchange), fillBadSQL)
}

// unroute takes them away, and empties the retry table.
func (s *rabbitStand) unroute(ctx context.Context) error {
	_, err := s.rabbit.Ctl(ctx, "eval", fmt.Sprintf("application:set_env(rabbit, max_message_size, %d).", usualLargest))
	return errors.Join(err, s.emptyRetryTable(ctx), execSQL(ctx, s.db, "ALTER TABLE outbox DROP COLUMN destination, DROP COLUMN routing_key", "DROP PROCEDURE fill_bad"))
}

func (s *stand) emptyRetryTable(ctx context.Context) error {
	return execSQL(ctx, s.db, "TRUNCATE cdc_relay.retry, cdc_relay.dead_letter, cdc_relay.request")
}

// fillBadSQL is fill with some rows bad: the last of each so many, 0: none.
const fillBadSQL = `
CREATE OR REPLACE PROCEDURE fill_bad(first bigint, n bigint, rows_per_tx bigint, size int, every bigint, bad_destination text, bad_key text, bad_size int) LANGUAGE plpgsql AS $$
DECLARE done bigint := 0;
BEGIN
	WHILE done < n LOOP
		INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, destination, routing_key)
		SELECT lpad(to_hex(first + i), 32, '0')::uuid, 'order', key, 'created',
			('{"n": ' || i || ', "pad": "' || repeat('x', CASE WHEN bad THEN bad_size ELSE size END - 18 - length(i::text)) || '"}')::jsonb,
			CASE WHEN bad THEN bad_destination ELSE 'outbox.events' END, CASE WHEN bad THEN bad_key ELSE 'order.created' END
		FROM (SELECT i, key, every > 0 AND i % greatest(every, 1) = every - 1 AS bad FROM fill_key WHERE i >= done AND i < done + rows_per_tx) r ORDER BY i;
		COMMIT;
		done := done + rows_per_tx;
	END LOOP;
END $$`

// retryTableConfig is the relay's configuration for a load of the retry table.
func (s *rabbitStand) retryTableConfig(l runSpec) string {
	return s.source() + fmt.Sprintf("sink:\n  rabbitmq:\n    url: %s\n    exchange: '{column:destination}'\n    routing_key: '{column:routing_key}'\ndelivery:\n  ordering: %s\n",
		s.brokerURL(false), l.ordering)
}

// fillBad is fill with one event of every that are bad; 0: none.
func (s *rabbitStand) fillBad(ctx context.Context, l runSpec, b badness, every int) (first int64, err error) {
	if b.destination == "" {
		b.destination = exchange
	}
	if b.routingKey == "" {
		b.routingKey = "order.created"
	}
	return s.fillWith(ctx, l, func(first int64) string {
		return fmt.Sprintf("CALL fill_bad(%d, %d, %d, %d, %d, '%s', '%s', %d)", first, l.events, l.rowsPerTx, l.bytes(), every,
			b.destination, b.routingKey, max(b.payload, l.bytes()))
	})
}

// retryTableQueue is a queue that takes the routing key of good events alone.
func (s *rabbitStand) retryTableQueue() (*queue, error) {
	q, err := s.newQueue("classic")
	if err != nil {
		return nil, err
	}
	if err = q.ch.QueueUnbind(queueName, "#", exchange, nil); err == nil {
		err = q.ch.QueueBind(queueName, "order.created", exchange, false, nil)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bind queue: %w", err), q.close())
	}
	return q, nil
}

// goodRun has the relay get through a load of which one event of every is bad, and measures the
// good ones at the broker. The run ends when the bad ones are where they belong.
func (s *rabbitStand) goodRun(ctx context.Context, l runSpec, b badness, every int) (_ ran, err error) {
	first, err := s.fillBad(ctx, l, b, every)
	if err != nil {
		return ran{}, err
	}
	h, err := s.readTable(ctx, first, l)
	if err != nil {
		return ran{}, err
	}
	if every > 0 {
		h.without(func(i int) bool { return i%every == every-1 })
		h.repeats = true
	}
	q, err := s.retryTableQueue()
	if err != nil {
		return ran{}, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	before, err := s.retryRows(ctx)
	if err != nil {
		return ran{}, err
	}
	var found ran
	err = s.withRelay(s.retryTableConfig(l), func(relay *runner.Relay) error {
		good := len(h.keys) - h.delivered
		rate, err := watch(ctx, q, good, alive(relay))
		if err == nil {
			err = s.awaitRetryRows(ctx, relay, before+l.events-good)
		}
		if err == nil {
			found, err = s.looked(ctx, relay, l.events)
		}
		found.rate, found.cost.broker = rate, 0
		return err
	})
	if err != nil {
		return ran{}, err
	}
	return found, q.check(ctx, h)
}

// retryRows is how many deferred events and dead letters there are.
func (s *stand) retryRows(ctx context.Context) (n int, err error) {
	return n, s.ask(ctx, &n, "SELECT (SELECT count(*) FROM cdc_relay.retry) + (SELECT count(*) FROM cdc_relay.dead_letter)")
}

// awaitRetryRows waits until the retry table and the dead letters have n rows together. It waits on
// while some come.
func (s *stand) awaitRetryRows(ctx context.Context, relay *runner.Relay, n int) error {
	return await(ctx, 20*watchEvery, patience, fmt.Sprintf("%d rows in the retry table", n), alive(relay), func() (progress int, done bool, err error) {
		have, err := s.retryRows(ctx)
		return have, have >= n, err
	})
}

// besideBad is good events among bad ones against good ones alone.
func (s *rabbitStand) besideBad(ctx context.Context, name string, must float64, b badness) (result, error) {
	l := runSpec{keys: keyset{count: 1000}, events: s.size.events, rowsPerTx: 100, ordering: "key"}
	side := func(every int, total *sum) side {
		return func(ctx context.Context) (float64, error) {
			r, err := s.goodRun(ctx, l, b, every)
			total.add(r)
			return r.rate, errors.Join(err, s.emptyRetryTable(ctx))
		}
	}
	var base, ours sum
	p, err := s.turns(ctx, s.size.pairs, side(0, &base), side(badEvery, &ours), perSecond)
	if err != nil {
		return result{}, err
	}
	r := p.result("good keys' throughput ÷ without: "+name, "×", perSecond)
	r.must, r.aim, r.higher = must, 1, true
	r.note = fmt.Sprintf("%d events, 1,000 keys; %s; without %s", l.events, ours.mean().note(), base.mean().cost.relay())
	return r, nil
}
