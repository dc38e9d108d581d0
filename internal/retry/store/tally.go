// Counts of rows.

package store

import "time"

// Stats is what the tables hold of one slot.
type Stats struct {
	At       time.Time // when it was counted; zero: not yet
	Deferred int       // rows of the retry table
	// commit time of the first of them by position, which is the oldest; zero: there is none
	OldestDeferred time.Time
	Dead           int       // dead letters that are open
	OldestDead     time.Time // when the first of them died; zero: there is none
}

// StatsLimit is how many rows, and dead letters, are counted at the most. A million are 100 ms
// where the visibility map lets the index alone be read, and seconds where it does not;
// statement_timeout is 15 s.
const StatsLimit = 1_000_000
