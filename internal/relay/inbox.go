// What others leave for a lane.

package relay

// take is given rows by whoever offers them.
func (ln *lane) take(rows []*Fed) {
	ln.mu.Lock()
	ln.offered = append(ln.offered, rows...)
	asleep := ln.asleep
	ln.asleep = false
	ln.mu.Unlock()
	if asleep {
		ln.signal()
	}
}

// note is what the siding tells a lane about a chain.
type note struct {
	kind        noteKind
	chain, unit uint64
}

type noteKind uint8

const (
	buried    noteKind = iota // the row of its dying event is committed
	uncounted                 // a row that is counted has left the tables otherwise than through the lane
	nothing                   // nothing of it may be fed now
	stopping                  // every chain: what is kept in memory is to be parked
)

// tell leaves a note for the lane.
func (ln *lane) tell(n note) {
	ln.mu.Lock()
	ln.notes = append(ln.notes, n)
	asleep := ln.asleep
	ln.asleep = false
	ln.mu.Unlock()
	if asleep {
		ln.signal()
	}
}

// signal wakes the goroutine.
func (ln *lane) signal() {
	select {
	case ln.awake <- struct{}{}:
	default:
	}
}
