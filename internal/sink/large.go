// Events of which much is made: they are made into messages one at a time.

package sink

import (
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Large has large messages made one at a time, whatever the number of lanes: what is made of a row
// is up to nine times as large, and while it is made it takes several times as much. Who is inside
// never waits for a broker. Small ones are made by all lanes at once, since the lock would cost
// more than it saves. That a message becomes large is seen when it is over a small budget: then it
// is made again, alone.
type Large struct{ mu sync.Mutex }

// largeRow is the size of a row that is made alone at once, in bytes.
const largeRow = 8 << 10

// Alone reports whether an event is to be made alone at once.
func (*Large) Alone(ev *event.Event) bool { return ev.Size() > largeRow }

// Enter is called before an event is made, and Leave when what was made is the connection's or is
// dropped.
func (l *Large) Enter(rec *Record, alone bool) {
	if rec.Small = !alone; alone {
		l.mu.Lock()
	}
}

// Leave lets the next one in. again: the event is over its small budget, and to be made alone.
func (l *Large) Leave(rec *Record, alone bool) (again bool) {
	if alone {
		l.mu.Unlock()
		return false
	}
	return rec.Budget.Err() != nil
}

// Place is the encoder's Place.
func (l *Large) Place(by Encoder, ev *event.Event, rec *Record) *Fault {
	for alone := l.Alone(ev); ; alone = true {
		l.Enter(rec, alone)
		fault := by.Place(ev, rec)
		if !l.Leave(rec, alone) {
			return fault
		}
	}
}
