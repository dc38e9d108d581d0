// Notifications: what the writer and the lanes report to the feeder, and how the feeder handles it.

package retry

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// collect handles what others have reported.
func (f *feeder) collect() {
	select {
	case <-f.s.line.Resumed():
		f.resumed = true
	default:
	}
	f.mu.Lock()
	returned, all, missed, refused := f.returned, f.notifications, f.missed, f.refused
	f.returned, f.notifications, f.missed, f.refused = nil, nil, false, nil
	f.mu.Unlock()
	for _, fed := range returned {
		f.back(fed)
	}
	for _, n := range all {
		f.notified(n)
	}
	for _, group := range refused {
		f.readyIfOwed(group)
	}
	if missed {
		f.dueAt = time.Now()
		f.sweep(target{})
		for group := range f.owed {
			f.makeReady(group, false)
		}
	}
	now, rest := time.Now(), f.later[:0]
	for _, l := range f.later {
		if l.at.After(now) {
			rest = append(rest, l)
		} else {
			f.makeReady(l.group, false)
		}
	}
	f.later = rest
}

// notified handles a notification: a row was committed.
func (f *feeder) notified(n notification) {
	switch r := f.runs[n.group]; {
	case n.dead:
		f.readyIfOwed(n.group) // the lane may wait for it, and it blocks its ordering group
	case r != nil:
		r.again = true
	case !n.due.IsZero():
		if n.due.Before(f.dueAt) {
			f.dueAt = n.due
		}
		f.readyIfOwed(n.group)
	case f.isPaused(n.place, n.group):
		f.noteFault(n.place, n.fault)
		f.readyIfOwed(n.group)
	default:
		f.makeReady(n.group, false)
	}
}

// back takes a row back from its lane.
func (f *feeder) back(fed *relay.Fed) {
	r := f.feds[fed]
	delete(f.feds, fed)
	if fed.Outcome.State == sink.Confirmed {
		r.left = fed.Left
	}
	if r.out--; r.out > 0 {
		return
	}
	if r.request != nil {
		f.replayed(r)
	} else {
		f.done = append(f.done, r)
	}
}

// takeBack takes rows back from a lane. It does not block.
func (f *feeder) takeBack(rows []*relay.Fed) {
	f.mu.Lock()
	f.returned = append(f.returned, rows...)
	f.mu.Unlock()
	signal(f.woken)
}

// notify takes notifications of rows that were committed. It does not block.
func (f *feeder) notify(of []notification) {
	f.mu.Lock()
	if len(f.notifications)+len(of) > readyLimit {
		f.missed = true
	} else {
		f.notifications = append(f.notifications, of...)
	}
	f.mu.Unlock()
	signal(f.woken)
}

// stuck takes the report that the writer cannot write the next row of an ordering group. It does
// not block.
func (f *feeder) stuck(group uint64) {
	f.mu.Lock()
	f.refused = append(f.refused, group)
	f.mu.Unlock()
	signal(f.woken)
}

// stop ends feeding.
func (f *feeder) stop() {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	signal(f.woken)
}

func (f *feeder) isStopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped
}

// notification is what the writer reports of a row that was committed.
type notification struct {
	group uint64
	place sink.Place
	due   time.Time // the row was rejected, and waits until then
	dead  bool
	fault *sink.Fault // the fault of its destination
}

func notificationOf(e *queued, r *store.Row) notification {
	n := notification{group: e.group, place: e.Place, due: r.NextAttempt, dead: r.Dead}
	if e.Fault != nil && e.Fault.Class == sink.Destination {
		n.fault = e.Fault
	}
	return n
}
