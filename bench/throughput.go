// Throughput: a run of the bare publisher, a run of the relay on a backlog, and the two in turns.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// ran is what a throughput run found.
type ran struct {
	rate float64 // messages per second at the queue
	cost cost    // per event
	peak int64   // of the relay, bytes resident
}

func (r ran) note() string {
	return fmt.Sprintf("%s, peak %s", r.cost.relay(), mebibytes(float64(r.peak)))
}

// bareRun publishes the events of l over l.connections connections.
func (s *stand) bareRun(ctx context.Context, l load) (_ ran, err error) {
	q, err := s.newQueue(l.queue)
	if err != nil {
		return ran{}, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	var publishers []*publisher
	defer func() { closeAll(publishers) }()
	for range l.connections {
		p, err := dialPublisher(s.brokerURL(l.far), bareWindow, true)
		if err != nil {
			return ran{}, err
		}
		publishers = append(publishers, p)
	}
	keys, first := l.keys.draw(l.events), s.nextRun()
	before, err := s.cost(os.Getpid())
	if err != nil {
		return ran{}, err
	}
	failures := make(chan error, len(publishers))
	var all sync.WaitGroup
	for i, p := range publishers {
		all.Go(func() {
			if err := p.publish(ctx, first, keys, i, len(publishers)); err != nil {
				failures <- err
			}
		})
	}
	rate, err := q.watch(ctx, l.events, func() error {
		select {
		case err := <-failures:
			return err
		default:
			return nil
		}
	})
	if err != nil {
		closeAll(publishers) // ends their waits
	}
	all.Wait()
	select {
	case late := <-failures:
		err = errors.Join(err, late)
	default:
	}
	if err != nil {
		return ran{}, err
	}
	after, err := s.cost(os.Getpid())
	return ran{rate: rate, cost: after.minus(before).per(l.events)}, err
}

func closeAll(publishers []*publisher) {
	for _, p := range publishers {
		p.close()
	}
}

// relayRun commits the events of l, starts the relay, follows the queue, and checks the history.
func (s *stand) relayRun(ctx context.Context, l load) (_ ran, err error) {
	first, err := s.fill(ctx, l)
	if err != nil {
		return ran{}, err
	}
	q, err := s.newQueue(l.queue)
	if err != nil {
		return ran{}, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	broker, err := cpuTime(s.brokerPid)
	if err != nil {
		return ran{}, err
	}
	relay, err := s.startRelay(l)
	if err != nil {
		return ran{}, err
	}
	rate, err := q.watch(ctx, l.events, func() error { return alive(relay) })
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
	return found, s.checkHistory(ctx, q, first, l.ordering)
}

// looked is what can be seen of a relay that has relayed so many events; the broker's cost counts from its start.
func (s *stand) looked(ctx context.Context, relay *devenv.Relay, events int) (found ran, err error) {
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

// bestConnections is the bare publisher's best of 1, 2 and 4 connections, each measured so many times, and its rate.
func (s *stand) bestConnections(ctx context.Context, l load, times int) (best int, rates map[int]float64, err error) {
	rates = map[int]float64{}
	for _, n := range []int{1, 2, 4} {
		l.connections = n
		for range times {
			r, err := s.bareRun(ctx, l)
			if err != nil {
				return 0, nil, err
			}
			s.say("    bare publisher, %d connections: %s", n, perSecond(r.rate))
			rates[n] = max(rates[n], r.rate)
		}
		if rates[n] > rates[best] {
			best = n
		}
	}
	return best, rates, nil
}

// compare has the bare publisher and the relay take turns at l.
func (s *stand) compare(ctx context.Context, name string, l load) (result, error) {
	var base, ours sum
	p, err := s.turns(ctx, func(ctx context.Context) (float64, error) {
		r, err := s.bareRun(ctx, l)
		base.add(r)
		return r.rate, err
	}, func(ctx context.Context) (float64, error) {
		r, err := s.relayRun(ctx, l)
		ours.add(r)
		return r.rate, err
	}, perSecond)
	if err != nil {
		return result{}, err
	}
	r := p.result(name, "×", perSecond)
	r.note = fmt.Sprintf("%d events; %s; %s", l.events, ours.mean().note(), base.mean().cost.bare())
	return r, nil
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
