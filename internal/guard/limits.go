// The limits of the guard, as they are configured.

package guard

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Limits are when the guard begins and how much it may defer; without a guard they are zero.
type Limits struct {
	DeferAt  int64 // bytes of WAL; 0: Percent counts
	Percent  int   // of max_slot_wal_keep_size
	MaxBytes int64 // of the relay's own tables
}

// IsSet reports whether there is a guard.
func (l Limits) IsSet() bool { return l.MaxBytes > 0 }

// At is how much WAL the slot may keep until the guard begins; keep is max_slot_wal_keep_size in
// bytes, below 0 without a limit. A percentage of no limit is an error that a configuration cannot
// show.
func (l Limits) At(keep int64) (int64, error) {
	switch {
	case l.Percent == 0:
		return l.DeferAt, nil
	case keep < 0:
		return 0, &event.Stop{
			Code: event.ExitUsage, Reason: "config",
			What: fmt.Sprintf("guard.defer_at is %d%% of max_slot_wal_keep_size, which is -1: the server sets no limit", l.Percent),
			Fix:  "set guard.defer_at to a size such as 2GiB, or ALTER SYSTEM SET max_slot_wal_keep_size",
		}
	}
	return keep / 100 * int64(l.Percent), nil
}

// RowOverhead is what a deferred event takes on disk next to itself, with its entries in the
// indexes.
const RowOverhead = 1024

// LeastMaxBytes is the smallest MaxBytes with which a guard can defer, in whole MiB. All that may
// be in flight counts as if it were deferred, see Guard.state, and a guard that was full goes on
// when a tenth is free: a quarter on top leaves room for both.
func LeastMaxBytes(inFlight int, inFlightBytes int64) int64 {
	const mib = 1 << 20
	need := inFlightBytes + int64(inFlight)*RowOverhead
	return (need + need/4 + mib - 1) / mib * mib
}
