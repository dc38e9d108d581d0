// Chains to look at next.

package retry

import "time"

// ready are the chains to look at, in order, each once. It is bounded: what finds no place is found
// again by a sweep.
type ready struct {
	order []*readied
	of    map[uint64]*readied
	aside map[int][]*readied // those whose lane has rows enough for now, laneRows of each at the most
	left  map[int]bool       // lanes with chains that found no place there
}

type readied struct {
	chain uint64
	due   bool // the backoff of a row is over
}

// readyLimit bounds order. What is set aside does not count: a lane that stands still must not take
// the place of others.
const readyLimit = 10_000

func newReady() ready {
	return ready{of: map[uint64]*readied{}, aside: map[int][]*readied{}, left: map[int]bool{}}
}

// add is false when there is no place for the chain.
func (r *ready) add(chain uint64, due bool) bool {
	if e := r.of[chain]; e != nil {
		e.due = e.due || due
		return true
	}
	if len(r.order) >= readyLimit {
		return false
	}
	e := &readied{chain: chain, due: due}
	r.of[chain] = e
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
		delete(r.of, e.chain)
	}
	return taken
}

// putBack puts chains that were taken before all others.
func (r *ready) putBack(taken []*readied) {
	if len(taken) == 0 {
		return
	}
	order := make([]*readied, 0, len(taken)+len(r.order))
	for _, e := range taken {
		if r.of[e.chain] == nil {
			r.of[e.chain] = e
			order = append(order, e)
		}
	}
	r.order = append(order, r.order...)
}

// setAside keeps a chain until its lane has room. It is false when there is no place for it.
func (r *ready) setAside(e *readied, lane int) bool {
	if len(r.aside[lane]) >= laneRows {
		r.left[lane] = true
		return false
	}
	r.of[e.chain] = e
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

// makeReady readies a chain.
func (f *feeder) makeReady(chain uint64, due bool) {
	if r := f.runs[chain]; r != nil {
		r.again = true
	} else if !f.ready.add(chain, due) {
		f.notNow(chain)
		f.sweep(gate{})
	}
}

func (f *feeder) readyIfOwed(chain uint64) {
	if _, owed := f.owed[chain]; owed {
		f.makeReady(chain, false)
	}
}

// notNow tells the lane, if that is owed, that nothing of the chain may go now.
func (f *feeder) notNow(chain uint64) {
	if o, owed := f.owed[chain]; owed {
		delete(f.owed, chain)
		f.s.line.NotNow(o.lane, chain, o.unit)
	}
}

// afterwards looks at a chain again after a while.
func (f *feeder) afterwards(chain uint64, d time.Duration) {
	f.later = append(f.later, later{time.Now().Add(d), chain})
}
