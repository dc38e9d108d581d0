// A destination that was paused, under a live load: how long until its events go to it directly
// again.
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
	// of what goes directly, live
	resumeShare = 0.7
	// the load ends when direct delivery has not come after so many times the pause
	longestResume = 4
	// rows that are poured to see how many come through
	mostDirect = 100_000_000
	// the retry table must stay empty so long while events come
	resumedFor = 2 * time.Second
)

// returning is a destination that is not there yet.
type returning struct {
	place
	config string // of a relay that publishes to it
	make   func(ctx context.Context) error
}

// resume has a destination come back while events of the same ordering groups keep coming, at 70 %
// of what goes to one that is there: of a backlog, before and after. Direct delivery has come when
// nothing is deferred any more while they come. It must come; how soon is given in pauses.
func (s *stand) resume(ctx context.Context, name string, l runSpec, open func(ctx context.Context) (*returning, error)) (_ []result, err error) {
	if err := s.setAutovacuum(ctx, "on"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.setAutovacuum(context.WithoutCancel(ctx), "off")) }()
	direct, err := s.directRate(ctx, l, open)
	if err != nil {
		return nil, err
	}
	t := &resumption{stand: s, l: l, rate: int(resumeShare * direct)}
	bound := longestResume * s.size.pause
	t.l.events = t.rate * int((s.size.pause+bound+time.Minute)/time.Second)
	if err := t.run(ctx, open, bound); err != nil {
		return nil, err
	}
	after, err := s.directRate(ctx, l, open)
	if err != nil {
		return nil, err
	}
	aa := series{base: []float64{direct, after}}.aa()
	took := fmt.Sprintf("%.1f s", t.took.Seconds())
	if t.took >= bound {
		took = "did not end in " + took
	}
	return []result{{
		name: fmt.Sprintf("%s: until direct delivery after a pause of %s, under a load of 70 %% of what goes directly ÷ the pause", name, s.size.pause),
		ours: took, value: t.took.Seconds() / s.size.pause.Seconds(), unit: "×", must: 2, aim: 1, pairs: 1, aa: aa,
		void: aa > maxAA || t.written < 0.9*float64(t.rate),
		base: perSecond(direct) + " directly, afterwards " + perSecond(after),
		note: fmt.Sprintf("%s committed of %s wanted; %s deferred when it came back", perSecond(t.written), perSecond(float64(t.rate)), thousands(t.deferred)),
	}}, nil
}

// directRate is how many events a second come through, live, to a destination that is there: the
// writer commits as fast as it can, on the same cores, for a third of a pause.
func (s *stand) directRate(ctx context.Context, l runSpec, open func(ctx context.Context) (*returning, error)) (rate float64, err error) {
	to, err := open(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	if err := errors.Join(to.make(ctx), execSQL(ctx, s.db, "TRUNCATE outbox")); err != nil {
		return 0, err
	}
	first := s.nextRun()
	err = s.withRelay(to.config, func(relay *runner.Relay) error {
		if err := ready(ctx, relay); err != nil {
			return err
		}
		enough := make(chan struct{})
		began := time.Now()
		end := time.AfterFunc(s.size.pause/3, func() { close(enough) })
		defer end.Stop()
		var err error
		l.events = mostDirect
		if l.events, err = s.pour(ctx, enough, first, l, 0); err != nil {
			return err
		}
		if _, err := watch(ctx, to, l.events, alive(relay)); err != nil {
			return err
		}
		rate = float64(l.events) / time.Since(began).Seconds()
		return nil
	})
	if err != nil {
		return 0, err
	}
	s.say("    directly %s", perSecond(rate))
	h, err := s.readTable(ctx, first, l)
	if err != nil {
		return 0, err
	}
	return rate, to.check(ctx, h)
}

// resumption is one pause and its end.
type resumption struct {
	*stand
	l        runSpec
	rate     int
	written  float64 // rows a second
	deferred int     // rows when the destination came
	took     time.Duration
}

// run pauses and resumes. After direct delivery has come, all events must have come, in order.
func (t *resumption) run(ctx context.Context, open func(ctx context.Context) (*returning, error), bound time.Duration) (err error) {
	to, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	if err := execSQL(ctx, t.db, "TRUNCATE outbox"); err != nil {
		return err
	}
	first := t.nextRun()
	err = t.withRelay(to.config, func(relay *runner.Relay) error {
		if err := ready(ctx, relay); err != nil {
			return err
		}
		written, enough := make(chan error, 1), make(chan struct{})
		life, stop := context.WithCancel(ctx)
		defer stop()
		began, rows := time.Now(), 0
		go func() {
			var err error
			rows, err = t.pour(life, enough, first, t.l, t.rate)
			t.written = float64(rows) / time.Since(began).Seconds()
			written <- err
		}()
		if err := waitUntil(ctx, time.Now().Add(t.size.pause)); err != nil {
			return err
		}
		if err := t.awaitRetryRows(ctx, relay, 1); err != nil {
			return err
		}
		if t.deferred, err = t.retryRows(ctx); err != nil {
			return err
		}
		if err := to.make(ctx); err != nil {
			return err
		}
		if t.took, err = t.untilDirect(ctx, relay, bound); err != nil {
			return err
		}
		close(enough)
		if err := <-written; err != nil || t.took >= bound {
			return err
		}
		t.l.events = rows
		if _, err = watch(ctx, to, rows, alive(relay)); err != nil {
			return err
		}
		return t.awaitEmpty(ctx, relay)
	})
	if err != nil {
		return err
	}
	if t.took >= bound { // the rest could take an hour
		return t.resetSlot(ctx, to.config)
	}
	h, err := t.readTable(ctx, first, t.l)
	if err != nil {
		return err
	}
	return to.check(ctx, h)
}

// untilDirect is how long it takes until the retry table is empty and stays so, at most bound.
func (t *resumption) untilDirect(ctx context.Context, relay *runner.Relay, bound time.Duration) (time.Duration, error) {
	conn, err := pgx.Connect(ctx, t.db)
	if err != nil {
		return 0, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	began := time.Now()
	var empty time.Time // since when; zero: it is not
	for {
		var deferred bool
		asked := time.Now()
		if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM cdc_relay.retry)").Scan(&deferred); err != nil {
			return 0, fmt.Errorf("ask for deferred rows: %w", err)
		}
		switch {
		case deferred && asked.Sub(began) >= bound:
			return bound, nil
		case deferred:
			empty = time.Time{}
		case empty.IsZero():
			empty = asked
		case asked.Sub(empty) >= resumedFor:
			return empty.Sub(began), nil
		}
		if err := alive(relay)(); err != nil {
			return 0, err
		}
		// The question may read the pages of many deleted rows: a tenth of the time at most.
		if err := waitUntil(ctx, time.Now().Add(max(10*watchEvery, 9*time.Since(asked)))); err != nil {
			return 0, err
		}
	}
}

// pour commits the events of l in transactions of rowsPerTx rows, at so many a second (0: as fast
// as it can), until it is enough or all are committed. It returns how many events there are then.
// The keys take turns.
func (s *stand) pour(ctx context.Context, enough <-chan struct{}, first int64, l runSpec, rate int) (n int, err error) {
	conn, err := pgx.Connect(ctx, s.db)
	if err != nil {
		return 0, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	const sql = `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT lpad(to_hex($1::bigint + i), 32, '0')::uuid, 'order', 'customer-' || i % $4, 'created',
			('{"n": ' || i || ', "pad": "' || repeat('x', $5 - 18 - length(i::text)) || '"}')::jsonb
		FROM generate_series($2::bigint, $3::bigint) i`
	start := time.Now()
	for i := 0; i < l.events; i += l.rowsPerTx {
		select {
		case <-enough:
			return i, nil
		default:
		}
		if rate > 0 {
			err = waitUntil(ctx, start.Add(time.Duration(i)*time.Second/time.Duration(rate)))
		}
		if err != nil {
			return i, err
		}
		if _, err := conn.Exec(ctx, sql, first, i, min(i+l.rowsPerTx, l.events)-1, l.keys.count, l.bytes()); err != nil {
			return i, fmt.Errorf("insert: %w", err)
		}
	}
	return l.events, nil
}
