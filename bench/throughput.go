// Throughput: a run of the relay on a backlog, counted where the broker keeps it.
package main

import (
	"context"
	"errors"
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
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var first struct {
		at    time.Time
		count int
	}
	last, moved := 0, time.Now()
	for {
		count, err := at.depth()
		if err != nil {
			return 0, err
		}
		now := time.Now()
		if count != last {
			last, moved = count, now
		}
		if first.count == 0 && count > 0 {
			first.at, first.count = now, count
		}
		if count >= n {
			return float64(count-first.count) / max(now.Sub(first.at).Seconds(), watchEvery.Seconds()), nil
		}
		if err := failed(); err != nil {
			return 0, err
		}
		if now.Sub(moved) > patience {
			return 0, fmt.Errorf("%d of %d messages have arrived, and no more came for %s", count, n, patience)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
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
	relay, err := s.startRelay(config)
	if err != nil {
		return ran{}, err
	}
	rate, err := watch(ctx, to, l.events, func() error { return alive(relay) })
	if err != nil {
		return ran{}, errors.Join(fmt.Errorf("%w: %s", err, relay.Log()), relay.Kill())
	}
	found, err := s.looked(ctx, relay, l.events)
	if err != nil {
		return ran{}, errors.Join(err, relay.Kill())
	}
	found.rate = rate
	found.cost.broker -= broker / time.Duration(l.events)
	if err := s.stopRelay(relay); err != nil {
		return ran{}, err
	}
	h, err := s.readTable(ctx, first, l)
	if err != nil {
		return ran{}, err
	}
	h.traced = s.watch != nil
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
