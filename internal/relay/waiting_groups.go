// How many rows each ordering group of a lane has in the tables: while it has any, its new events
// wait.

package relay

import "sync/atomic"

// Run is how many rows of an ordering group are fed at once at most, and the count at or below
// which an ordering group may be cut over.
const Run = 64

// maxWaiting is how many ordering groups are counted one by one in the whole line: a few MiB of
// memory. Beyond it order costs more work but is kept, so no operator has to choose the number.
const maxWaiting = 100_000

// waitingGroups counts the rows that the ordering groups of one lane wait for: while an ordering
// group's count is above zero, its new events are deferred behind its rows. It keeps a count for
// each ordering group, for maxWaiting of them in the whole line; beyond that a count for each
// exchange or topic (for all ordering groups of the lane that go there). Only the lane's goroutine
// uses it.
type waitingGroups struct {
	room   *room
	groups map[uint64]waitingRows // those not counted with their exchange or topic
	// exchanges or topics counted as a whole; none of their ordering groups is in groups
	whole map[uint64]waitingRows
	// the most ordering groups that the map has had: a map does not shrink by itself
	most int
}

// waitingRows is the count of an ordering group or an exchange or topic: of rows in the tables, or
// on the way there.
type waitingRows struct {
	exchangeOrTopic uint64
	n               uint32 // > 0
	// keep is the cut-over: at most a run is left and one row was confirmed, so new events stay in
	// memory until the count is zero. Without it an ordering group that is always busy would never
	// leave the table.
	keep bool
}

// room is how many ordering groups the line may count one by one.
type room struct {
	limit int64
	taken atomic.Int64
}

// take takes a place; false when there is none.
func (r *room) take() bool {
	if r.taken.Add(1) > r.limit {
		r.taken.Add(-1)
		return false
	}
	return true
}

func newWaitingGroups(r *room) waitingGroups {
	return waitingGroups{room: r, groups: map[uint64]waitingRows{}, whole: map[uint64]waitingRows{}}
}

// none reports that nothing is counted, which saves the lane the lookups.
func (h *waitingGroups) none() bool { return len(h.groups) == 0 && len(h.whole) == 0 }

// of reports whether the ordering group waits, and whether it is cut over.
func (h *waitingGroups) of(group, exchangeOrTopic uint64) (is, keep bool) {
	c, ok := h.groups[group]
	if !ok {
		c, ok = h.whole[exchangeOrTopic]
	}
	return ok, c.keep
}

// add counts n rows of an ordering group. It is false, and nothing is counted, when the ordering
// group does not wait yet and there is no room to count it: then its exchange or topic has to be
// counted as a whole.
func (h *waitingGroups) add(group, exchangeOrTopic uint64, n int) bool {
	if u, ok := h.whole[exchangeOrTopic]; ok {
		u.n += uint32(n)
		h.whole[exchangeOrTopic] = u
		return true
	}
	c, ok := h.groups[group]
	if !ok && !h.room.take() {
		return false
	}
	c.exchangeOrTopic = exchangeOrTopic
	c.n += uint32(n)
	h.groups[group] = c
	h.most = max(h.most, len(h.groups))
	return true
}

// countWhole counts the exchange or topic as a whole from now on, with n rows more.
func (h *waitingGroups) countWhole(exchangeOrTopic uint64, n int) {
	u := h.whole[exchangeOrTopic]
	u.n, u.keep = u.n+uint32(n), false
	for group, c := range h.groups {
		if c.exchangeOrTopic == exchangeOrTopic {
			u.n += c.n
			h.drop(group)
		}
	}
	h.whole[exchangeOrTopic] = u
}

// sub counts one row less: it was confirmed, or has left the tables. It returns the count, and
// whether that is for the exchange or topic as a whole. With cut the ordering group or exchange or
// topic may be cut over. A row that is not counted changes nothing.
func (h *waitingGroups) sub(group, exchangeOrTopic uint64, cut bool) (left int, whole bool) {
	at, of := h.groups, group
	c, ok := at[of]
	if !ok {
		at, of, whole = h.whole, exchangeOrTopic, true
		if c, ok = at[of]; !ok {
			return 0, false
		}
	}
	c.n--
	c.keep = c.keep || cut && c.n <= Run
	switch {
	case c.n > 0:
		at[of] = c
	case whole:
		delete(at, of)
	default:
		h.drop(of)
	}
	return int(c.n), whole
}

// undo ends the cut-over. whole reports whether the ordering group is counted with its exchange or
// topic.
func (h *waitingGroups) undo(group, exchangeOrTopic uint64) (whole bool) {
	at, of := h.groups, group
	c, ok := at[of]
	if !ok {
		at, of, whole = h.whole, exchangeOrTopic, true
		if c, ok = at[of]; !ok {
			return false
		}
	}
	c.keep = false
	at[of] = c
	return whole
}

// undoAll ends every cut-over.
func (h *waitingGroups) undoAll() {
	for _, at := range []map[uint64]waitingRows{h.groups, h.whole} {
		for of, c := range at {
			c.keep = false
			at[of] = c
		}
	}
}

func (h *waitingGroups) drop(group uint64) {
	delete(h.groups, group)
	h.room.taken.Add(-1)
	if len(h.groups) == 0 && h.most > largeMap {
		h.groups, h.most = map[uint64]waitingRows{}, 0
	}
}

// largeMap is the size from which on an emptied map is replaced by a new one.
const largeMap = 1000
