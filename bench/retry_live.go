// The retry table under a live load: a destination that comes back, and poison.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"
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
	l.events, l.destination = rate*int(longestLoad/time.Second), missing
	if err := execSQL(ctx, s.db, "TRUNCATE outbox"); err != nil {
		return result{}, err
	}
	q, err := s.retryTableQueue()
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, q.deleteMissing(), q.close()) }()
	relay, err := s.startLive(ctx, s.retryTableConfig(l))
	if err != nil {
		return result{}, err
	}
	fail := func(err error) (result, error) {
		return result{}, errors.Join(fmt.Errorf("%w: %s", err, relay.Log()), relay.Kill())
	}
	first := s.nextRun()
	writer, enough := make(chan error, 1), make(chan struct{})
	life, stop := context.WithCancel(ctx)
	defer stop()
	poured := 0
	go func() {
		n, err := s.pour(life, enough, first, 0, l, rate)
		poured = n
		writer <- err
	}()
	if err := waitUntil(ctx, time.Now().Add(writing)); err != nil {
		return fail(err)
	}
	deferred, err := s.retryRows(ctx)
	if err == nil {
		err = q.makeMissing()
	}
	if err != nil {
		return fail(err)
	}
	fixed := time.Now()
	if err := s.awaitEmpty(ctx, relay); err != nil {
		return fail(err)
	}
	took := time.Since(fixed)
	close(enough)
	if err := <-writer; err != nil {
		return fail(err)
	}
	under := poured < l.events
	l.events = poured
	if _, err := watch(ctx, q, l.events, func() error { return alive(relay) }); err != nil {
		return fail(err)
	}
	if err := s.stopRelay(relay); err != nil {
		return result{}, err
	}
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
	relay, err := s.startLive(ctx, s.retryTableConfig(runSpec{ordering: "key"}))
	if err != nil {
		return result{}, err
	}
	fail := func(err error) (result, error) {
		return result{}, errors.Join(fmt.Errorf("%w: %s", err, relay.Log()), relay.Kill())
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
			return fail(err)
		}
		err := execSQL(ctx, s.db, fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			VALUES (gen_random_uuid(), 'order', 'customer-%d', 'created', jsonb_build_object('pad', repeat('x', %d)))`, i, tooLarge))
		if err != nil {
			return fail(err)
		}
	}
	err = s.awaitRetryRows(ctx, relay, poisons)
	if err = errors.Join(err, <-written); err != nil {
		return fail(err)
	}
	if _, err := watch(ctx, q, rows, func() error { return alive(relay) }); err != nil {
		return fail(err)
	}
	var worst, middle float64
	err = s.ask(ctx, &worst, "SELECT max(extract(epoch FROM died_at - commit_time))::float8 FROM cdc_relay.dead_letter")
	err = errors.Join(err, s.ask(ctx, &middle, "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM died_at - commit_time))::float8 FROM cdc_relay.dead_letter"))
	if err != nil {
		return fail(err)
	}
	return result{
		name: fmt.Sprintf("commit of a permanent poison to its dead letter, beside %s/s", thousands(liveRate)), ours: fmt.Sprintf("median %s, worst of %d %s", milliseconds(middle), poisons, milliseconds(worst)),
		value: worst, unit: "s", must: 1, aim: 0.1, once: true,
	}, s.stopRelay(relay)
}
