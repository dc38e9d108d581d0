// Retention: what it costs the writers, and whether the table keeps its size.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// retainedRate is the rows per second of the row about retention.
const retainedRate = 5000

// retained is one run of it.
type retained struct {
	// of a transaction with one row, as its writer sees it, in seconds; without the first tenth
	p99     float64
	written float64   // rows per second
	sizes   []float64 // of the table with its indexes, once a second
	left    int       // rows in the end
}

// retention has writers commit rows with retention and without, in turns: the turns without are
// also compared with each other. Vacuum works, with the settings that docs/outbox.md recommends.
func (s *rabbitStand) retention(ctx context.Context) (_ []result, err error) {
	if err := execSQL(ctx, s.db, "ALTER SYSTEM SET autovacuum = on", "ALTER SYSTEM SET autovacuum_naptime = '5s'", "SELECT pg_reload_conf()",
		`ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0,
			autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 1000000, vacuum_truncate = off)`); err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, execSQL(context.WithoutCancel(ctx), s.db, "ALTER TABLE outbox RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay, autovacuum_vacuum_insert_scale_factor, autovacuum_vacuum_insert_threshold, vacuum_truncate)",
			"ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()", "TRUNCATE outbox"))
	}()
	// What the broker has is of no interest, and is thrown away.
	if _, err := s.rabbit.Ctl(ctx, "set_policy", "bench-short", "^"+queueName+"$", `{"max-length": 1000}`); err != nil {
		return nil, err
	}
	defer func() {
		_, cleared := s.rabbit.Ctl(context.WithoutCancel(ctx), "clear_policy", "bench-short")
		err = errors.Join(err, cleared)
	}()
	keep := max(5*time.Second, s.size.retained/20).Round(time.Second)
	without, with := "", fmt.Sprintf("retention:\n  mode: delete\n  keep: %s\n", keep)
	var runs [3]retained
	for i, config := range []string{without, with, without} {
		if runs[i], err = s.retainedRun(ctx, config); err != nil {
			return nil, err
		}
		s.say("    p99 %s, %.0f rows/s, %d rows left", milliseconds(runs[i].p99), runs[i].written, runs[i].left)
	}
	base := (runs[0].p99 + runs[2].p99) / 2
	half := runs[1].sizes[len(runs[1].sizes)/2:]
	without2 := runs[2].sizes
	what := fmt.Sprintf("%s rows/s for %s", thousands(retainedRate), s.size.retained)
	return []result{
		{
			name: "retention, " + what + ": p99 of a writer's transaction ÷ without", ours: milliseconds(runs[1].p99), base: milliseconds(base), baseMedian: base,
			value: runs[1].p99 / base, unit: "×", must: 1.1, once: true,
			note: fmt.Sprintf("`keep: %s`; without twice: %s and %s", keep, milliseconds(runs[0].p99), milliseconds(runs[2].p99)),
		},
		{
			name: "retention, " + what + ": largest size of the table ÷ median, second half", ours: mebibytes(slices.Max(half)), base: mebibytes(median(half)), baseMedian: median(half),
			value: slices.Max(half) / median(half), unit: "×", must: 1.1, once: true,
			note: fmt.Sprintf("without it has %s in the end", mebibytes(without2[len(without2)-1])),
		},
	}, nil
}

// retainedRun is one turn.
func (s *rabbitStand) retainedRun(ctx context.Context, config string) (found retained, err error) {
	if err := execSQL(ctx, s.db, "TRUNCATE outbox", "CHECKPOINT"); err != nil {
		return found, err
	}
	q, err := s.newQueue("classic")
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	err = s.withRelay(s.config(runSpec{ordering: "key"})+config, func(relay *runner.Relay) error {
		if err := ready(ctx, relay); err != nil {
			return err
		}
		p := &phase{db: s.db, first: s.nextRun(), rate: retainedRate, length: s.size.retained, timed: true}
		written := make(chan error, 1)
		go func() {
			_, err := p.run(ctx)
			written <- err
		}()
		for {
			var size int64
			if err := s.ask(ctx, &size, "SELECT pg_total_relation_size('outbox')"); err != nil {
				return errors.Join(err, <-written)
			}
			found.sizes = append(found.sizes, float64(size))
			select {
			case err := <-written:
				if err != nil {
					return err
				}
				found.p99, found.written = quantile(p.took[len(p.took)/10:], 0.99), p.written()
				return errors.Join(s.ask(ctx, &found.left, "SELECT count(*) FROM outbox"), s.drained(ctx, relay))
			case <-time.After(time.Second):
			}
		}
	})
	return found, err
}

// drained waits until the relay has delivered everything: the next turn begins with none of it.
func (s *rabbitStand) drained(ctx context.Context, relay *runner.Relay) error {
	for deadline := time.Now().Add(patience); ; {
		var behind int64
		if err := s.ask(ctx, &behind, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint FROM pg_replication_slots WHERE slot_name = 'bench'"); err != nil {
			return err
		}
		if behind < 1<<20 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the relay is %d bytes behind", behind)
		}
		if err := errors.Join(alive(relay)(), waitUntil(ctx, time.Now().Add(time.Second))); err != nil {
			return err
		}
	}
}
