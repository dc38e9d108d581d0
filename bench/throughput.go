// Throughput: a run of the bare publisher, a run of the relay on a backlog, and the two in turns.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ran is what a throughput run found.
type ran struct {
	rate float64       // messages per second at the queue
	cpu  time.Duration // of the relay, per event
	peak int64         // of the relay, bytes resident
}

func (r ran) note() string {
	return fmt.Sprintf("relay: %.1f µs CPU per event, peak %s", float64(r.cpu.Nanoseconds())/1e3, mebibytes(float64(r.peak)))
}

// bareRun publishes the events of l over l.connections connections.
func (s *stand) bareRun(ctx context.Context, l load) (_ ran, err error) {
	q, err := s.newQueue(l.queue)
	if err != nil {
		return ran{}, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	publishers := make([]*publisher, l.connections)
	for i := range publishers {
		if publishers[i], err = dialPublisher(s.brokerURL(l.far), bareWindow, true); err != nil {
			return ran{}, err
		}
		defer publishers[i].close()
	}
	keys, first := l.keys.draw(l.events), s.nextRun()
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
		for _, p := range publishers {
			p.close() // ends their waits
		}
	}
	all.Wait()
	select {
	case late := <-failures:
		err = errors.Join(err, late)
	default:
	}
	return ran{rate: rate}, err
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
	relay, err := s.startRelay(l)
	if err != nil {
		return ran{}, err
	}
	rate, err := q.watch(ctx, l.events, func() error { return alive(relay) })
	if err != nil {
		return ran{}, errors.Join(fmt.Errorf("%w: %s", err, relay.Log()), relay.Kill())
	}
	found := ran{rate: rate}
	if found.peak, err = relay.PeakRSS(); err != nil {
		return ran{}, err
	}
	cpu, err := cpuTime(relay.Pid())
	if err != nil {
		return ran{}, err
	}
	found.cpu = cpu / time.Duration(l.events)
	if err := s.stopRelay(relay); err != nil {
		return ran{}, err
	}
	return found, s.checkHistory(ctx, q, first, l.ordering)
}

// cpuTime is the time that a process has spent on a processor, user and system (proc(5); in hundredths of a second).
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])) // the 3rd and later ones
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
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
	var cpu, peak []float64
	base := func(ctx context.Context) (float64, error) {
		r, err := s.bareRun(ctx, l)
		return r.rate, err
	}
	ours := func(ctx context.Context) (float64, error) {
		r, err := s.relayRun(ctx, l)
		cpu, peak = append(cpu, float64(r.cpu)), append(peak, float64(r.peak))
		return r.rate, err
	}
	p, err := s.turns(ctx, base, ours, perSecond)
	if err != nil {
		return result{}, err
	}
	r := p.result(name, "×", perSecond)
	r.note = ran{cpu: time.Duration(median(cpu)), peak: int64(median(peak))}.note()
	return r, nil
}
