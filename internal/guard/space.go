// How much the guard may still defer.

package guard

import "time"

const (
	// countEvery is between two counts of the rows, guardedCount while events are deferred: then
	// their rows are added without a count.
	countEvery   = time.Minute
	guardedCount = 10 * time.Minute
)

// space knows how much of guard.max_bytes is used.
//
// Once the tables' files are large they stay so: space of rows that were delivered is used again,
// but rarely given back. So the rows are counted when the files have half of the limit, and what
// these need counts, if it is less. New rows that fit into the free space do not enlarge the files.
// When these have grown by a tenth of the limit nevertheless, the free space is used up, or was
// none: then they count again. So they end at the limit, or a tenth of it above their size before.
type space struct {
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
func (s *space) takeFiles(own int64, flow Flow, off bool) {
	s.own, s.ownAt, s.known = own, flow.DeferredBytes, true
	if off {
		s.before = own
	}
}

// needsCount says that the files may have much free space, and the rows were not counted of late.
func (s *space) needsCount(now time.Time, in state) bool {
	every := countEvery
	if in == on || in == trying {
		every = guardedCount
	}
	return s.known && s.mayBeFree() && (s.asked.IsZero() || now.Sub(s.asked) >= every)
}

// takeRows takes a count of the rows; an error is the lack of one.
func (s *space) takeRows(now time.Time, rows int64, flow Flow, err error) {
	s.asked, s.rows, s.rowsAt, s.counted = now, rows, flow.DeferredBytes, err == nil
}

// used is how much counts. What waits in the line counts as if it were deferred: the guard could
// not stop it.
func (s *space) used(flow Flow) int64 {
	files := s.files(flow)
	if !s.counted || !s.mayBeFree() {
		return files
	}
	return min(files, s.rows+flow.DeferredBytes-s.rowsAt+flow.WaitingBytes)
}

// mayBeFree says that the files were large before, and what is deferred has not enlarged them.
func (s *space) mayBeFree() bool { return s.before >= s.max/2 && s.own <= s.before+s.max/10 }

func (s *space) files(flow Flow) int64 {
	return s.own + flow.DeferredBytes - s.ownAt + flow.WaitingBytes
}

// enough is how much may be used for a guard that was full to go on.
func (s *space) enough() int64 { return s.max / 10 * 9 }

func (s *space) left(flow Flow) int64 { return max(0, s.max-s.used(flow)) }
