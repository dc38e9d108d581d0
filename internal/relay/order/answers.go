// The outcomes of events: what a lane does after a confirm, and after a rejection of each class
// (I4). Outcomes come from a call, or from an event that was sent apart.

package order

import (
	"cmp"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// judgeOutcomes handles the outcomes of the last call, event by event, and removes the events that
// have one from open.
func (m *Machine) judgeOutcomes(outcomes []sink.Outcome, err error) {
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
			if !m.cfg.OneByOne && m.open.earlierUndecided(e) {
				// an earlier event of its ordering group must be deferred first
				e.State = sink.Unsent
				continue
			}
			e.State = sink.Rejected
			m.handleRejection(e, cmp.Or(out.Fault, &unexplained))
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
			m.handleConfirm(e, mixed && m.open.earlierUndecided(e))
		}
	}
	for _, e := range c.rejected {
		if e.State == sink.Rejected && e.IsRow() && !isReplay(e) {
			m.takeBackRowsBehind(e)
		}
	}
	m.open.removeDecided()
	m.scheduleCall(rows+len(m.out.Confirmed), refused, err)
}

// unexplained stands in for the reason of a sink that gives none.
var unexplained = sink.Fault{Class: sink.Transient, Reason: sink.Invalid, Text: "rejected without a reason"}

// handleConfirm handles the confirm of an event. overtook is set when an earlier event of its group
// has no outcome yet.
func (m *Machine) handleConfirm(e *inflight.Event, overtook bool) {
	m.out.Ended = m.cfg.Pauses.Confirmed(e.Place, e.IsRow(), m.now) || m.out.Ended
	if e.IsRow() {
		m.handleRowConfirm(e, overtook)
	} else if g := m.groups[e.Group]; g != nil && g.front == e {
		g.front = nil
		m.touch(g)
	}
}

// scheduleCall sets when the next call may be made, and how large it may be. The time depends on
// whether this call confirmed or rejected something. The size depends on whether the call failed,
// or confirmed something.
func (m *Machine) scheduleCall(confirmed, refused int, err error) {
	m.nextCallAt = time.Time{}
	if confirmed+refused > 0 {
		m.failedCalls = 0
	} else if m.failedCalls++; m.failedCalls > 1 {
		// after the first failure the call is made again at once: the connection broke, and Publish
		// waits for a new one
		m.nextCallAt = m.now.Add(m.cfg.Spin(m.failedCalls - 2))
	}
	switch {
	case err != nil:
		m.callLimit = 1
	case confirmed > 0:
		m.callLimit = min(2*m.callLimit, sink.MaxCallEvents)
	}
}

// FailedCalls is how many calls in a row have neither confirmed nor rejected an event.
func (m *Machine) FailedCalls() int { return m.failedCalls }

// handleProbed handles the outcome of an event that was sent apart. A row in doubt is read again,
// and stays the first of its group until then. A replay in doubt goes back to the retry table,
// which requests it again.
func (m *Machine) handleProbed(p *Probed) {
	e := p.Event
	delete(m.apart, e)
	if !isReplay(e) {
		g := m.groups[e.Row.Group]
		g.firstApart = false
		m.touch(g)
	}
	switch e.State = p.Outcome.State; {
	case e.State == sink.Confirmed:
		m.handleConfirm(e, false)
	case e.State == sink.Rejected:
		m.handleRejection(e, cmp.Or(p.Outcome.Fault, &unexplained))
	case isReplay(e):
		m.handleReplayed(e, p.Outcome)
	default:
		m.takeBackRow(e)
		m.waitUntil(m.groups[e.Row.Group], m.now.Add(againPause))
	}
}

// handleRejection handles a rejection by its class. If the destination is at fault, the destination
// is paused and the event deferred. An event that may be accepted later is deferred. An event that
// will never be accepted becomes a dead letter.
func (m *Machine) handleRejection(e *inflight.Event, f *sink.Fault) {
	if e.Attempts == 0 {
		e.Since = m.now
	}
	e.Attempts += attemptsSpent(f)
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
		m.handleRowRejection(e, f)
		return
	}
	g := m.groups[e.Group]
	switch {
	case g != nil && g.front != e && g.deadLettering:
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
		g.clearFront(e)
	}
	if e.Dead && !m.cfg.Block {
		m.deadLetterEvent(e)
		return
	}
	m.deferEvent(e)
}

// attemptsSpent is how many attempts a rejection spends: none if values of the event were left out
// as too large, because then nothing was sent.
func attemptsSpent(f *sink.Fault) int {
	if f.Reason == sink.RowTooLarge {
		return 0
	}
	return 1
}

// deferEvent gives an event to the retry table, through Actions.Defer, and notes in its group that
// a row is on its way to the table: from now on no later event of the group is sent.
func (m *Machine) deferEvent(e *inflight.Event) {
	m.out.Defer = append(m.out.Defer, e)
	if e.Group == 0 {
		return
	}
	g := m.groupOf(e.Group, e.Place.ExchangeOrTopic)
	m.touch(g)
	g.deferred++
	g.credit = max(0, g.credit-rowsForOne)
	if g.rows == unknown {
		g.moreRows = true // there may be rows before this one
	}
	m.setRows(g, max(g.rows, some))
	// What the stream repeats after a crash may be in front of rows that an earlier leader has
	// written. So the group is not read before the row of this event is committed, and then from
	// its beginning.
	if !m.repeated.Less(e.Position) {
		g.repeated++
	}
}

// deadLetterEvent gives an event whose Dead is set to the retry table, which writes it as a dead
// letter. Dead letters go through Actions.Defer, as deferred events do, so that the rows of a group
// are written in one order. Until this row is committed, deadLettering holds the group's later
// events.
func (m *Machine) deadLetterEvent(e *inflight.Event) {
	m.out.Defer = append(m.out.Defer, e)
	if e.Group != 0 {
		g := m.groupOf(e.Group, e.Place.ExchangeOrTopic)
		g.deadLettering = true
		m.touch(g)
	}
}

// deadLetterUndecodable makes a dead letter of a row of the outbox table that cannot be relayed as
// configured (Event.Fault).
func (m *Machine) deadLetterUndecodable(e *inflight.Event) {
	e.Refusal = &sink.Fault{Class: sink.Permanent, Reason: sink.Undecodable, Text: e.Event.Fault.Error()}
	e.Attempts, e.Since, e.Dead = 1, m.now, true
	m.out.Rejected = append(m.out.Rejected, Rejection{e, e.Refusal, 1})
	m.deadLetterEvent(e)
}

// handleRowConfirm handles a row that the broker has. Its confirm may end the pause of its place.
func (m *Machine) handleRowConfirm(e *inflight.Event, overtook bool) {
	m.out.Delivered = append(m.out.Delivered, e)
	if isReplay(e) {
		m.handleReplayed(e, sink.Outcome{State: sink.Confirmed})
		return
	}
	g := m.groups[e.Row.Group]
	g.flying--
	g.credit = min(g.credit+1, mostCredit)
	if !g.drainedAt.IsZero() {
		g.drainedAt = m.now
	}
	if !g.readAgain && !overtook {
		g.lastGone = afterRow(e)
	}
	m.giveResult(g, Result{Event: e, Result: store.Result{Row: e.Row, Kind: store.Delivered}})
	m.endProbe(g, sink.Outcome{State: sink.Confirmed})
	m.touch(g)
}

// handleRowRejection handles the rejection of a row: the row waits for the end of a pause, backs
// off, or becomes a dead letter.
func (m *Machine) handleRowRejection(e *inflight.Event, f *sink.Fault) {
	if isReplay(e) {
		m.handleReplayed(e, sink.Outcome{State: sink.Rejected, Fault: f})
		return
	}
	g := m.groups[e.Row.Group]
	g.flying--
	g.readAgain = true
	// a row before it was rejected in the same call
	if g.status == behindPause || g.status == writing {
		m.giveRowsBack(e)
		m.touch(g)
		return
	}
	own := f.Reason == sink.NotAllowed && !f.Whole // of the pair, without asking the exchange
	if own && g.target.Dest == 0 {
		m.cancelProbe(g)
	} else {
		m.endProbe(g, sink.Outcome{State: sink.Rejected, Fault: f})
	}
	res := store.Result{
		Row: e.Row, Kind: store.Backoff, Attempts: e.Row.Attempts,
		Class: f.Class, Reason: f.Reason, Text: f.Text, Destination: f.Destination,
	}
	switch f.Class {
	case sink.Destination:
		target, paused := m.cfg.Pauses.Target(e.Place)
		if own { // it rests there also while the exchange is paused, which needs other probes
			target = Target{ExchangeOrTopic: e.Place.ExchangeOrTopic, Dest: e.Place.Dest}
			paused = m.cfg.Pauses.IsPaused(target)
		}
		switch {
		case m.cfg.Pauses.TooOld(e.Place, e.Row.DeferredAt):
			res.Kind = store.Dead
		case paused && !m.stopping: // the row waits for the end of the pause: nothing is written
			m.out.NoRow++
			m.giveRowsBack(e)
			g.moreRows = true
			m.restBehindPause(g, target)
			m.touch(g)
			return
		default: // the pause has ended meanwhile, or there are too many pauses to note this one
			res.After = max(m.cfg.Patience(m.now.Sub(e.Row.DeferredAt)), m.cfg.Pauses.NextTurn(m.now))
		}
	case sink.Transient:
		res.Attempts++
		first := e.Row.First
		if e.Row.Attempts == 0 { // First, if it is set, is the time of a destination's fault
			first = m.now
		}
		if m.cfg.Pauses.AttemptsSpent(e.Place, res.Attempts, m.cfg.MaxAttempts, first, m.now) {
			res.Kind = store.Dead
		} else {
			res.After = m.cfg.Backoff(res.Attempts)
		}
	case sink.Permanent:
		res.Attempts += attemptsSpent(f)
		res.Kind = store.Dead
	}
	m.writeFirstRow(g, Result{Event: e, Result: res})
	m.touch(g)
}

// takeBackRowsBehind takes the unsent rows behind a rejected one out of open, because the rejected
// row stays in the table and no row may pass it.
func (m *Machine) takeBackRowsBehind(rejected *inflight.Event) {
	g := m.groups[rejected.Row.Group]
	if g == nil { // forgotten: nothing of it was left in open
		return
	}
	for _, e := range m.open.items {
		if e.Row != nil && e.Request == nil && e.Row.Group == rejected.Row.Group && e.State == sink.Unsent {
			e.State = sink.Rejected // so that removeDecided removes it from open
			g.flying--
			m.giveRowsBack(e)
		}
	}
	m.touch(g)
}

// tooOldResult is the result of a row that becomes a dead letter without being sent again, because
// it has waited for destination_max_age. It keeps its last rejection, or names the fault that
// paused its place.
func (m *Machine) tooOldResult(e *inflight.Event) store.Result {
	res := store.Result{Row: e.Row, Kind: store.Dead, Attempts: e.Row.Attempts}
	if f := m.cfg.Pauses.Fault(e.Place); e.Row.Reason == "" && f != nil {
		res.Class, res.Reason, res.Text, res.Destination = f.Class, f.Reason, f.Text, f.Destination
	}
	return res
}

// giveResult gives the result of a row, or a request, to the retry table. The group is kept in
// memory until the result is committed.
func (m *Machine) giveResult(g *group, r Result) {
	g.pendingResults++
	m.out.Finish = append(m.out.Finish, r)
}

// writeFirstRow gives the result of the group's first row to the retry table. No row of the group
// is sent until this result is committed.
func (m *Machine) writeFirstRow(g *group, r Result) {
	g.readAgain = true
	m.stopWaiting(g)
	g.status = writing
	m.giveResult(g, r)
}

// isReplay reports whether the event is a dead letter that is replayed, or the mirror's copy of
// one.
func isReplay(e *inflight.Event) bool { return e.Request != nil || e.Done != nil }

// handleReplayed handles the outcome of a replay or a copy. If the outcome is neither a confirm nor
// a rejection, the event is given back as Returned.
func (m *Machine) handleReplayed(e *inflight.Event, out sink.Outcome) {
	if g := m.groups[e.Group]; g != nil && g.replay == e {
		g.flying--
		g.replay = nil
		m.touch(g)
	}
	e.State, e.Refusal = out.State, out.Fault
	returned := out.State != sink.Confirmed && out.State != sink.Rejected
	m.out.Finish = append(m.out.Finish, Result{Event: e, Returned: returned, Request: e.Request})
}
