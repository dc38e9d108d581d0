// The drain of the retry table beside an old snapshot.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

const (
	// few, so that each ordering group is long
	snapshotKeys = 10
	// a drain beside a snapshot that takes so many times as long as one without is stopped
	longestDrain = 5
)

// besideSnapshot is the drain of deferred rows beside a session that keeps an old snapshot and a
// lock of the table, as pg_dump does, against the drain without: no row that is deleted can be
// removed. It is on Kafka, where the broker takes more than the table gives.
func (s *kafkaStand) besideSnapshot(ctx context.Context) (_ []result, err error) {
	if err := errors.Join(s.warmUp(ctx), s.setAutovacuum(ctx, "on")); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.setAutovacuum(context.WithoutCancel(ctx), "off")) }()
	l := runSpec{keys: keyset{count: snapshotKeys}, events: s.size.drained, rowsPerTx: 100, payload: 200, partitions: 12, ordering: "key"}
	var usual float64
	p, err := s.turns(ctx, 1, func(ctx context.Context) (rate float64, err error) {
		usual, err = s.drainMissing(ctx, l, time.Hour, nil)
		return usual, err
	}, func(ctx context.Context) (float64, error) {
		conn, err := pgx.Connect(ctx, s.db)
		if err != nil {
			return 0, fmt.Errorf("connect to PostgreSQL: %w", err)
		}
		limit := time.Duration(longestDrain * float64(l.events) / usual * float64(time.Second))
		rate, err := s.drainMissing(ctx, l, limit, func() error {
			_, err := conn.PgConn().Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM cdc_relay.retry LIMIT 1").ReadAll()
			return err
		})
		// what is left after a stop
		return rate, errors.Join(err, conn.Close(context.WithoutCancel(ctx)), s.emptyRetryTable(ctx))
	}, perSecond)
	if err != nil {
		return nil, err
	}
	r := p.result(fmt.Sprintf("drain of %s deferred events of %d keys beside an open snapshot ÷ without", thousands(l.events), snapshotKeys), "×", perSecond)
	r.must, r.aim, r.higher = 0.8, 1, true
	r.note = fmt.Sprintf("stopped after %d times as long as without", longestDrain)
	return []result{r}, nil
}

// drainMissing has the relay defer the events of l, calls deferred, if there is one, and returns
// how fast they come out until all have come, or for as long as limit.
func (s *kafkaStand) drainMissing(ctx context.Context, l runSpec, limit time.Duration, deferred func() error) (rate float64, err error) {
	to := s.openMissing(l)
	defer func() { err = errors.Join(err, to.close()) }()
	if err := execSQL(ctx, s.db, "TRUNCATE outbox"); err != nil {
		return 0, err
	}
	first := s.nextRun()
	if _, err := s.pour(ctx, nil, first, l, 0); err != nil {
		return 0, err
	}
	stopped := false
	err = s.withRelay(to.config, func(relay *runner.Relay) error {
		err := s.awaitRetryRows(ctx, relay, l.events)
		if err == nil && deferred != nil {
			err = deferred()
		}
		if err == nil {
			err = to.make(ctx)
		}
		if err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		rate, err = watchFor(bounded, limit, to, l.events, alive(relay))
		if stopped = errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil; stopped {
			return nil
		}
		if err != nil {
			return err
		}
		return s.awaitEmpty(ctx, relay)
	})
	if err != nil || stopped {
		return rate, err
	}
	h, err := s.readTable(ctx, first, l)
	if err != nil {
		return 0, err
	}
	return rate, to.check(ctx, h)
}

// setAutovacuum turns it on or off, for rows about a table that fills and empties.
func (s *stand) setAutovacuum(ctx context.Context, value string) error {
	return execSQL(ctx, s.db, "ALTER SYSTEM SET autovacuum = "+value, "SELECT pg_reload_conf()")
}
