// A new leader that finds many deferred rows.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// startBehind is the time from the start of the process until an event that waited for it is at the
// broker, with many rows deferred of another destination, against the same with none.
func (s *rabbitStand) startBehind(ctx context.Context) (_ result, err error) {
	groups := min(10_000, s.size.waiting)
	if _, err := s.deferAll(ctx, runSpec{keys: keyset{count: groups}, events: groups, rowsPerTx: 100, payload: 200, ordering: "key"}, nil); err != nil {
		return result{}, err
	}
	if err := s.multiplyRetryRows(ctx, s.size.waiting); err != nil {
		return result{}, err
	}
	rows, err := s.retryRows(ctx)
	if err != nil {
		return result{}, err
	}
	// So that no later start has to decode the WAL of these rows.
	if err := execSQL(ctx, s.db, "CHECKPOINT"); err != nil {
		return result{}, err
	}
	if _, err := s.firstConfirm(ctx); err != nil {
		return result{}, err
	}
	tables, err := s.hideFull(ctx)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, tables.end(context.WithoutCancel(ctx))) }()
	side := func(full bool) side {
		return func(ctx context.Context) (float64, error) {
			if err := tables.use(ctx, full); err != nil {
				return 0, err
			}
			return s.firstConfirm(ctx)
		}
	}
	p, err := s.turns(ctx, s.size.pairs, side(false), side(true), milliseconds)
	if err != nil {
		return result{}, err
	}
	r := p.result(fmt.Sprintf("start to the first event of another exchange with %s rows of %s keys deferred ÷ with none", thousands(rows), thousands(groups)), "×", milliseconds)
	r.must, r.aim = 2, 1.1
	return r, nil
}

// firstConfirm is the time from the start of the process until the one event that waits is in the
// queue, in seconds.
func (s *rabbitStand) firstConfirm(ctx context.Context) (seconds float64, err error) {
	l := runSpec{keys: keyset{count: 1}, events: 1, rowsPerTx: 1, ordering: "key"}
	first, err := s.fillBad(ctx, l, badness{}, 0)
	if err != nil {
		return 0, err
	}
	h, err := s.readTable(ctx, first, l)
	if err != nil {
		return 0, err
	}
	q, err := s.retryTableQueue()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	began := time.Now()
	err = s.withRelay(s.retryTableConfig(l), func(relay *runner.Relay) error {
		_, err := watchFor(ctx, longestStart, q, l.events, alive(relay))
		seconds = time.Since(began).Seconds()
		return err
	})
	if err != nil {
		return 0, err
	}
	return seconds, q.check(ctx, h)
}

// longestStart is how long the first event is waited for.
const longestStart = 5 * time.Minute
