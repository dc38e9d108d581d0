// When the guard is on, and how much it may still defer: decisions without a clock and without I/O.

package guard

import (
	"time"
)

// state is what the guard does.
type state uint8

const (
	off state = iota
	// on: everything is deferred
	on
	// trying: the line may send, to find out whether the broker is back. No sign of a sink tells
	// that for sure: brokers may be reached and take nothing, and a connection that is only made
	// for a message stays down while none is sent. A confirm tells it.
	trying
	// full: the broker is away and the relay's own tables have no room. The line waits as without a
	// guard.
	full
)

const (
	// quietAfter is how long nothing is confirmed before the broker counts as away.
	quietAfter = 5 * time.Second
	// The wait before the guard tries: at once when the sink is up, after mostWait when it is not.
	// It doubles with each try without a confirm, so that brokers that are reached and take nothing
	// do not hold up the slot for long.
	minWait  = time.Second
	mostWait = 30 * time.Second
)

// input is what there is to decide about.
type input struct {
	now       time.Time
	up        bool
	confirmed int64 // events, in all
	waiting   bool  // events that were read wait for the broker
	disk      diskState
}

// diskState is what the database's disk says; its zero value is not known, and nothing begins then.
type diskState struct {
	tooMuch bool // the slot keeps as much WAL as guard.defer_at
	hasRoom bool // the relay's own tables are below guard.max_bytes
	hasMore bool // by a tenth: the guard goes on that was full
}

// decision is the guard's state, and what the next decision depends on.
type decision struct {
	patience time.Duration // Config.Patience

	state      state
	stateSince time.Time     // when the state began
	quietSince time.Time     // since when something waits and nothing is confirmed; zero: not so
	confirmed  int64         // input.confirmed of the last decision
	tryAfter   time.Duration // before the next try: minWait to mostWait
}

// noteFlow notes what the lanes did. It reports whether something was confirmed since the last
// time.
func (d *decision) noteFlow(in *input) (confirmed bool) {
	confirmed, d.confirmed = in.confirmed != d.confirmed, in.confirmed
	if confirmed || !in.waiting {
		d.quietSince = time.Time{}
	} else if d.quietSince.IsZero() {
		d.quietSince = in.now
	}
	return confirmed
}

// isQuiet reports whether something has waited that long without any confirm.
func (d *decision) isQuiet(now time.Time, long time.Duration) bool {
	return !d.quietSince.IsZero() && now.Sub(d.quietSince) >= long
}

// brokerIsAway reports whether the broker is away, and not merely one of its destinations: nothing
// is confirmed, and the sink says that it is down, or has had the time to blame a destination.
func (d *decision) brokerIsAway(in *input) bool {
	return d.isQuiet(in.now, quietAfter) && (!in.up || d.isQuiet(in.now, d.patience))
}

// asksDisk reports whether step needs input.disk: on healthy days nothing is asked.
func (d *decision) asksDisk(in *input) bool {
	return d.state != off || !d.quietSince.IsZero() && in.now.Sub(d.quietSince) >= quietAfter-measureEvery
}

// step makes the next decision.
func (d *decision) step(in *input) {
	confirmed := d.noteFlow(in)
	switch d.state {
	case off:
		if d.brokerIsAway(in) && in.disk.tooMuch {
			d.beginDeferring(in)
		}
	case on:
		switch waited := in.now.Sub(d.stateSince); {
		case !in.disk.hasRoom:
			d.enterState(full, in.now)
		case confirmed, in.up && waited >= d.tryAfter, waited >= mostWait:
			d.enterState(trying, in.now)
		}
	case trying:
		switch {
		case confirmed:
			d.endDeferring(in.now)
		case d.isQuiet(in.now, quietAfter):
			d.tryAfter = min(2*d.tryAfter, mostWait)
			d.beginDeferring(in)
		}
	case full:
		switch {
		case confirmed:
			d.endDeferring(in.now)
		case in.disk.hasMore && d.brokerIsAway(in):
			d.beginDeferring(in)
		}
	}
}

// beginDeferring begins to defer, or waits in state full if there is no room.
func (d *decision) beginDeferring(in *input) {
	if in.disk.hasRoom {
		d.enterState(on, in.now)
	} else {
		d.enterState(full, in.now)
	}
}

// endDeferring ends the guard: the broker confirms again.
func (d *decision) endDeferring(now time.Time) {
	d.enterState(off, now)
	d.tryAfter = minWait
}

// enterState begins a state; nothing was quiet in it yet.
func (d *decision) enterState(s state, now time.Time) {
	d.state, d.stateSince, d.quietSince = s, now, time.Time{}
}

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
	max int64 // Config.MaxBytes

	fileBytes   int64     // size of the files when it was read last
	fileBytesAt int64     // Flow.DeferredBytes then
	known       bool      // the size was read
	filesBefore int64     // size of the files when the guard was off last
	rows        int64     // bytes that the rows need, when they were counted last
	rowsAt      int64     // Flow.DeferredBytes then
	counted     bool      // rows is known
	countedAt   time.Time // when the rows were counted last, with or without success
}

// noteFiles notes the size of the files.
func (s *space) noteFiles(own int64, flow Flow, off bool) {
	s.fileBytes, s.fileBytesAt, s.known = own, flow.DeferredBytes, true
	if off {
		s.filesBefore = own
	}
}

// needsCount reports whether the rows are to be counted: the files may have much free space, and
// the last count is too old.
func (s *space) needsCount(now time.Time, in state) bool {
	every := countEvery
	if in == on || in == trying {
		every = guardedCount
	}
	return s.known && s.mayHaveFreeSpace() && (s.countedAt.IsZero() || now.Sub(s.countedAt) >= every)
}

// noteRows notes a count of the rows, or that it failed.
func (s *space) noteRows(now time.Time, rows int64, flow Flow, err error) {
	s.countedAt, s.rows, s.rowsAt, s.counted = now, rows, flow.DeferredBytes, err == nil
}

// usedBytes is how many bytes count as used. What waits in the line counts as if it were deferred:
// the guard could not stop it.
func (s *space) usedBytes(flow Flow) int64 {
	files := s.filesWith(flow)
	if !s.counted || !s.mayHaveFreeSpace() {
		return files
	}
	return min(files, s.rows+flow.DeferredBytes-s.rowsAt+flow.WaitingBytes)
}

// mayHaveFreeSpace reports whether the files may have much free space: they were large before, and
// what is deferred has not enlarged them.
func (s *space) mayHaveFreeSpace() bool {
	return s.filesBefore >= s.max/2 && s.fileBytes <= s.filesBefore+s.max/10
}

// filesWith is the size that the files may have when all that is deferred or waits is in them.
func (s *space) filesWith(flow Flow) int64 {
	return s.fileBytes + flow.DeferredBytes - s.fileBytesAt + flow.WaitingBytes
}

// resumeBelow is below how many used bytes a guard that was full begins again.
func (s *space) resumeBelow() int64 { return s.max / 10 * 9 }

func (s *space) bytesLeft(flow Flow) int64 { return max(0, s.max-s.usedBytes(flow)) }
