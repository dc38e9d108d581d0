// What follows from a rejection, by its class (I4).

package order

import (
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/pauses"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// reject handles a rejection. A faulty destination is paused, and its event is deferred. An event
// that may be accepted later is deferred too. An event that never will be accepted is
// dead-lettered.
func (m *Machine) reject(e *inflight.Event, f *sink.Fault) {
	if e.Attempts == 0 {
		e.Since = m.now
	}
	e.Attempts += attempt(f)
	e.Refusal = f
	m.out.Rejected = append(m.out.Rejected, Rejection{e, f, e.Attempts})
	switch {
	// a replayed dead letter goes where an operator sent it, perhaps as the only event
	case f.Class == sink.Destination && !isReplay(e):
		m.out.Ended = m.cfg.Pauses.Refused(e.Place, f, m.now) || m.out.Ended
	case f.Class == sink.Transient:
		m.cfg.Pauses.Watch(e.Place)
	}
	if e.IsRow() {
		m.rejectRow(e, f)
		return
	}
	g := m.groups[e.Group]
	switch {
	case g != nil && g.front != e && g.dying:
		// OneByOne is off, and an earlier event that was rejected in the same call waits: this
		// event waits behind it, and no attempt is spent.
		e.State, e.Attempts = sink.Unsent, 0
		m.out.NoRow++
		return
	case f.Class == sink.Destination:
		e.Attempts = 0 // no attempt is spent
	case f.Class == sink.Transient:
		e.DueIn = m.cfg.Backoff(e.Attempts)
	default:
		e.Dead = true
	}
	if g != nil {
		g.release(e)
	}
	if e.Dead && !m.cfg.Block {
		m.deadLetter(e)
		return
	}
	m.deferEvent(e)
}

// attempt is 0 for an event of which values are left out: there was nothing to send.
func attempt(f *sink.Fault) int {
	if f.Reason == sink.RowTooLarge {
		return 0
	}
	return 1
}

// rejectRow handles the rejection of a row.
func (m *Machine) rejectRow(e *inflight.Event, f *sink.Fault) {
	if isReplay(e) {
		m.replayed(e, sink.Outcome{State: sink.Rejected, Fault: f})
		return
	}
	g := m.groups[e.Row.Group]
	g.flying--
	g.refused = true
	// a row before it was rejected in the same call
	if g.status == rests || g.status == writing {
		m.giveBack(e)
		m.touch(g)
		return
	}
	own := f.Reason == sink.NotAllowed && !f.Whole // of the pair, without asking the exchange
	if own && g.target.Dest == 0 {
		m.notProbing(g)
	} else {
		m.probeDone(g, sink.Outcome{State: sink.Rejected, Fault: f})
	}
	res := store.Result{
		Row: e.Row, Kind: store.Backoff, Attempts: e.Row.Attempts,
		Class: f.Class, Reason: f.Reason, Text: f.Text, Destination: f.Destination,
	}
	switch f.Class {
	case sink.Destination:
		target, paused := m.cfg.Pauses.Target(e.Place)
		if own { // it rests there also while the exchange is paused, which needs other probes
			target = pauses.Target{ExchangeOrTopic: e.Place.ExchangeOrTopic, Dest: e.Place.Dest}
			paused = m.cfg.Pauses.IsPaused(target)
		}
		switch {
		case m.cfg.Pauses.TooOld(e.Place, e.Row.DeferredAt):
			res.Kind = store.Dead
		case paused && !m.stop: // the row waits for the end of the pause: nothing is written
			m.out.NoRow++
			m.giveBack(e)
			g.more = true
			m.rest(g, target)
			m.touch(g)
			return
		default: // the pause has ended meanwhile, or there are too many pauses to note this one
			res.After = max(m.cfg.Patience(m.now.Sub(e.Row.DeferredAt)), m.cfg.Pauses.Turn(m.now))
		}
	case sink.Transient:
		res.Attempts++
		first := e.Row.First
		if e.Row.Attempts == 0 { // First, if it is set, is the time of a destination's fault
			first = m.now
		}
		if m.cfg.Pauses.Spent(e.Place, res.Attempts, m.cfg.MaxAttempts, first, m.now) {
			res.Kind = store.Dead
		} else {
			res.After = m.cfg.Backoff(res.Attempts)
		}
	case sink.Permanent:
		res.Attempts += attempt(f)
		res.Kind = store.Dead
	}
	m.write(g, Result{Event: e, Result: res})
	m.touch(g)
}
