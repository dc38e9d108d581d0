// The outcomes of a call.

package order

import (
	"cmp"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// judge handles the outcomes of the call.
func (m *Machine) judge(outcomes []sink.Outcome, err error) {
	c := &m.call
	c.rejected = c.rejected[:0]
	refused, rows := 0, 0
	for i, e := range c.items {
		switch out := outcomes[i]; out.State {
		case sink.Confirmed:
			e.State = sink.Confirmed
			if e.IsRow() {
				rows++
			} else {
				m.out.Confirmed = append(m.out.Confirmed, e)
			}
		case sink.Rejected:
			refused++
			c.rejected = append(c.rejected, e)
			if !m.cfg.OneByOne && m.open.undecided(e) {
				// an earlier event of its ordering group must be deferred first
				e.State = sink.Unsent
				continue
			}
			e.State = sink.Rejected
			m.reject(e, cmp.Or(out.Fault, &unexplained))
		case sink.Unsent:
			// This call did not send the event: if it was in doubt before, it stays in doubt.
		default:
			m.out.Unknown++
			e.State = sink.Unknown
		}
	}
	if !m.cfg.OneByOne {
		for _, e := range c.rejected {
			m.open.markUnsentBehind(e)
		}
	}
	mixed := rows+len(m.out.Confirmed) < len(c.items)
	for _, e := range c.items {
		if e.State == sink.Confirmed {
			// a row in doubt that comes before it must be read again if it is rejected
			m.confirmed(e, mixed && m.open.undecided(e))
		}
	}
	for _, e := range c.rejected {
		if e.State == sink.Rejected && e.IsRow() && !isReplay(e) {
			m.takeBack(e)
		}
	}
	m.open.compact()
	m.schedule(rows+len(m.out.Confirmed), refused, err)
}

// unexplained stands in for the reason of a sink that gives none.
var unexplained = sink.Fault{Class: sink.Transient, Reason: sink.Invalid, Text: "rejected without a reason"}

// confirmed handles a confirm; overtook: an earlier event of its group has no outcome yet.
func (m *Machine) confirmed(e *inflight.Event, overtook bool) {
	m.out.Ended = m.cfg.Pauses.Confirmed(e.Place, e.IsRow(), m.now) || m.out.Ended
	if e.IsRow() {
		m.rowConfirmed(e, overtook)
	} else if g := m.groups[e.Group]; g != nil && g.front == e {
		g.front = nil
		m.touch(g)
	}
}

// schedule sets when the next call may be made, and how large it may be. The time depends on
// whether this call confirmed or rejected something, the size on whether it failed or confirmed
// something.
func (m *Machine) schedule(confirmed, refused int, err error) {
	m.before = time.Time{}
	if confirmed+refused > 0 {
		m.fails = 0
	} else if m.fails++; m.fails > 1 {
		// after the first failure the call is made again at once: the connection broke, and Publish
		// waits for a new one
		m.before = m.now.Add(m.cfg.Spin(m.fails - 2))
	}
	switch {
	case err != nil:
		m.limit = 1
	case confirmed > 0:
		m.limit = min(2*m.limit, sink.MaxCallEvents)
	}
}

// Fails is how many calls in a row have confirmed and rejected nothing.
func (m *Machine) Fails() int { return m.fails }

// probed handles the outcome of what was sent apart. A row in doubt is read again: until then it is
// the first of its group, as before. A replay in doubt is requested again.
func (m *Machine) probed(p *Probed) {
	e := p.Event
	delete(m.apart, e)
	if !isReplay(e) {
		g := m.groups[e.Row.Group]
		g.alone = false
		m.touch(g)
	}
	switch e.State = p.Outcome.State; {
	case e.State == sink.Confirmed:
		m.confirmed(e, false)
	case e.State == sink.Rejected:
		m.reject(e, cmp.Or(p.Outcome.Fault, &unexplained))
	case isReplay(e):
		m.replayed(e, p.Outcome)
	default:
		g := m.groups[e.Row.Group]
		g.flying--
		g.more, g.refused = true, true
		m.giveBack(e)
		m.waitUntil(g, m.now.Add(againPause))
	}
}
