// Counts of rows.

package store

import "time"

// Stats counts the rows of one slot.
type Stats struct {
	At       time.Time // when it was counted; zero: not yet
	Deferred int       // rows of the retry table
	// commit time of the first row by position, which is the oldest; zero: there is none
	OldestDeferred time.Time
	Dead           int       // dead letters that are open
	OldestDead     time.Time // when the first of them became one; zero: there is none
	// of both tables on disk, with indexes and TOAST, and the rows of other slots
	Bytes int64
}

// StatsLimit is how many rows, and dead letters, are counted at most. A million take 100 ms with an
// index-only scan, and seconds where the visibility map does not allow one. What takes longer than
// statement_timeout, 15 s, is counted in part.
const StatsLimit = 10_000_000
