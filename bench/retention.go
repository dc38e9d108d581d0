// Retention: what it costs live delivery, and whether the table keeps its size.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

const (
	// retainedWarm is how long rows come before a turn counts: until the first passes have ended
	// and the table has its size.
	retainedWarm = 15 * time.Second
	// retainedLate is how long at most a row waits for its deletion: passes are 5 s apart.
	retainedLate = 10 * time.Second
	// retainedRate is the rows per second. At the rate of the row live, broker, database and
	// consumer have two processors at work for two thirds of the time: a p99 is the length of a
	// queue then, and shows any work many times over.
	retainedRate = 250
)

// retained is what the turns with retention, or those without, have found besides their p99.
type retained struct {
	config  string
	p50     []float64
	rows    int       // that came while it was measured
	deleted int       // rows, meanwhile
	sizes   []float64 // of the table with its indexes, each second of the second half of a turn
}

// retention measures live delivery with and without retention, in turns. It deletes all the time,
// as fast as rows come. Vacuum works, with the settings that docs/outbox.md recommends, but starts
// at 10 s of rows, so that each turn has some.
func (s *rabbitStand) retention(ctx context.Context) (_ []result, err error) {
	if err := execSQL(ctx, s.db, "ALTER SYSTEM SET autovacuum = on", "ALTER SYSTEM SET autovacuum_naptime = '5s'", "SELECT pg_reload_conf()",
		`ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2500, autovacuum_vacuum_cost_delay = 0,
			autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 1000000, vacuum_truncate = off)`); err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, execSQL(context.WithoutCancel(ctx), s.db, "ALTER TABLE outbox RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay, autovacuum_vacuum_insert_scale_factor, autovacuum_vacuum_insert_threshold, vacuum_truncate)",
			"ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()", "TRUNCATE outbox"))
	}()
	l, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.end()) }()
	var without retained
	with := retained{config: "retention:\n  mode: delete\n  keep: 1s\n"}
	turn := func(found *retained) side {
		return func(ctx context.Context) (p99 float64, err error) {
			if err := execSQL(ctx, s.db, "TRUNCATE outbox, cdc_relay.sent", "CHECKPOINT"); err != nil {
				return 0, err
			}
			err = s.withRelay(l.config+found.config, func(relay *runner.Relay) (err error) {
				if err = ready(ctx, relay); err == nil {
					p99, err = s.retainedTurn(ctx, l, found)
				}
				return err
			})
			return p99, err
		}
	}
	turns, err := s.turns(ctx, s.size.pairs, turn(&without), turn(&with), milliseconds)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("retention, live %s/s for %s", thousands(retainedRate), s.size.retained)
	r := turns.result(what+": relay p99 ÷ without, commit to consumer", "×", milliseconds)
	r.must, r.aim = 1.1, 1
	r.note = fmt.Sprintf("p50 %s, without %s; %d of %d rows deleted meanwhile", milliseconds(median(with.p50)), milliseconds(median(without.p50)), with.deleted, with.rows)
	return []result{r, {
		name: what + ": largest size of the table ÷ median, second half", ours: mebibytes(slices.Max(with.sizes)), base: mebibytes(median(with.sizes)), baseMedian: median(with.sizes),
		value: slices.Max(with.sizes) / median(with.sizes), unit: "×", must: 1.1, pairs: len(with.p50),
		note: fmt.Sprintf("without it has %s in the end", mebibytes(slices.Max(without.sizes))),
	}}, nil
}

// retainedTurn is one turn. It fails unless rows were deleted as fast as they came.
func (s *rabbitStand) retainedTurn(ctx context.Context, l *listener, found *retained) (p99 float64, err error) {
	if _, err := l.hear(ctx, &phase{db: s.db, first: s.nextRun(), rate: retainedRate, length: retainedWarm}); err != nil {
		return 0, err
	}
	const count = "SELECT count(*) FROM outbox"
	var before, after int
	if err := s.ask(ctx, &before, count); err != nil {
		return 0, err
	}
	p := &phase{db: s.db, first: s.nextRun(), rate: retainedRate, length: s.size.retained}
	var took []float64
	heard := make(chan error, 1)
	go func() {
		var err error
		took, err = l.hear(ctx, p)
		heard <- err
	}()
	for began := time.Now(); ; {
		select {
		case err := <-heard:
			if err = errors.Join(err, s.ask(ctx, &after, count)); err != nil {
				return 0, err
			}
			rows := len(p.at)
			deleted := before + rows - after
			if late := int(retainedLate.Seconds() * retainedRate); found.config != "" && deleted < max(1, rows-late) {
				return 0, fmt.Errorf("retention has deleted %d rows while %d came", deleted, rows)
			}
			found.p50, found.rows, found.deleted = append(found.p50, median(took)), found.rows+rows, found.deleted+deleted
			return quantile(took, 0.99), nil
		case <-time.After(time.Second):
		}
		var size int64
		if err := s.ask(ctx, &size, "SELECT pg_total_relation_size('outbox')"); err != nil {
			return 0, errors.Join(err, <-heard)
		}
		if time.Since(began) > p.length/2 {
			found.sizes = append(found.sizes, float64(size))
		}
	}
}
