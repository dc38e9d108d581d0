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

// decision decides.
type decision struct {
	patience time.Duration // see Config

	state     state
	since     time.Time // of the state
	quiet     time.Time // nothing was confirmed since then while something waited; zero: not so
	confirmed int64
	wait      time.Duration // before the next try
}

// see takes what the lanes did; it reports whether something was confirmed since the last time.
func (d *decision) see(in *input) (confirmed bool) {
	confirmed, d.confirmed = in.confirmed != d.confirmed, in.confirmed
	if confirmed || !in.waiting {
		d.quiet = time.Time{}
	} else if d.quiet.IsZero() {
		d.quiet = in.now
	}
	return confirmed
}

// isQuiet says that something has waited for so long and nothing was confirmed.
func (d *decision) isQuiet(now time.Time, long time.Duration) bool {
	return !d.quiet.IsZero() && now.Sub(d.quiet) >= long
}

// away says that the broker is away, and not merely a destination of it: nothing is confirmed, and
// the sink says so itself or has had the time to blame a destination.
func (d *decision) away(in *input) bool {
	return d.isQuiet(in.now, quietAfter) && (!in.up || d.isQuiet(in.now, d.patience))
}

// asksDisk reports whether step needs input.disk: on healthy days nothing is asked.
func (d *decision) asksDisk(in *input) bool {
	return d.state != off || !d.quiet.IsZero() && in.now.Sub(d.quiet) >= quietAfter-measureEvery
}

// step decides again.
func (d *decision) step(in *input) {
	confirmed := d.see(in)
	switch d.state {
	case off:
		if d.away(in) && in.disk.tooMuch {
			d.begin(in)
		}
	case on:
		switch waited := in.now.Sub(d.since); {
		case !in.disk.hasRoom:
			d.enter(full, in.now)
		case confirmed, in.up && waited >= d.wait, waited >= mostWait:
			d.enter(trying, in.now)
		}
	case trying:
		switch {
		case confirmed:
			d.end(in.now)
		case d.isQuiet(in.now, quietAfter):
			d.wait = min(2*d.wait, mostWait)
			d.begin(in)
		}
	case full:
		switch {
		case confirmed:
			d.end(in.now)
		case in.disk.hasMore && d.away(in):
			d.begin(in)
		}
	}
}

// begin defers, if there is room.
func (d *decision) begin(in *input) {
	if in.disk.hasRoom {
		d.enter(on, in.now)
	} else {
		d.enter(full, in.now)
	}
}

func (d *decision) end(now time.Time) {
	d.enter(off, now)
	d.wait = minWait
}

// enter begins a state; nothing was quiet in it yet.
func (d *decision) enter(s state, now time.Time) {
	d.state, d.since, d.quiet = s, now, time.Time{}
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
