// Throughput: a run of the relay on a backlog, counted where the broker keeps it.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// ran is what a throughput run found.
type ran struct {
	rate float64 // messages per second at the broker; of a bare read, rows per second at the reader
	cost cost    // per event
	peak int64   // of the relay, bytes resident
}

func (r ran) note() string {
	return fmt.Sprintf("%s, peak %s", r.cost.relay(), mebibytes(float64(r.peak)))
}

// place is where the broker keeps the messages of a run: a queue, or a topic.
type place interface {
	depth() (int, error)                         // messages there, as the broker counts them
	check(ctx context.Context, h *history) error // reads them all, and compares
	close() error                                // removes it
}

const (
	watchEvery = 5 * time.Millisecond
	patience   = 60 * time.Second // without a new message the run has failed
)

// watch follows the depth until it is n and returns the messages per second from the first poll
// that found some to the poll that found all. failed ends it early.
func watch(ctx context.Context, at place, n int, failed func() error) (rate float64, err error) {
	return watchFor(ctx, patience, at, n, failed)
}

// watchFor is watch with another patience.
func watchFor(ctx context.Context, patience time.Duration, at place, n int, failed func() error) (rate float64, err error) {
	var began time.Time
	first := 0
	err = await(ctx, watchEvery, patience, fmt.Sprintf("%d messages", n), failed, func() (count int, done bool, err error) {
		count, err = at.depth()
		now := time.Now()
		if first == 0 && count > 0 {
			began, first = now, count
		}
		rate = float64(count-first) / max(now.Sub(began).Seconds(), watchEvery.Seconds())
		return count, count >= n, err
	})
	return rate, err
}

// await asks until done. It gives up when failed has an error, or when the progress has not changed
// for as long as patience.
func await(ctx context.Context, every, patience time.Duration, what string, failed func() error, look func() (progress int, done bool, err error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	last, moved := -1, time.Now()
	for {
		progress, done, err := look()
		if err != nil || done {
			return err
		}
		if progress != last {
			last, moved = progress, time.Now()
		}
		if err := failed(); err != nil {
			return err
		}
		if time.Since(moved) > patience {
			return fmt.Errorf("waited for %s: %d, and nothing changed for %s", what, progress, patience)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// relayRun starts the relay on the events of l, which are committed and begin with first, follows
// the place that its configuration names, and checks the history.
func (s *stand) relayRun(ctx context.Context, l runSpec, first int64, config string, to place) (ran, error) {
	broker, err := cpuTime(s.brokerPid)
	if err != nil {
		return ran{}, err
	}
	var found ran
	err = s.withRelay(config, func(relay *runner.Relay) error {
		rate, err := watch(ctx, to, l.events, alive(relay))
		if err == nil {
			found, err = s.looked(ctx, relay, l.events)
		}
		found.rate = rate
		return err
	})
	if err != nil {
		return ran{}, err
	}
	found.cost.broker -= broker / time.Duration(l.events)
	h, err := s.readTable(ctx, first, l)
	if err != nil {
		return ran{}, err
	}
	return found, to.check(ctx, h)
}

// looked is what can be seen of a relay that has relayed so many events; the broker's cost counts
// from its start.
func (s *stand) looked(ctx context.Context, relay *runner.Relay, events int) (found ran, err error) {
	c, err := s.cost(relay.Pid())
	if err != nil {
		return found, err
	}
	if c.walsender, err = s.walsenderTime(ctx); err != nil {
		return found, err
	}
	found.cost = c.per(events)
	found.peak, err = relay.PeakRSS()
	return found, err
}

// sum adds up the costs of runs, and keeps the largest peak.
type sum struct {
	ran
	runs int
}

func (s *sum) add(r ran) {
	s.cost = s.cost.plus(r.cost)
	s.peak = max(s.peak, r.peak)
	s.runs++
}

func (s *sum) mean() ran { return ran{cost: s.cost.per(s.runs), peak: s.peak} }
