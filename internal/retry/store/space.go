// The retry table's space on disk.

package store

// Reclaimed is the outcome of a Reclaim.
type Reclaimed string

// The outcomes. After all but Truncated the table is as it was.
const (
	Truncated Reclaimed = "truncated"
	InUse     Reclaimed = "in use" // another session has a lock on it, as a dump or a vacuum
	// it is small, or has a row of any slot or system, or the role has not the right
	Kept Reclaimed = "kept"
)
