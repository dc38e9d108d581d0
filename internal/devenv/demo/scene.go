package main

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"
)

// scene is what the acts say about themselves; the rest of a view is measured.
type scene struct {
	mu         sync.Mutex
	phase      phase
	now        string
	states     map[string]string // of the actors, until they can be asked
	live       bool              // they can
	ordersDone bool
}

func (sc *scene) set(change func(*scene)) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	change(sc)
}

// say adds a line that stays.
func (s *stage) say(text string) { s.out.say(time.Since(s.began), text) }

// tell changes the sentence about what happens now.
func (s *stage) tell(now string) { s.scene.set(func(sc *scene) { sc.now = now }) }

// enter begins a phase.
func (s *stage) enter(p phase, now string) {
	s.scene.set(func(sc *scene) {
		sc.phase, sc.now = p, now
		if sc.states == nil {
			sc.states = map[string]string{
				ordersName: "closed", postgresName: "starting", relayName: "building", brokerName: "starting", consumerName: "waits",
			}
		}
	})
}

func (s *stage) setState(actor, state string) {
	s.scene.set(func(sc *scene) { sc.states[actor] = state })
}

// ready says that a server is up or the relay is built, and what is still being waited for.
func (s *stage) ready(who string) {
	s.scene.set(func(sc *scene) {
		sc.states[who] = "up"
		if who == relayName {
			sc.states[who] = "built"
		}
		var left []string
		for _, w := range []struct{ who, state, why string }{
			{postgresName, "starting", "PostgreSQL makes a new database cluster"},
			{brokerName, "starting", s.cast.broker.words().name + " takes some seconds to start"},
			{relayName, "building", "cdc-relay is compiled"},
		} {
			if sc.states[w.who] == w.state {
				left = append(left, w.why)
			}
		}
		sc.now = strings.Join(left, ", ") + "."
	})
}

// goLive lets the view read from cast, work and probe, which are not changed any more.
func (s *stage) goLive() { s.scene.set(func(sc *scene) { sc.live = true }) }

const (
	drawEvery  = 100 * time.Millisecond
	trailEvery = 500 * time.Millisecond // at least: a value is as long as its samples are apart
)

// draw shows the view until ctx ends, and then a last time.
func (s *stage) draw(ctx context.Context) {
	d := drawing{stage: s}
	s.out.show(d.view())
	for every(ctx, drawEvery) {
		s.out.show(d.view())
	}
	s.out.show(d.view())
}

// drawing gathers views. It belongs to one goroutine.
type drawing struct {
	stage *stage
	seen  int // deliveries that the meter knows

	before                                     sample // that the last values of the trails came from
	commits, deliveries, waiting, lags, parked trail
}

func (d *drawing) view() *view {
	s := d.stage
	v := &view{elapsed: time.Since(s.began), broker: s.cast.broker.words().name}
	var live, done bool
	s.scene.set(func(sc *scene) {
		v.phase, v.now, v.states = sc.phase, sc.now, maps.Clone(sc.states)
		live, done = sc.live, sc.ordersDone
	})
	if live {
		d.look(v, done)
	}
	v.commits, v.deliveries, v.waiting, v.lags, v.parked = d.commits, d.deliveries, d.waiting, d.lags, d.parked
	return v
}

// look fills in what can be asked now.
func (d *drawing) look(v *view, ordersDone bool) {
	s := d.stage
	arrived := s.cast.broker.consumer().DeliveriesFrom(d.seen)
	d.seen += len(arrived)
	s.meter.arrive(arrived)

	v.sample = s.probe.last()
	v.rolledBack = len(s.work.RolledBack())
	v.latency = s.meter.last()
	v.states[ordersName] = "writes"
	if ordersDone {
		v.states[ordersName] = "closed"
	}
	v.states[postgresName], v.states[relayName] = v.postgres, v.relay
	v.states[brokerName], v.states[consumerName] = "down", "waits"
	if s.cast.broker.consumer().Connected() {
		v.states[brokerName], v.states[consumerName] = "up", "reads"
	}
	switch since := v.sample.at.Sub(d.before.at); {
	case d.before.at.IsZero():
		d.before = v.sample
	case since >= trailEvery:
		d.extend(v.sample, since.Seconds())
		s.meter.rotate()
	}
}

func (d *drawing) extend(now sample, seconds float64) {
	d.commits = d.commits.add(float64(now.committed-d.before.committed) / seconds)
	d.deliveries = d.deliveries.add(float64(now.delivered-d.before.delivered) / seconds)
	d.waiting = d.waiting.add(float64(now.committed - now.delivered))
	d.lags = d.lags.add(float64(now.lag))
	d.parked = d.parked.add(float64(now.parked))
	d.before = now
}
