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

// note is what the retry table tells a lane about an ordering group.
type note struct {
	kind                   noteKind
	group, exchangeOrTopic uint64
}

type noteKind uint8

const (
	deadLettered noteKind = iota // the row of its dying event is committed
	// a row that is counted has left the tables otherwise than through the lane
	uncounted
	nothing  // nothing of it may be fed now
	stopping // every ordering group: what is kept in memory is to be deferred
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
