// How much the guard may still defer.

package guard

import "time"

const (
	// countEvery is between two counts of the rows, guardedCount while events are deferred: then
	// their rows are added without a count.
	countEvery   = time.Minute
	guardedCount = 10 * time.Minute
)

// room knows how much of guard.max_bytes is used.
//
// The tables' files count as long as there is room by them. Once they are large they stay so: space
// of rows that were delivered is used again, but rarely given back. So when the files are near the
// limit the rows are counted, and what these need counts, if it is less. New rows that fit into the
// free space do not enlarge the files; when the files grow nevertheless, they count again.
type room struct {
	max int64

	own     int64 // size of the files
	ownAt   int64 // Flow.DeferredBytes when it was read
	known   bool  // own was read
	before  int64 // size of the files while nothing was deferred
	rows    int64 // what the rows need
	rowsAt  int64 // Flow.DeferredBytes when they were counted
	counted bool  // rows is known
	asked   time.Time
}

// takeFiles takes the size of the files.
func (r *room) takeFiles(own int64, flow Flow, off bool) {
	r.own, r.ownAt, r.known = own, flow.DeferredBytes, true
	if off {
		r.before = own
	}
}

// needsCount says that the files leave little room, and the rows were not counted of late.
func (r *room) needsCount(now time.Time, flow Flow, s state) bool {
	every := countEvery
	if s == on || s == trying {
		every = guardedCount
	}
	return r.known && r.files(flow) >= r.enough() && (r.asked.IsZero() || now.Sub(r.asked) >= every)
}

// takeRows takes a count of the rows; an error is the lack of one.
func (r *room) takeRows(now time.Time, rows int64, flow Flow, err error) {
	r.asked, r.rows, r.rowsAt, r.counted = now, rows, flow.DeferredBytes, err == nil
}

// used is how much counts. What waits in the line counts as if it were deferred: the guard could
// not stop it.
func (r *room) used(flow Flow) int64 {
	files := r.files(flow)
	if !r.counted || r.own > max(r.max, r.before+r.max/10) {
		return files
	}
	return min(files, r.rows+flow.DeferredBytes-r.rowsAt+flow.WaitingBytes)
}

func (r *room) files(flow Flow) int64 {
	return r.own + flow.DeferredBytes - r.ownAt + flow.WaitingBytes
}

// enough is how much may be used for a guard that was full to go on.
func (r *room) enough() int64 { return r.max / 10 * 9 }

func (r *room) left(flow Flow) int64 { return max(0, r.max-r.used(flow)) }
