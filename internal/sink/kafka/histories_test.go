//go:build !nightly

package kafka

import "time"

// usualHistories is how many runs of each plan TestHistories plays, and flowPause the pause of a
// flow between two batches.
const (
	usualHistories = 1
	flowPause      = 4 * time.Millisecond
)
