// The inbox of a lane: rows and notes that other goroutines leave for the lane.

package relay

// take queues rows that are offered.
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

// note is what the retry table reports to a lane about an ordering group.
type note struct {
	kind                   noteKind
	group, exchangeOrTopic uint64
}

type noteKind uint8

const (
	deadLettered noteKind = iota // the row of its dying event is committed
	// a counted row has left the tables, but not through this lane
	uncounted
	nothing  // no row of the ordering group may be fed now
	stopping // for every ordering group: defer the events that are kept in memory
)

// notify leaves a note for the lane.
func (ln *lane) notify(n note) {
	ln.mu.Lock()
	ln.notes = append(ln.notes, n)
	asleep := ln.asleep
	ln.asleep = false
	ln.mu.Unlock()
	if asleep {
		ln.signal()
	}
}

// signal wakes the lane's goroutine.
func (ln *lane) signal() {
	select {
	case ln.awake <- struct{}{}:
	default:
	}
}
