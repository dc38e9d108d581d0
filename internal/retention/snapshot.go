// What is seen from outside.

package retention

import "time"

// Snapshot is what status and metrics show.
type Snapshot struct {
	LastPass time.Time // when the last complete pass ended; zero: none yet
	// since when the oldest row that may be deleted waits for that, as far as it is known; zero:
	// none does
	Overdue time.Time
	// another slot of the same tables, or a record of one, has not settled what is old enough here;
	// "": none
	HeldBy string
	Error  string // why the last pass was not complete; "": it was
}

// Snapshot may be called at any time.
func (r *Retention) Snapshot() Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.snapshot
}

func (r *Retention) update(change func(*Snapshot)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.snapshot)
}
