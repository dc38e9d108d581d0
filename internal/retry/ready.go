// Ordering groups to read next.

package retry

import (
	"slices"
	"time"
)

// ready holds the ordering groups to read, in order, each once. It is bounded: an ordering group
// without a place in it is found again by a sweep.
type ready struct {
	order []*readied
	of    map[uint64]*readied
	// ordering groups whose lane has enough rows for now, laneRows of each lane at most
	aside map[int][]*readied
	left  map[int]bool // lanes with ordering groups that found no place in aside
}

type readied struct {
	group uint64
	due   bool // the backoff of a row is over
}

// readyLimit bounds order. Ordering groups that are set aside do not count: a stalled lane must not
// take the place of others.
const readyLimit = 10_000

func newReady() ready {
	return ready{of: map[uint64]*readied{}, aside: map[int][]*readied{}, left: map[int]bool{}}
}

// add returns false when there is no place for the ordering group.
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

// putBack puts ordering groups that were taken back to the front.
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

// setAside keeps an ordering group until its lane has room. It returns false when there is no place
// for it.
func (r *ready) setAside(e *readied, lane int) bool {
	if len(r.aside[lane]) >= laneRows {
		r.left[lane] = true
		return false
	}
	r.of[e.group] = e
	r.aside[lane] = append(r.aside[lane], e)
	return true
}

// laneHasRoom takes back ordering groups that were set aside for the lane, as many as there is room
// for. It reports whether a sweep must find others, which had no place in aside.
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

// makeReady adds an ordering group to ready.
func (f *feeder) makeReady(group uint64, due bool) {
	if r := f.runs[group]; r != nil {
		r.again = true
	} else if !f.ready.add(group, due) {
		f.notNow(group)
		f.sweep(target{})
	}
}

func (f *feeder) readyIfOwed(group uint64) {
	if _, owed := f.owed[group]; owed {
		f.makeReady(group, false)
	}
}

// notNow notifies the lane, if it may wait for that, that no row of the ordering group may go now.
func (f *feeder) notNow(group uint64) {
	if o, owed := f.owed[group]; owed {
		delete(f.owed, group)
		f.s.line.NotNow(o.lane, group, o.exchangeOrTopic)
	}
}

// readyLater makes an ordering group ready after a while.
func (f *feeder) readyLater(group uint64, d time.Duration) {
	f.later = append(f.later, later{time.Now().Add(d), group})
}

// sweep starts a sweep of a target; the zero target is everything.
func (f *feeder) sweep(t target) {
	for _, s := range f.sweeps {
		if s.of == t || s.of == (target{}) && !s.begun {
			s.again = s.again || s.begun
			return
		}
	}
	if len(f.sweeps) >= maxSweeps || t == (target{}) {
		// A sweep over everything that begins now covers all other sweeps.
		f.sweeps, t = slices.DeleteFunc(f.sweeps, func(s *sweep) bool { return s.of != (target{}) }), target{}
		if len(f.sweeps) > 0 {
			f.sweeps[0].again = f.sweeps[0].again || f.sweeps[0].begun
			return
		}
	}
	f.sweeps = append(f.sweeps, &sweep{walk: walk{of: t, open: true}})
}
