// Repeats: what consumers get twice when the relay dies, when its way to the broker breaks, and
// when it stops in order.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// repeats is one relay under live rows, which reaches the broker through a proxy.
type repeats struct {
	*stand
	load    load
	to      place
	rows    *phase
	running relayProcess

	read  int            // arrivals that are counted
	seen  map[int64]bool // rows that have arrived
	twice int            // arrivals of rows that had arrived before
}

// repeatTimes is how often each loss is measured.
const repeatTimes = 20

// repeatRows count, over one loss, the messages that arrive a second time.
func (s *stand) repeatRows() []row {
	of := func(name, title, short string, loss func(*repeats, context.Context) error) row {
		t := &repeats{stand: s, load: load{keys: 1000, payload: 200, partitions: 12, rate: 1500, heard: true, proxied: true}}
		return row{
			report: repeatsReport, name: name, title: title, pairs: repeatTimes, figures: figures{twiceFigure.as(short)},
			around: t.around, ours: t.over(func(ctx context.Context) error { return loss(t, ctx) }),
		}
	}
	killed := of("killed", "the relay is killed (SIGKILL) under 1,500/s and started again", "the relay is killed and started again", (*repeats).kill)
	cut := of("cut", "the connections to the broker are reset under 1,500/s", "the connections to the broker are reset", (*repeats).cut)
	stopped := of("stopped", "the relay is stopped (SIGTERM) under 1,500/s and started again", "the relay is stopped and started again", (*repeats).stop)
	stopped.figures[0] = stopped.figures[0].reach(0)
	if s.kind.sink == "kafka" {
		cut.figures[0] = cut.figures[0].reach(0)
	}
	return []row{killed, cut, stopped}
}

// around starts a relay and the rows, and in the end compares what has arrived with the table:
// nothing may be lost or out of order.
func (t *repeats) around(ctx context.Context, measure func() error) error {
	h := &history{repeats: true}
	err := t.at(ctx, t.relay(), t.load, h, func(to place) (err error) {
		t.to, t.read, t.seen, t.twice = to, 0, map[int64]bool{}, 0
		if err := t.start(ctx); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = fmt.Errorf("%w: %s", err, processes.Tail(t.running.Log()))
			}
			err = errors.Join(err, t.running.Kill())
		}()
		t.rows = t.phase(t.load, 10*time.Minute)
		enough, written := make(chan struct{}), make(chan error, 1)
		go func() { written <- t.rows.run(ctx, enough) }()
		err = measure()
		close(enough)
		if err = errors.Join(err, <-written); err != nil {
			return err
		}
		return t.allArrived(ctx, to)
	})
	t.say("    %s of %s events came twice", thousands(h.twice), thousands(h.count))
	return err
}

func (t *repeats) start(ctx context.Context) error {
	r, err := t.relay().start(ctx, t.stand, t.to, t.load)
	if err != nil {
		return err
	}
	t.running = r.(relayProcess) // a relay's process is one
	return t.running.WaitStreaming(ctx)
}

// over loses something at any moment of half a second, while events flow, and counts what arrives
// twice until all rows have come that were committed in the half second after the loss.
func (t *repeats) over(loss func(context.Context) error) run {
	return func(ctx context.Context) (found outcome, err error) {
		if err := t.flow(ctx); err != nil {
			return found, err
		}
		if err := waitUntil(ctx, time.Now().Add(rand.N(500*time.Millisecond))); err != nil {
			return found, err
		}
		before := t.twice
		if err := loss(ctx); err != nil {
			return found, err
		}
		err = t.flow(ctx)
		found.twice = float64(t.twice - before)
		return found, err
	}
}

// flow waits until each row of the next half second has come.
func (t *repeats) flow(ctx context.Context) error {
	if err := waitUntil(ctx, time.Now().Add(500*time.Millisecond)); err != nil {
		return err
	}
	last, have := t.rows.committed(), 0
	return await(ctx, 10*watchEvery, "events to flow", func() (int, bool, error) {
		if err := t.count(); err != nil {
			return 0, false, err
		}
		for have < last && t.seen[t.rows.first+int64(have)] {
			have++
		}
		return have, have == last, alive(t.running)()
	})
}

// count counts what has arrived since the last call.
func (t *repeats) count() error {
	arrived, err := t.to.arrived(t.read)
	for _, a := range arrived {
		if t.seen[a.n] {
			t.twice++
		}
		t.seen[a.n] = true
	}
	t.read += len(arrived)
	return err
}

func (t *repeats) kill(ctx context.Context) error {
	return errors.Join(t.running.Kill(), t.start(ctx))
}

func (t *repeats) stop(ctx context.Context) error {
	if err := t.running.Stop(ctx); err != nil {
		return err
	}
	return t.start(ctx)
}

func (t *repeats) cut(context.Context) error {
	t.to.way().Reset()
	return nil
}
