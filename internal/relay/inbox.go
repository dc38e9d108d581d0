// The inbox of a lane: rows and notes that others leave for it.

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
	// a row that is counted has left the tables by another way than this lane
	uncounted
	nothing  // nothing of it may be fed now
	stopping // for every ordering group: defer what is kept in memory
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

// signal wakes the goroutine.
func (ln *lane) signal() {
	select {
	case ln.awake <- struct{}{}:
	default:
	}
}
