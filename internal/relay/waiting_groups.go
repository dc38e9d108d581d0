// How many rows each ordering group of a lane has in the tables: while there are any, its new
// events wait.

package relay

import "sync/atomic"

// Run is the maximum number of rows of an ordering group that are fed at once. At this count or
// below an ordering group may be cut over.
const Run = 64

// maxWaiting is how many ordering groups are counted one by one in the whole line: a few MiB of
// memory. Above this number the order is still kept, at the cost of more work. So no operator has
// to choose the number.
const maxWaiting = 100_000

// waitingGroups counts the rows that the ordering groups of one lane wait for: while an ordering
// group's count is above zero, its new events are deferred behind its rows. It keeps a count for
// each ordering group, up to maxWaiting of them in the whole line. Above that it keeps one count
// for each exchange or topic, for all ordering groups of the lane that go there. Only the lane's
// goroutine uses it.
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
	// keep is set during the cut-over: at most Run rows are left, and one row was confirmed or has
	// left the tables. New events then stay in memory until the count is zero. Without the cut-over
	// an ordering group that is always busy would never leave the table.
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

// none reports whether nothing is counted. It saves the lane the lookups.
func (w *waitingGroups) none() bool { return len(w.groups) == 0 && len(w.whole) == 0 }

// lookup reports whether the ordering group waits, and whether it is cut over.
func (w *waitingGroups) lookup(group, exchangeOrTopic uint64) (is, keep bool) {
	c, ok := w.groups[group]
	if !ok {
		c, ok = w.whole[exchangeOrTopic]
	}
	return ok, c.keep
}

// add counts n rows of an ordering group. It counts nothing and returns false when the ordering
// group does not wait yet and there is no room to count it. Then its exchange or topic must be
// counted as a whole.
func (w *waitingGroups) add(group, exchangeOrTopic uint64, n int) bool {
	if u, ok := w.whole[exchangeOrTopic]; ok {
		u.n += uint32(n)
		w.whole[exchangeOrTopic] = u
		return true
	}
	c, ok := w.groups[group]
	if !ok && !w.room.take() {
		return false
	}
	c.exchangeOrTopic = exchangeOrTopic
	c.n += uint32(n)
	w.groups[group] = c
	w.most = max(w.most, len(w.groups))
	return true
}

// countWhole counts the exchange or topic as a whole from now on, with n rows more.
func (w *waitingGroups) countWhole(exchangeOrTopic uint64, n int) {
	u := w.whole[exchangeOrTopic]
	u.n, u.keep = u.n+uint32(n), false
	for group, c := range w.groups {
		if c.exchangeOrTopic == exchangeOrTopic {
			u.n += c.n
			w.drop(group)
		}
	}
	w.whole[exchangeOrTopic] = u
}

// sub counts one row less, because a row was confirmed or has left the tables. It returns the
// count, and whether the count is for the whole exchange or topic. With cut the ordering group, or
// the exchange or topic, may be cut over. A row that is not counted changes nothing.
func (w *waitingGroups) sub(group, exchangeOrTopic uint64, cut bool) (left int, whole bool) {
	at, of := w.groups, group
	c, ok := at[of]
	if !ok {
		at, of, whole = w.whole, exchangeOrTopic, true
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
		w.drop(of)
	}
	return int(c.n), whole
}

// undo ends the cut-over. whole reports whether the ordering group is counted with its exchange or
// topic.
func (w *waitingGroups) undo(group, exchangeOrTopic uint64) (whole bool) {
	at, of := w.groups, group
	c, ok := at[of]
	if !ok {
		at, of, whole = w.whole, exchangeOrTopic, true
		if c, ok = at[of]; !ok {
			return false
		}
	}
	c.keep = false
	at[of] = c
	return whole
}

// undoAll ends every cut-over.
func (w *waitingGroups) undoAll() {
	for _, at := range []map[uint64]waitingRows{w.groups, w.whole} {
		for of, c := range at {
			c.keep = false
			at[of] = c
		}
	}
}

func (w *waitingGroups) drop(group uint64) {
	delete(w.groups, group)
	w.room.taken.Add(-1)
	if len(w.groups) == 0 && w.most > largeMap {
		w.groups, w.most = map[uint64]waitingRows{}, 0
	}
}

// largeMap is the size at which an empty map is replaced by a new one.
const largeMap = 1000
