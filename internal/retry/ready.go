package retry

// ready are the chains to look at, in order, each once. It is bounded: what finds no place is found again by a sweep.
type ready struct {
	order []*readied
	of    map[uint64]*readied
	aside map[int][]*readied // those whose lane has rows enough for now
}

type readied struct {
	chain uint64
	due   bool // the backoff of its head is over
	aside bool
}

const readyLimit = 10_000

func newReady() ready { return ready{of: map[uint64]*readied{}, aside: map[int][]*readied{}} }

// add is false when there is no place for the chain.
func (r *ready) add(chain uint64, due bool) bool {
	if e := r.of[chain]; e != nil {
		e.due = e.due || due
		return true
	}
	if len(r.of) >= readyLimit {
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

// setAside keeps a chain until its lane has room.
func (r *ready) setAside(e *readied, lane int) {
	e.aside = true
	r.of[e.chain] = e
	r.aside[lane] = append(r.aside[lane], e)
}

// laneHasRoom takes back what was set aside for the lane.
func (r *ready) laneHasRoom(lane int) {
	for _, e := range r.aside[lane] {
		e.aside = false
		r.order = append(r.order, e)
	}
	delete(r.aside, lane)
}
