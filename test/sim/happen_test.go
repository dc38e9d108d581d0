package sim

import (
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/memorytest"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

func (p *plan) drawHappenings(d *dice) {
	some := func(most int, draw func() happening) {
		for range d.n(most + 1) {
			h := draw()
			if h.at == 0 {
				h.at = d.upTo(p.chaosEnd)
			}
			p.happens = append(p.happens, h)
		}
	}
	some(pick(d, 0, 2, 6), func() happening { return breaks(d, d.n(exchangesOrTopics)) })
	some(1, func() happening { return nacks(d) })
	if d.in(50) {
		some(1, func() happening {
			lasts := d.upTo(5 * time.Second)
			return happening{what: "the database refuses every row", do: func(w *world) {
				w.refusing = true
				w.later(lasts, func() { w.refusing = false })
			}}
		})
	}
	some(2, func() happening {
		n := d.n(len(p.events))
		return happening{what: "poison is cured", do: func(w *world) { w.events[n].poison = 0 }}
	})
	some(pick(d, 0, 2, 8), func() happening { return p.asks(d) })
	some(2, func() happening { return happening{what: "checkpoint", do: (*world).checkpoint} })
	some(1, func() happening {
		keep := pick(d, time.Nanosecond, time.Second)
		return happening{what: "expire", do: func(w *world) { w.expire(keep) }}
	})
	some(1, func() happening {
		grace := d.upTo(3 * time.Second)
		return happening{what: "stop", do: func(w *world) { w.stop(grace) }}
	})
	if !p.calm {
		p.drawFaults(d, some)
	}
	// Nothing fails then, so a stop is clean.
	if d.in(400) {
		p.happens = append(p.happens, happening{at: p.chaosEnd + d.upTo(pick(d, 20*time.Millisecond, time.Second)), what: "clean stop", do: func(w *world) { w.stop(cleanGrace) }})
	}
	p.happens = append(p.happens, happening{at: p.chaosEnd, what: "nothing fails any more", do: (*world).calmDown})
	slices.SortStableFunc(p.happens, func(a, b happening) int { return int(a.at - b.at) })
}

// cleanGrace is enough for any stop when nothing fails.
const cleanGrace = 4 * time.Minute

func (p *plan) drawFaults(d *dice, some func(int, func() happening)) {
	some(2, func() happening {
		n := d.n(2)
		return happening{what: "kill", do: func(w *world) { w.kill(n) }}
	})
	some(2, func() happening {
		return happening{what: "kill the leader", do: func(w *world) {
			if w.holder != nil {
				w.kill(w.holder.n)
			}
		}}
	})
	some(2, func() happening {
		return happening{what: "session lost", do: func(w *world) { w.loseSession() }}
	})
	some(1, func() happening {
		away := d.upTo(time.Second)
		return happening{what: "PostgreSQL crashes", do: func(w *world) { w.crash(away) }}
	})
	some(1, func() happening {
		away := d.upTo(2 * time.Second)
		return happening{what: "broker away", do: func(w *world) {
			w.brokerUp = false
			w.change()
			w.later(away, func() {
				w.brokerUp = true
				w.change()
			})
		}}
	})
	some(2, func() happening {
		away, late, lasts := d.in(700), d.upTo(300*time.Millisecond), d.upTo(pick(d, 20*time.Millisecond, 3*time.Second))
		return happening{what: "the disk guard is on", do: func(w *world) { w.guard(away, late, lasts) }}
	})
	some(2, func() happening {
		held, stale := d.upTo(500*time.Millisecond), d.upTo(4*time.Second)
		return happening{what: "the leader is stopped by a signal", do: func(w *world) { w.freeze(held, held+stale) }}
	})
}

// breaks takes an exchange away, or a destination of it, for a while or until the end.
func breaks(d *dice, u int) happening {
	r, whole := d.n(dests), d.in(400)
	lasts := pick(d, 5*time.Millisecond, 100*time.Millisecond, 3*time.Second, time.Hour)
	lasts = d.upTo(2 * lasts)
	at := time.Duration(0)
	if d.in(300) {
		at = 1 // from the start
	}
	return happening{at: at, what: "destination breaks", do: func(w *world) {
		broken := &w.destBroken[u][r]
		if whole {
			broken = &w.exchangeOrTopicBroken[u]
		}
		if *broken {
			return
		}
		*broken = true
		w.noteLocked("broker", nil, "breaks %s.%s, whole %t, for %s", unitName(u), keyName(r), whole, lasts)
		w.later(lasts, func() {
			if *broken {
				*broken = false
				w.noteLocked("broker", nil, "fixes %s.%s, whole %t", unitName(u), keyName(r), whole)
			}
		})
	}}
}

// nacks has a queue that is full now and then.
func nacks(d *dice) happening {
	u, r, often := d.n(exchangesOrTopics), d.n(dests), pick(d, 100, 500, 900)
	lasts := d.upTo(pick(d, 100*time.Millisecond, 10*time.Second))
	return happening{what: "a queue is full now and then", do: func(w *world) {
		w.flaky[u][r] = often
		w.later(lasts, func() { w.flaky[u][r] = 0 })
	}}
}

// later does something after a while, with the world locked.
func (w *world) later(d time.Duration, do func()) {
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		do()
	})
}

// What follows is called with the world locked.

func (w *world) kill(n int) {
	if l := w.processes[n].life; l != nil {
		w.noteLocked(l.name, nil, "is killed")
		w.thaw(l.process)
		l.kill()
	}
}

func (w *world) thaw(p *process) {
	if p.paused != nil {
		close(p.paused)
		p.paused = nil
	}
}

// loseSession ends the session that holds the slot.
func (w *world) loseSession() {
	if s := w.holder; s != nil {
		w.noteLocked(s.name, nil, "loses its session")
		s.cancel()
		w.holder = nil
		w.change()
	}
}

// crash is one of PostgreSQL: what was reported to the slot since it was saved is forgotten.
func (w *world) crash(away time.Duration) {
	w.noteLocked("postgres", nil, "crashes, the slot is at %s again, not %s", w.saved, w.confirmed)
	w.crashes++
	w.down = true
	w.confirmed = w.saved
	w.loseSession()
	w.later(away, func() {
		w.down = false
		w.change()
	})
}

// guard switches the leader's disk guard on for a while, mostly with the broker away.
func (w *world) guard(away bool, late, lasts time.Duration) {
	s := w.holder
	if s == nil || s.term == nil {
		return
	}
	line := s.term.line
	if away {
		w.brokerUp = false
		w.change()
	}
	// not with the world locked: a lane that has to be told may wait for it
	time.AfterFunc(late, func() {
		w.mu.Lock()
		still := w.still
		w.mu.Unlock()
		if !still {
			line.Guard(true)
		}
	})
	time.AfterFunc(late+lasts, func() {
		line.Guard(false)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.brokerUp = true
		w.change()
	})
}

func (w *world) checkpoint() {
	w.saved = w.confirmed
	w.db.SavePosition(slot, w.saved)
}

// freeze stops the leader by a signal. Its session ends after a while, so that the other one leads;
// later it goes on.
func (w *world) freeze(held, until time.Duration) {
	s := w.holder
	if s == nil || s.paused != nil {
		return
	}
	p := s.process
	gone := make(chan struct{})
	p.paused = gone
	w.noteLocked(s.name, nil, "is stopped by a signal")
	w.later(held, func() {
		if p.paused == gone && w.holder == s {
			w.loseSession()
		}
	})
	w.later(until, func() {
		if p.paused == gone {
			w.noteLocked(p.name(), nil, "goes on")
			w.thaw(p)
		}
	})
}

func (p *process) name() string {
	if p.life == nil {
		return "nobody"
	}
	return p.life.name
}

// stop asks the leader for a clean stop.
func (w *world) stop(grace time.Duration) {
	if s := w.holder; s != nil && s.paused == nil {
		select {
		case <-s.stopping:
		default:
			s.grace = grace
			close(s.stopping)
		}
	}
}

func (w *world) expire(keep time.Duration) {
	w.tables() // which dead letters are closed
	m := w.db.Store(store.Config{Slot: slot, SystemID: system, Incarnation: 1, Epoch: w.epoch, Scope: w.scope, Block: w.hold})
	n, err := m.ExpireDeadLetters(context.Background(), keep, 1000)
	if w.epoch > 0 && err != nil {
		w.failLocked(nil, "expire: %v", err)
	}
	if n > 0 {
		w.noteLocked("operator", nil, "%d rows expire", n)
	}
}

// asks is a request of an operator.
func (p *plan) asks(d *dice) happening {
	which, other, u, r, cancel := d.n(1000), d.in(300), d.n(exchangesOrTopics), d.n(dests), d.in(100)
	kind := pick(d, store.Replay, store.Replay, store.Replay, store.Discard, store.Redact, store.Purge, store.Retry, store.DeadLetter)
	return happening{what: "operator", do: func(w *world) {
		deadLetter := kind == store.Replay || kind == store.Discard || kind == store.Redact || kind == store.Purge && which%2 == 0
		var rows []*store.Row
		if deadLetter {
			for _, l := range w.db.DeadLetters(slot) {
				rows = append(rows, l.Row)
			}
		} else {
			rows = w.db.Deferred(slot)
		}
		if len(rows) == 0 {
			return
		}
		row := rows[which%len(rows)]
		var to event.Route
		if other {
			to.Name = unitName(u)
			if !w.atomic {
				to.RoutingKey = keyName(r)
			}
		}
		id := w.ask(kind, row, to)
		if cancel {
			w.db.Cancel(id)
		}
	}}
}

// ask stores a request about a row.
func (w *world) ask(kind store.RequestKind, row *store.Row, to event.Route) int64 {
	e := w.eventAt[row.Event.Position]
	id := w.db.AddRequest(memorytest.Request{Slot: slot, System: system, Kind: kind, N: row.N, Route: to})
	if id == 0 {
		return 0
	}
	switch kind {
	case store.Replay:
		e.replays++
	case store.Discard, store.DeadLetter, store.Purge:
		e.condemned = true
	default:
	}
	w.noteLocked("operator", e, "asks to %s n=%d, to %q", kind, row.N, to.Name)
	return id
}

// calmDown ends all faults but what is broken for long.
func (w *world) calmDown() {
	w.still = true
	for _, p := range w.processes {
		w.thaw(p)
	}
	w.brokerUp, w.down, w.refusing = true, false, false
	if s := w.holder; s != nil && s.term != nil {
		line := s.term.line
		time.AfterFunc(0, func() { line.Guard(false) })
	}
	for _, e := range w.events {
		e.refuse, e.noEnd = false, false
	}
	w.change()
}
