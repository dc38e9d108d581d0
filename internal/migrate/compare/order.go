// The order of events within a key, compared between the two sides.

package compare

// group is an ordering group, which is compared in order: a key within a topic or exchange.
type group struct {
	exchange  int // or topic
	key       string
	unordered bool // it has no key: its events are spread over partitions
}

// orders finds pairs that stand the other way round on the two sides. It knows an ordering group
// only while one of its events waits for its counterpart: when none does, everything that comes
// later is later on both sides.
type orders map[group]*passed

// passed is how far the pairs of an ordering group have come on each side.
type passed struct {
	waiting int
	last    [2]int64  // the number of the last message that was paired
	id      [2]string // and its id
}

func (o orders) wait(c group) {
	p := o[c]
	if p == nil {
		p = &passed{}
		o[c] = p
	}
	p.waiting++
}

// gone takes out an event that will not be paired.
func (o orders) gone(c group) {
	p := o[c]
	if p.waiting--; p.waiting == 0 {
		delete(o, c)
	}
}

// pair takes a pair by the numbers of its messages on both sides; the one that waited has left.
// When an earlier pair stands the other way round, it returns that one's id and the side on which
// this event comes first.
func (o orders) pair(c group, id string, at [2]int64) (before string, first Side, swapped bool) {
	p := o[c]
	if p == nil {
		return "", 0, false
	}
	for side := range at {
		if at[side] < p.last[side] {
			before, first, swapped = p.id[side], Side(side), true
		} else {
			p.last[side], p.id[side] = at[side], id
		}
	}
	o.gone(c)
	return before, first, swapped
}
