// Counts of rows.

package store

import "time"

// Tally is what the tables hold of one slot.
type Tally struct {
	At           time.Time // when it was counted; zero: not yet
	Parked       int       // rows of the retry table
	OldestParked time.Time // commit time of the first of them by position, which is the oldest; zero: there is none
	Dead         int       // letters that are open
	OldestDead   time.Time // when the first of them died; zero: there is none
}

// TallyLimit is how many rows, and letters, are counted at the most. A million are 100 ms where the
// visibility map lets the index alone be read, and seconds where it does not; statement_timeout is
// 15 s.
const TallyLimit = 1_000_000
