// Throughput on RabbitMQ: a run of the bare publisher, and it and the relay in turns.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
)

// bareRun publishes the events of l over as many connections as the relay has.
func (s *rabbitStand) bareRun(ctx context.Context, l runSpec) (_ ran, err error) {
	q, err := s.newQueue(l.queue)
	if err != nil {
		return ran{}, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	var publishers []*publisher
	defer func() { closeAll(publishers) }()
	for range l.connections() {
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
	rate, err := watch(ctx, q, l.events, func() error {
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

// relayBacklog commits the events of l and has the relay publish them to a new queue.
func (s *rabbitStand) relayBacklog(ctx context.Context, l runSpec) (_ ran, err error) {
	first, err := s.fill(ctx, l)
	if err != nil {
		return ran{}, err
	}
	q, err := s.newQueue(l.queue)
	if err != nil {
		return ran{}, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	return s.relayRun(ctx, l, first, s.config(l), q)
}

// bareRate is the best rate of some runs of the bare publisher.
func (s *rabbitStand) bareRate(ctx context.Context, l runSpec) (best float64, err error) {
	for range s.size.windows {
		r, err := s.bareRun(ctx, l)
		if err != nil {
			return 0, err
		}
		s.say("    bare publisher, %d connections: %s", l.connections(), perSecond(r.rate))
		best = max(best, r.rate)
	}
	return best, nil
}

// compare has the bare publisher and the relay take turns at l.
func (s *rabbitStand) compare(ctx context.Context, name string, l runSpec) (result, error) {
	var base, ours sum
	p, err := s.turns(ctx, s.size.pairs, func(ctx context.Context) (float64, error) {
		r, err := s.bareRun(ctx, l)
		base.add(r)
		return r.rate, err
	}, func(ctx context.Context) (float64, error) {
		r, err := s.relayBacklog(ctx, l)
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
