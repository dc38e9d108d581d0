// Runs: the first rows of an ordering group in flight through a lane, and the budget for them.

package retry

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// run is the first rows of an ordering group, in flight through a lane, or with results that were
// decided without sending them.
type run struct {
	group           uint64
	ordered         bool
	lane            int
	exchangeOrTopic uint64
	rows            []*store.Row
	places          []sink.Place
	feds            []*relay.Fed // empty: the run is not offered
	bytes           int64
	out             int  // rows that are with the lane
	left            int  // of the ordering group, after the last confirmed row
	more            bool // the ordering group goes on behind the run
	again           bool // something was reported of the ordering group since
	requestWaits    bool // a request waits until the ordering group is not in flight
	probe           *probe
	request         *store.Request // set: the run is a dead letter that is replayed
	sent            time.Time      // when it was offered

	judged  bool
	results []store.Result
	retryAt time.Time // set: its results were refused; they are tried again at this time
}

func (f *feeder) newRun(group uint64, at sink.Place, head *store.Row) *run {
	return &run{group: group, ordered: head.Ordered, lane: at.Lane, exchangeOrTopic: at.ExchangeOrTopic}
}

// goesAlone reports whether a row is sent apart from the lane's calls: it was rejected for a fault
// of its own. In an ordering group it is the only row of its run. Otherwise the others, which are
// with the lane, would pass it when it comes back in doubt.
func goesAlone(row *store.Row) bool { return row.Attempts > 0 }

// add adds a row that is to be offered.
func (r *run) add(row *store.Row, at sink.Place) {
	fed := &relay.Fed{Event: row.Event, Place: at, Refusals: row.Attempts, Alone: goesAlone(row)}
	if row.Ordered {
		fed.Group = row.Group
	}
	r.rows, r.places, r.feds = append(r.rows, row), append(r.places, at), append(r.feds, fed)
	r.bytes += int64(row.Event.Size())
}

// room returns how many rows, and how many bytes of them, may be read and offered now. It returns 0
// while the room is too small to be worth a statement, unless nothing is in flight.
func (f *feeder) room() (rows int, bytes int64) {
	rows, bytes = budgetRows-probeRows-f.rows, f.cfg.BudgetBytes-f.bytes
	if f.rows > 0 && (rows < budgetRows/8 || bytes < f.cfg.BudgetBytes/4) {
		return 0, 0
	}
	return max(rows, 0), max(bytes-f.cfg.BudgetBytes/8, 1)
}

// probeRoom returns how many bytes probes may have now; 0: none. room leaves a part of the budget
// for probes.
func (f *feeder) probeRoom() int64 {
	if f.rows >= budgetRows {
		return 0
	}
	return max(f.cfg.BudgetBytes-f.bytes, 0)
}

// reserve takes a run's part of the budget.
func (f *feeder) reserve(r *run) {
	f.rows += len(r.rows)
	f.bytes += r.bytes
	f.lanes[r.lane] += len(r.rows)
	f.inFlight.Add(int32(len(r.rows)))
}

// unreserve gives a run's part of the budget back.
func (f *feeder) unreserve(r *run) {
	f.rows -= len(r.rows)
	f.bytes -= r.bytes
	f.inFlight.Add(-int32(len(r.rows)))
	if f.lanes[r.lane] -= len(r.rows); f.lanes[r.lane] == 0 {
		delete(f.lanes, r.lane)
	}
	if n := f.lanes[r.lane]; n < laneRows/2 && f.ready.laneHasRoom(r.lane, laneRows-n) {
		f.sweep(target{})
	}
}

// launch offers runs to their lanes, and queues the results of runs that need no lane. When feeding
// has ended meanwhile, the rows are not offered; they stay in the table.
func (f *feeder) launch(runs []*run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || len(runs) == 0 {
		return
	}
	var feds []*relay.Fed
	for _, r := range runs {
		f.outstanding.Add(1)
		if r.request == nil {
			f.runs[r.group] = r
			// the ordering group becomes ready again when the run has finished
			delete(f.owed, r.group)
		}
		if r.out = len(r.feds); r.out == 0 {
			f.done = append(f.done, r)
			continue
		}
		for _, fed := range r.feds {
			f.feds[fed] = r
		}
		r.sent = time.Now()
		feds = append(feds, r.feds...)
		f.offered += len(r.feds)
	}
	if len(feds) == 0 {
		return
	}
	f.s.line.Offer(feds)
}

// resting returns the first ordering groups, most at most, that are not in flight and can be read.
func (f *feeder) resting(groups []uint64, most int) []uint64 {
	var rest []uint64
	for _, group := range groups {
		if f.runs[group] == nil && len(rest) < most && !f.cannotRead(group) {
			rest = append(rest, group)
		}
	}
	return rest
}
