// The drain of the retry table beside an old snapshot.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// few, so that each ordering group is long
	snapshotKeys = 10
	// a drain beside a snapshot that takes so many times as long as one without is stopped
	longestDrain = 5
)

// besideSnapshot is the drain of deferred rows beside a session that keeps an old snapshot and a
// lock of the table, as pg_dump does, against the drain without: no row that is deleted can be
// removed.
func (s *rabbitStand) besideSnapshot(ctx context.Context) (_ result, err error) {
	if err := s.setAutovacuum(ctx, "on"); err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, s.setAutovacuum(context.WithoutCancel(ctx), "off")) }()
	l := runSpec{keys: keyset{count: snapshotKeys}, events: s.size.drained, rowsPerTx: 100, ordering: "key"}
	var usual float64
	p, err := s.turns(ctx, 1, func(ctx context.Context) (float64, error) {
		rate, err := s.drainOnce(ctx, l, 0, nil)
		usual = rate
		return rate, err
	}, func(ctx context.Context) (float64, error) {
		conn, err := pgx.Connect(ctx, s.db)
		if err != nil {
			return 0, fmt.Errorf("connect to PostgreSQL: %w", err)
		}
		limit := time.Duration(longestDrain * float64(l.events) / usual * float64(time.Second))
		rate, err := s.drainOnce(ctx, l, limit, func() error {
			_, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM cdc_relay.retry LIMIT 1")
			return err
		})
		return rate, errors.Join(err, conn.Close(context.WithoutCancel(ctx)), s.emptyRetryTable(ctx))
	}, perSecond)
	if err != nil {
		return result{}, err
	}
	r := p.result(fmt.Sprintf("drain of %s deferred events of %d keys beside an open snapshot ÷ without", thousands(l.events), snapshotKeys), "×", perSecond)
	r.must, r.aim, r.higher = 0.8, 1, true
	r.note = fmt.Sprintf("a drain is stopped after %d times as long as without", longestDrain)
	return r, nil
}

// setAutovacuum turns it on or off, for rows about a table that fills and empties.
func (s *stand) setAutovacuum(ctx context.Context, value string) error {
	return execSQL(ctx, s.db, "ALTER SYSTEM SET autovacuum = "+value, "SELECT pg_reload_conf()")
}
