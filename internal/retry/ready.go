// Ordering groups to look at next.

package retry

import "time"

// ready are the ordering groups to look at, in order, each once. It is bounded: what finds no place
// is found again by a sweep.
type ready struct {
	order []*readied
	of    map[uint64]*readied
	// those whose lane has rows enough for now, laneRows of each at the most
	aside map[int][]*readied
	left  map[int]bool // lanes with ordering groups that found no place there
}

type readied struct {
	group uint64
	due   bool // the backoff of a row is over
}

// readyLimit bounds order. What is set aside does not count: a lane that stands still must not take
// the place of others.
const readyLimit = 10_000

func newReady() ready {
	return ready{of: map[uint64]*readied{}, aside: map[int][]*readied{}, left: map[int]bool{}}
}

// add is false when there is no place for the ordering group.
func (r *ready) add(group uint64, due bool) bool {
	if e := r.of[group]; e != nil {
		e.due = e.due || due
		return true
	}
	if len(r.order) >= readyLimit {
		return false
	}
	e := &readied{group: group, due: due}
	r.of[group] = e
	r.order = append(r.order, e)
	return true
}

// take takes the first n.
func (r *ready) take(n int) []*readied {
	taken := r.order[:n:n]
	if r.order = r.order[n:]; len(r.order) == 0 {
		r.order = nil
	}
	for _, e := range taken {
		delete(r.of, e.group)
	}
	return taken
}

// putBack puts ordering groups that were taken before all others.
func (r *ready) putBack(taken []*readied) {
	if len(taken) == 0 {
		return
	}
	order := make([]*readied, 0, len(taken)+len(r.order))
	for _, e := range taken {
		if r.of[e.group] == nil {
			r.of[e.group] = e
			order = append(order, e)
		}
	}
	r.order = append(order, r.order...)
}

// setAside keeps an ordering group until its lane has room. It is false when there is no place for
// it.
func (r *ready) setAside(e *readied, lane int) bool {
	if len(r.aside[lane]) >= laneRows {
		r.left[lane] = true
		return false
	}
	r.of[e.group] = e
	r.aside[lane] = append(r.aside[lane], e)
	return true
}

// laneHasRoom takes back what was set aside for the lane, as many as there is room for. It reports
// whether others, which found no place there, are to be looked for now.
func (r *ready) laneHasRoom(lane, room int) (look bool) {
	n := min(room, len(r.aside[lane]))
	r.order = append(r.order, r.aside[lane][:n]...)
	if r.aside[lane] = r.aside[lane][n:]; len(r.aside[lane]) > 0 {
		return false
	}
	delete(r.aside, lane)
	look = r.left[lane]
	delete(r.left, lane)
	return look
}

// makeReady readies an ordering group.
func (f *feeder) makeReady(group uint64, due bool) {
	if r := f.runs[group]; r != nil {
		r.again = true
	} else if !f.ready.add(group, due) {
		f.notNow(group)
		f.sweep(pausedDest{})
	}
}

func (f *feeder) readyIfOwed(group uint64) {
	if _, owed := f.owed[group]; owed {
		f.makeReady(group, false)
	}
}

// notNow tells the lane, if that is owed, that nothing of the ordering group may go now.
func (f *feeder) notNow(group uint64) {
	if o, owed := f.owed[group]; owed {
		delete(f.owed, group)
		f.s.line.NotNow(o.lane, group, o.exchangeOrTopic)
	}
}

// afterwards looks at an ordering group again after a while.
func (f *feeder) afterwards(group uint64, d time.Duration) {
	f.later = append(f.later, later{time.Now().Add(d), group})
}
