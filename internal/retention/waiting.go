// Since when rows wait that should have been deleted.

package retention

import "time"

// noteUnsettled notes whether a table has rows of which another slot has settled nothing: its
// record is not ready, is of another system, or does not say. Such a table is not looked at.
func (p *pass) noteUnsettled(table int, nothing bool) {
	switch {
	case !nothing:
		delete(p.unsettled, table)
	case p.unsettled[table].IsZero():
		p.unsettled[table] = p.began
	}
}

// heldBack is another slot that has not settled what is old enough, and since when the oldest such
// row waits. That does not depend on what this pass looks at: while nothing more is settled, no
// pass looks again.
func (p *pass) heldBack() (slot string, since time.Time) {
	late := map[int]time.Time{}
	for _, l := range p.leaves {
		for _, z := range l.zones {
			late[l.of] = earlier(late[l.of], z.late)
		}
	}
	for i, b := range p.bounds {
		waits := earlier(late[i], p.unsettled[i])
		if b.heldBy == "" || waits.IsZero() {
			continue
		}
		if slot == "" {
			slot = b.heldBy
		}
		since = earlier(since, waits)
	}
	return slot, since
}

// failedSince is since when the oldest zone waits in which something has failed.
func (p *pass) failedSince() (since time.Time) {
	for _, l := range p.leaves {
		for _, z := range l.zones {
			if z.failed {
				since = earlier(since, z.due)
			}
		}
	}
	return since
}

// earlier is the earlier of two times, of which a zero one is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
