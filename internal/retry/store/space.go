// The retry table's space on disk.

package store

// Sizes is the space of the retry table on disk, in bytes, with the rows of all slots.
type Sizes struct {
	Table   int64 // with what is stored out of line
	Indexes int64
}

// ReclaimFrom is the size from which on Reclaim is worth an exclusive lock. The deferred events of
// a short pause stay below it, and their space is used again.
const ReclaimFrom = 64 << 20

// Large reports whether the space is worth reclaiming, once the table is empty.
func (s Sizes) Large() bool { return s.Table+s.Indexes >= ReclaimFrom }

// Reclaimed is the outcome of a Reclaim.
type Reclaimed string

// The outcomes. After all but Truncated the table is as it was.
const (
	Truncated    Reclaimed = "truncated"
	NotLarge     Reclaimed = "not large"
	NotEmpty     Reclaimed = "not empty" // of any slot or system
	InUse        Reclaimed = "in use"    // another session has a lock on it, as a dump or a vacuum
	NotPermitted Reclaimed = "not permitted"
)
