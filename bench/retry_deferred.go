// A full retry table: throughput next to it, into it, and out of it.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// deferAll has the relay defer all events of a load, which go to an exchange that is not there, and
// returns how fast, and its peak of memory. then, if there is one, goes on with the relay; first is
// the id of the first event.
func (s *rabbitStand) deferAll(ctx context.Context, l runSpec, then func(relay *runner.Relay, first int64) error) (found ran, err error) {
	first, err := s.fillBad(ctx, l, badness{destination: missing}, 1)
	if err != nil {
		return found, err
	}
	return found, s.withRelay(s.retryTableConfig(l), func(relay *runner.Relay) (err error) {
		began := time.Now()
		if err := s.awaitRetryRows(ctx, relay, l.events); err != nil {
			return err
		}
		took := time.Since(began)
		if found, err = s.looked(ctx, relay, l.events); err != nil {
			return err
		}
		found.rate = float64(l.events) / took.Seconds()
		if then == nil {
			return nil
		}
		return then(relay, first)
	})
}

// besideDeferred is the throughput with a full retry table against that with an empty one.
func (s *rabbitStand) besideDeferred(ctx context.Context) (_ result, err error) {
	full := runSpec{keys: keyset{count: 1000}, events: s.size.memory, rowsPerTx: 100, ordering: "key"}
	deferred, err := s.deferAll(ctx, full, nil)
	if err != nil {
		return result{}, err
	}
	tables, err := s.hideFull(ctx)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, tables.end(context.WithoutCancel(ctx))) }()
	l := runSpec{keys: keyset{count: 1000}, events: s.size.events, rowsPerTx: 100, ordering: "key"}
	var base, ours sum
	p, err := s.turns(ctx, s.size.pairs, func(ctx context.Context) (float64, error) {
		r, err := s.goodRun(ctx, l, badness{}, 0)
		base.add(r)
		return r.rate, err
	}, func(ctx context.Context) (float64, error) {
		if err := tables.use(ctx, true); err != nil {
			return 0, err
		}
		r, err := s.goodRun(ctx, l, badness{}, 0)
		ours.add(r)
		err = errors.Join(err, tables.use(ctx, false))
		return r.rate, err
	}, perSecond)
	if err != nil {
		return result{}, err
	}
	r := p.result(fmt.Sprintf("throughput with %s rows deferred ÷ without", thousands(full.events)), "×", perSecond)
	r.must, r.aim, r.higher = 0.9, 1, true
	r.note = fmt.Sprintf("%d events; %s; without %s; they were deferred at %s", l.events, ours.mean().note(), base.mean().cost.relay(), perSecond(deferred.rate))
	return r, nil
}

// keysDeferred is the relay's memory while it defers as many keys as there are events, against its
// memory while it delivers them.
func (s *rabbitStand) keysDeferred(ctx context.Context) (_ result, err error) {
	l := runSpec{keys: keyset{count: s.size.memory}, events: s.size.memory, rowsPerTx: 100, ordering: "key"}
	first, err := s.fillBad(ctx, l, badness{}, 0)
	if err != nil {
		return result{}, err
	}
	h, err := s.readTable(ctx, first, l)
	if err != nil {
		return result{}, err
	}
	q, err := s.retryTableQueue()
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	var delivering int64
	err = s.withRelay(s.retryTableConfig(l), func(relay *runner.Relay) error {
		if err := q.consume(ctx, func(d *amqp.Delivery) bool { return q.take(h, d) }); err != nil {
			return err
		}
		delivering, err = relay.PeakRSS()
		return err
	})
	if err != nil {
		return result{}, err
	}
	deferring, err := s.deferAll(ctx, l, nil)
	if err != nil {
		return result{}, err
	}
	return result{
		name: fmt.Sprintf("peak RSS: %s different keys to one missing exchange, more than to one that is there", thousands(l.events)),
		ours: mebibytes(float64(deferring.peak)), base: mebibytes(float64(delivering)), value: float64(deferring.peak-delivering) / (1 << 20), unit: "MiB",
		must: 16, once: true, note: "deferred at " + perSecond(deferring.rate),
	}, nil
}

// drainDeferred is how fast deferred events come out, once their exchange is there.
func (s *rabbitStand) drainDeferred(ctx context.Context, keys int, must float64) (_ result, err error) {
	l := runSpec{keys: keyset{count: keys}, events: s.size.deferred, rowsPerTx: 100, ordering: "key"}
	var rates []float64
	for range s.size.windows {
		rate, err := s.drainOnce(ctx, l)
		if err != nil {
			return result{}, err
		}
		s.say("    %s", perSecond(rate))
		rates = append(rates, rate)
	}
	return result{
		name: fmt.Sprintf("drain of %s deferred events, %s", thousands(l.events), l.keys), ours: spread(rates, perSecond),
		value: median(rates), unit: "/s", must: must, aim: 2 * must, higher: true, pairs: len(rates), once: len(rates) == 1,
	}, nil
}

func (s *rabbitStand) drainOnce(ctx context.Context, l runSpec) (rate float64, err error) {
	q, err := s.retryTableQueue()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, q.deleteMissing(), q.close()) }()
	var h *history
	_, err = s.deferAll(ctx, l, func(relay *runner.Relay, first int64) (err error) {
		if h, err = s.readTable(ctx, first, l); err == nil {
			err = errors.Join(q.makeMissing(), s.retryMissing(ctx))
		}
		if err == nil {
			rate, err = watch(ctx, q, l.events, alive(relay))
		}
		if err == nil {
			err = s.awaitEmpty(ctx, relay)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return rate, q.check(ctx, h)
}

// awaitEmpty waits until nothing is deferred.
func (s *stand) awaitEmpty(ctx context.Context, relay *runner.Relay) error {
	return await(ctx, 20*watchEvery, patience, "an empty retry table", alive(relay), func() (left int, done bool, err error) {
		err = s.ask(ctx, &left, "SELECT count(*) FROM cdc_relay.retry")
		return left, left == 0, err
	})
}
