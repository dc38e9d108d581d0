// The scene: what is shown at present.

package main

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/demo/display"
)

// scene is what the acts say about themselves; the rest of a view is measured.
type scene struct {
	mu         sync.Mutex
	phase      display.Phase
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

// Say adds a line that stays.
func (s *stage) Say(text string) { s.out.Say(time.Since(s.began), text) }

// tell changes the sentence about what happens now.
func (s *stage) tell(now string) { s.scene.set(func(sc *scene) { sc.now = now }) }

// enter begins a phase.
func (s *stage) enter(p display.Phase, now string) {
	s.scene.set(func(sc *scene) {
		sc.phase, sc.now = p, now
		if sc.states == nil {
			sc.states = map[string]string{
				display.OrdersName: "closed", display.PostgresName: "starting", display.RelayName: "building", display.BrokerName: "starting", display.ConsumerName: "waits",
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
		if who == display.RelayName {
			sc.states[who] = "built"
		}
		var left []string
		for _, w := range []struct{ who, state, why string }{
			{display.PostgresName, "starting", "PostgreSQL makes a new database cluster"},
			{display.BrokerName, "starting", s.cast.broker.words().name + " takes some seconds to start"},
			{display.RelayName, "building", "cdc-relay is compiled"},
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
	s.out.Show(d.view())
	for every(ctx, drawEvery) {
		s.out.Show(d.view())
	}
	s.out.Show(d.view())
}

// drawing gathers views. It belongs to one goroutine.
type drawing struct {
	stage *stage
	seen  int // deliveries that the meter knows

	// that the last values of the trails came from
	before                                       display.Sample
	commits, deliveries, waiting, lags, deferred display.Trail
}

func (d *drawing) view() *display.View {
	s := d.stage
	v := &display.View{Elapsed: time.Since(s.began), Broker: s.cast.broker.words().name}
	var live, done bool
	s.scene.set(func(sc *scene) {
		v.Phase, v.Now, v.States = sc.phase, sc.now, maps.Clone(sc.states)
		live, done = sc.live, sc.ordersDone
	})
	if live {
		d.look(v, done)
	}
	v.Commits, v.Deliveries, v.Waiting, v.Lags, v.Deferred = d.commits, d.deliveries, d.waiting, d.lags, d.deferred
	return v
}

// look fills in what can be asked now.
func (d *drawing) look(v *display.View, ordersDone bool) {
	s := d.stage
	arrived := s.cast.broker.consumer().DeliveriesFrom(d.seen)
	d.seen += len(arrived)
	s.meter.Arrive(arrived)

	v.Sample = s.probe.Last()
	v.RolledBack = len(s.work.RolledBack())
	v.Latency = s.meter.Last()
	v.States[display.OrdersName] = "writes"
	if ordersDone {
		v.States[display.OrdersName] = "closed"
	}
	v.States[display.PostgresName], v.States[display.RelayName] = v.Postgres, v.Relay
	v.States[display.BrokerName], v.States[display.ConsumerName] = "down", "waits"
	if s.cast.broker.consumer().Connected() {
		v.States[display.BrokerName], v.States[display.ConsumerName] = "up", "reads"
	}
	switch since := v.Sample.At.Sub(d.before.At); {
	case d.before.At.IsZero():
		d.before = v.Sample
	case since >= trailEvery:
		d.extend(v.Sample, since.Seconds())
		s.meter.Rotate()
	}
}

func (d *drawing) extend(now display.Sample, seconds float64) {
	d.commits = d.commits.Add(float64(now.Committed-d.before.Committed) / seconds)
	d.deliveries = d.deliveries.Add(float64(now.Delivered-d.before.Delivered) / seconds)
	d.waiting = d.waiting.Add(float64(now.Committed - now.Delivered))
	d.lags = d.lags.Add(float64(now.Lag))
	d.deferred = d.deferred.Add(float64(now.Deferred))
	d.before = now
}
