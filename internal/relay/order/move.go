// What follows when something of an ordering group has changed: this is where a group returns to
// direct delivery.

package order

// moveOn looks at each group that was touched, and does what follows: an operator's request is
// carried out, the group returns to direct delivery, its waiting events move on, its rows are read,
// its state is dropped.
func (m *Machine) moveOn() {
	for i := 0; i < len(m.touched); i++ { //nolint:intrange // groups are touched meanwhile
		g := m.touched[i]
		g.touched = false
		m.carryOut(g)
		m.settle(g)
		m.advance(g)
		m.readNext(g)
		m.keepOrDrop(g)
	}
	clear(m.touched)
	m.touched = m.touched[:0]
}

// carryOut lets the requests of a group be carried out once the group is at rest.
func (m *Machine) carryOut(g *group) {
	atRest := !g.wanted && g.status != writing && g.flying == 0 && g.pending == 0 && g.front == nil
	if len(g.requests) == 0 || g.status != held && !atRest {
		return
	}
	if g.status != held {
		m.stopWaiting(g)
		g.status = held
	}
	for _, q := range g.requests {
		m.finish(g, Result{Request: q})
	}
	g.requests = nil
}

// settle returns a group to direct delivery when nothing of it is left in the table, or on the way
// there. decide.go has the argument.
func (m *Machine) settle(g *group) {
	if g.rows != some || g.more || g.deferred > 0 || g.inHand > 0 || g.flying > 0 || g.blocked || g.refused || g.asked() || g.wanted || g.status != idle {
		return
	}
	g.rows, g.draining = none, false
}

// advance moves the waiting events of an ordering group on, as far as possible now: to ready, or to
// the retry table.
func (m *Machine) advance(g *group) {
	for g.front == nil && g.waiting.First != nil {
		switch m.decideNext(g.waiting.First, g) {
		case waits:
			return
		case defers:
			m.deferEvent(g.waiting.Pop())
		case goes:
			if !m.cfg.OneByOne { // all of them go, before those in ready, which came later
				m.ready.PushAllFront(&g.waiting)
				return
			}
			g.front = g.waiting.Pop()
			m.ready.Push(g.front)
		}
	}
}

// readNext lets a group be read of which nothing else can come: its rows are not known and an event
// waits, or it has rows and none is in memory.
func (m *Machine) readNext(g *group) {
	switch {
	case g.status != idle || g.wanted || g.blocked || m.stop || m.guarded:
	case g.rows == unknown && g.waiting.First != nil, g.rows == some && g.more && g.inHand == 0 && g.flying == 0:
		m.toBeRead(g)
	default:
		m.readAhead(g)
	}
}

// keepOrDrop drops the state of a group in which nothing is set, or counts it.
func (m *Machine) keepOrDrop(g *group) {
	empty := g.isEmpty() && !g.blocked && g.status == idle
	switch {
	case g.touched:
		return
	case empty && (g.rows == unknown || g.rows == none && !m.known.mayHaveRows(g.exchangeOrTopic)):
		m.drop(g) // with unknown it was not read: nothing is lost with it
		return
	case g.rows == some || g.rows == none && empty || g.blocked:
		m.makeRoom(g)
	}
	m.countWaiting(g, g.rows == some || g.blocked)
	special := g.rows != none || g.dying || g.replay != nil || g.asked() || g.blocked || g.flying > 0
	if special != g.wasSpecial {
		g.wasSpecial = special
		if special {
			m.special++
		} else {
			m.special--
		}
	}
}
