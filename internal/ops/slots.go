// The slots, as /api/v1/slots and the metrics show them.

package ops

import "time"

// Slots is the body of GET /api/v1/slots.
type Slots struct {
	Items []SlotItem `json:"items"` // the relay's own first, then those that keep the most WAL
	Total int        `json:"total"` // the logical slots of the server: items are at most 100
}

// SlotItem is one slot, with the same values as /metrics.
type SlotItem struct {
	SlotStatus
	// LagFrom says how lag_seconds is measured: commits is the age of the oldest commit that is not
	// settled, wal the time since WAL was seen that the slot has not confirmed.
	LagFrom string `json:"lag_from"`

	Own                bool   `json:"own"`
	Database           string `json:"database"`
	Plugin             string `json:"plugin"`
	InvalidationReason string `json:"invalidation_reason"` // "" before PostgreSQL 17
	Failover           bool   `json:"failover"`            // false before PostgreSQL 17
	// of the relay's own failover slot: a standby of synchronized_standby_slots holds delivery back
	WaitingForStandby bool `json:"waiting_for_standby"`
}

// IsFresh reports whether the slot was read within the last minute.
func (out *SlotStatus) IsFresh(now time.Time) bool { return isFresh(out.CheckedAt, now) }

// Slots are the slots that are known, the relay's own first.
func (s *Snapshot) Slots(now time.Time) []SlotItem {
	own := s.Slot.item(now)
	own.WaitingForStandby = len(s.WaitingForStandby) > 0
	own.Own, own.LagFrom, own.LagSeconds = true, "commits", s.lagSeconds(now)
	items := []SlotItem{own}
	for _, other := range s.OtherSlots {
		if !isFresh(other.Checked, now) {
			continue
		}
		item := other.item(now)
		seconds := 0.0
		if !other.BehindSince.IsZero() {
			seconds = max(0, other.Checked.Sub(other.BehindSince).Seconds())
		}
		item.LagSeconds, item.LagFrom = &seconds, "wal"
		items = append(items, item)
	}
	return items
}

// item shows a slot, only its name if it was not read lately.
func (s Slot) item(now time.Time) SlotItem {
	item := SlotItem{SlotStatus: SlotStatus{Name: s.Name}, Database: s.Database, Plugin: s.Plugin, InvalidationReason: s.Invalidation, Failover: s.Failover}
	if isFresh(s.Checked, now) {
		item.describe(s)
	}
	return item
}
