// The runs: rows that wait for a program, and rows that come while it streams.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// outcome is what a run has shown. What it does not measure is 0.
type outcome struct {
	rate     float64 // events a second
	cpu      float64 // µs of processor time per event
	peak     float64 // bytes resident
	start    float64 // seconds from the start of the process to the first event
	p50, p99 float64 // seconds from COMMIT to arrival
	// of live rows, those after the first part; of a drain, from the first event on
	warmCPU, warmP99 float64

	lost  float64 // events that never came
	gap   float64 // seconds without an event
	twice float64 // events that came a second time
}

// run is one run of one side.
type run func(context.Context) (outcome, error)

const (
	watchEvery = 5 * time.Millisecond
	// patience is how long nothing may change. Java starts slowly where others work, too.
	patience = 4 * time.Minute
)

// watch waits until n messages are at a place. failed ends it early.
func watch(ctx context.Context, at place, n int, failed func() error) error {
	return await(ctx, watchEvery, fmt.Sprintf("%d messages", n), func() (have int, done bool, err error) {
		if err := failed(); err != nil {
			return 0, false, err
		}
		have, err = at.depth()
		return have, have >= n, err
	})
}

// await asks until done. It gives up when what there is has not changed for as long as patience.
func await(ctx context.Context, every time.Duration, what string, look func() (have int, done bool, err error)) error {
	last, moved := -1, time.Now()
	for {
		have, done, err := look()
		if err != nil || done {
			return err
		}
		if have != last {
			last, moved = have, time.Now()
		}
		if time.Since(moved) > patience {
			return fmt.Errorf("waited for %s: %d, and nothing changed for %s", what, have, patience)
		}
		if err := waitUntil(ctx, time.Now().Add(every)); err != nil {
			return err
		}
	}
}

// waitUntil returns at the moment, or with ctx's error.
func waitUntil(ctx context.Context, at time.Time) error {
	select {
	case <-time.After(time.Until(at)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// at has do use a place on a fresh database, with the slot of a program. Afterwards all that has
// arrived there is compared with the table.
func (s *stand) at(ctx context.Context, p program, l load, h *history, do func(to place) error) error {
	return s.fresh(ctx, func() (err error) {
		if err := p.prepare(ctx, s, l); err != nil {
			return err
		}
		to, err := s.broker.place(ctx, s, l)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, to.close()) }()
		if l.heard {
			if err := to.consume(ctx); err != nil {
				return err
			}
		}
		if err := do(to); err != nil {
			return err
		}
		if err := to.settle(ctx); err != nil {
			return err
		}
		all, err := to.arrived(0)
		if err != nil || h == nil {
			return err
		}
		return s.compareWithTable(ctx, h, all)
	})
}

// drain has a program publish rows that wait for it.
func (s *stand) drain(p program, l load) run {
	return func(ctx context.Context) (found outcome, err error) {
		err = s.at(ctx, p, l, historyOf(p), func(to place) error {
			if _, err := s.fill(ctx, l); err != nil {
				return err
			}
			began := time.Now()
			return s.with(ctx, p, to, l, func(r process) (err error) {
				if found, err = follow(ctx, to, l.events, r, began); err == nil {
					found.peak, err = peakRSS(r.Pid())
				}
				return err
			})
		})
		return found, err
	}
}

// historyOf is what a program's messages must be.
func historyOf(p program) *history {
	r, ok := p.(relay)
	return &history{anyShape: ok && r.earlier}
}

// follow watches a drain: how fast it is from the first poll that found some events to the poll
// that found all, and what it costs, from the start of the process and between these two.
func follow(ctx context.Context, to place, n int, r process, began time.Time) (found outcome, err error) {
	if err := watch(ctx, to, 1, alive(r)); err != nil {
		return found, err
	}
	first := time.Now()
	count, err := to.depth()
	if err != nil {
		return found, err
	}
	before, err := cpuTime(r.Pid())
	if err != nil {
		return found, err
	}
	if err := watch(ctx, to, n, alive(r)); err != nil {
		return found, err
	}
	took := time.Since(first)
	used, err := cpuTime(r.Pid())
	rest := float64(max(n-count, 1)) // a smoke run may be over at the first poll
	return outcome{
		start: first.Sub(began).Seconds(), rate: rest / max(took.Seconds(), watchEvery.Seconds()),
		cpu: used / float64(n), warmCPU: max(used-before, 1) / rest,
	}, err
}

// hear has a program publish rows that come while it streams. What comes after the first part of
// the time counts by itself, too.
func (s *stand) hear(p program, l load, part, length time.Duration) run {
	return func(ctx context.Context) (found outcome, err error) {
		part, length := s.length(part), s.length(length)
		err = s.live(ctx, p, l, historyOf(p), length, func(to place, r process, live *phase, written <-chan error) error {
			if of, is := p.(relay); is && of.tabs > 0 {
				stop, err := r.(relayProcess).listen(ctx, of.tabs)
				defer stop()
				if err != nil {
					return err
				}
			}
			err := waitUntil(ctx, time.Now().Add(part))
			before, cpuErr := cpuTime(r.Pid())
			if err = errors.Join(err, cpuErr, <-written); err != nil {
				return err
			}
			rows := len(live.at)
			if err := watch(ctx, to, rows, alive(r)); err != nil {
				return err
			}
			after, err := cpuTime(r.Pid())
			if err != nil {
				return err
			}
			arrived, err := to.arrived(0)
			all, warm := live.latencies(arrived, min(time.Second, length/4)), live.latencies(arrived, part)
			found = outcome{
				p50: median(all), p99: quantile(all, 0.99), warmP99: quantile(warm, 0.99),
				cpu: after / float64(rows), warmCPU: (after - before) / ((length - part).Seconds() * liveRate),
			}
			return err
		})
		return found, err
	}
}

// live has do look on while rows come and a program publishes them to a place that is consumed.
func (s *stand) live(ctx context.Context, p program, l load, h *history, length time.Duration, do func(to place, r process, live *phase, written <-chan error) error) error {
	l.heard = true
	return s.at(ctx, p, l, h, func(to place) error {
		return s.with(ctx, p, to, l, func(r process) error {
			if err := r.WaitStreaming(ctx); err != nil {
				return err
			}
			live := s.phase(l, length)
			written := make(chan error, 1)
			go func() { written <- live.run(ctx, nil) }()
			return do(to, r, live, written)
		})
	})
}

// unbind takes a queue's binding away while rows come, and gives it back: how many are lost for
// ever. Nothing more is awaited when rows that were committed later have come and nothing else has
// for a while.
func (s *stand) unbind(p program, l load) run {
	return func(ctx context.Context) (found outcome, err error) {
		away, quiet := s.length(unboundFor), s.length(5*time.Second)
		err = s.live(ctx, p, l, nil, 2*away, func(to place, r process, live *phase, written <-chan error) error {
			q := to.(*queue) // this is on RabbitMQ alone
			began := time.Now()
			err := errors.Join(waitUntil(ctx, began.Add(away/2)), q.unbind())
			err = errors.Join(err, waitUntil(ctx, began.Add(away*3/2)), q.bind())
			if err = errors.Join(err, <-written); err != nil {
				return err
			}
			last := s.phase(l, time.Second)
			if err := last.run(ctx, nil); err != nil {
				return err
			}
			moved, seen := time.Now(), 0
			return await(ctx, 10*watchEvery, "the rows committed in the end", func() (have int, done bool, err error) {
				arrived, err := to.arrived(0)
				if have = len(arrived); have > seen {
					moved, seen = time.Now(), have
				}
				found.lost = float64(live.lost(arrived))
				done = last.lost(arrived) == 0 && (found.lost == 0 || time.Since(moved) > quiet)
				return have, done, errors.Join(err, alive(r)())
			})
		})
		return found, err
	}
}

// unboundFor is how long the binding is away.
const unboundFor = 6 * time.Second

// lost is how many rows of a phase have not come.
func (p *phase) lost(arrived []arrival) int {
	seen := map[int64]bool{}
	for _, a := range arrived {
		if i := a.n - p.first; i >= 0 && i < int64(len(p.at)) {
			seen[i] = true
		}
	}
	return len(p.at) - len(seen)
}

// empty has a consumer take messages that wait for it: this process, with or without an inbox.
func (s *stand) empty(l load) run {
	return func(ctx context.Context) (found outcome, err error) {
		p := s.relay()
		err = s.at(ctx, p, l, historyOf(p), func(to place) error {
			if _, err := s.fill(ctx, l); err != nil {
				return err
			}
			err := s.with(ctx, p, to, l, func(r process) error { return watch(ctx, to, l.events, alive(r)) })
			if err != nil {
				return err
			}
			before, err := cpuTime(os.Getpid())
			if err == nil {
				err = to.consume(ctx)
			}
			if err == nil {
				err = watch(ctx, to, l.events, alive())
			}
			if err != nil {
				return err
			}
			after, err := cpuTime(os.Getpid())
			if err != nil {
				return err
			}
			all, err := to.arrived(0)
			found.rate = float64(l.events-1) / (float64(all[l.events-1].at-all[0].at) / 1e9)
			found.cpu = (after - before) / float64(l.events)
			return err
		})
		return found, err
	}
}
