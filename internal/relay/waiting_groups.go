// How many rows each chain of a lane has in the tables: while there are any, new events wait.

package relay

import "sync/atomic"

// Run is how many rows of a chain are fed at once at the most, and the count from which on a chain
// may be cut over.
const Run = 64

// maxWaiting is how many chains are counted one by one in the whole line: a few MiB of memory.
// Beyond it order costs more work, and is kept all the same, so that no operator has to choose the
// number.
const maxWaiting = 100_000

// waitingGroups counts the rows that hold the chains of one lane: while a chain's count is above
// zero, its new events are parked behind them. What is kept in memory is a count for each chain, of
// maxWaiting chains in the whole line; beyond it a count for each unit (all the lane's chains that
// go to one exchange or topic). It is the lane's goroutine's own.
type waitingGroups struct {
	room   *room
	chains map[uint64]waitingRows // those not counted with their unit
	units  map[uint64]waitingRows // a chain of such a unit is in chains no more
	most   int                    // the largest number of chains that the map has had: it does not shrink by itself
}

// waitingRows is the count of a chain or a unit: of rows in the tables, or on the way there.
type waitingRows struct {
	unit uint64
	n    uint32 // > 0
	// keep is the cut-over: at most a run is left and one was confirmed, so new events stay in
	// memory until the count is zero. Without it a chain that never rests would never leave the
	// table.
	keep bool
}

// room is how many chains the line may count one by one.
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
	return waitingGroups{room: r, chains: map[uint64]waitingRows{}, units: map[uint64]waitingRows{}}
}

// none spares the lane the look-ups.
func (h *waitingGroups) none() bool { return len(h.chains) == 0 && len(h.units) == 0 }

// of says whether the chain is held, and whether it is cut over.
func (h *waitingGroups) of(chain, unit uint64) (is, keep bool) {
	c, ok := h.chains[chain]
	if !ok {
		c, ok = h.units[unit]
	}
	return ok, c.keep
}

// add counts n rows of a chain. It is false, and nothing is counted, when the chain is not held yet
// and there is no room to count it: then its unit has to be counted as a whole.
func (h *waitingGroups) add(chain, unit uint64, n int) bool {
	if u, ok := h.units[unit]; ok {
		u.n += uint32(n)
		h.units[unit] = u
		return true
	}
	c, ok := h.chains[chain]
	if !ok && !h.room.take() {
		return false
	}
	c.unit = unit
	c.n += uint32(n)
	h.chains[chain] = c
	h.most = max(h.most, len(h.chains))
	return true
}

// whole counts the unit as a whole from now on, with n rows more.
func (h *waitingGroups) whole(unit uint64, n int) {
	u := h.units[unit]
	u.n, u.keep = u.n+uint32(n), false
	for chain, c := range h.chains {
		if c.unit == unit {
			u.n += c.n
			h.drop(chain)
		}
	}
	h.units[unit] = u
}

// sub counts one row less: it was confirmed, or has left the tables. It returns what is left, and
// whether that is of the unit as a whole. With cut the chain or unit may be cut over. A row that
// nothing counts changes nothing.
func (h *waitingGroups) sub(chain, unit uint64, cut bool) (left int, whole bool) {
	at, of := h.chains, chain
	c, ok := at[of]
	if !ok {
		at, of, whole = h.units, unit, true
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

// undo ends the cut-over. whole reports whether the chain is counted with its unit.
func (h *waitingGroups) undo(chain, unit uint64) (whole bool) {
	at, of := h.chains, chain
	c, ok := at[of]
	if !ok {
		at, of, whole = h.units, unit, true
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
	for _, at := range []map[uint64]waitingRows{h.chains, h.units} {
		for of, c := range at {
			c.keep = false
			at[of] = c
		}
	}
}

func (h *waitingGroups) drop(chain uint64) {
	delete(h.chains, chain)
	h.room.taken.Add(-1)
	if len(h.chains) == 0 && h.most > largeHolds {
		h.chains, h.most = map[uint64]waitingRows{}, 0
	}
}

// largeHolds is how many chains are worth a new map when none is left.
const largeHolds = 1000
