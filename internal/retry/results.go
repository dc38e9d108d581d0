// The results of rows that were sent, and how they are committed.

package retry

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// judge decides what becomes of the rows of a run. It decides once, because a repeated statement
// must be the same.
//
// Of an ordering group only the first row that was rejected is judged: those behind it stay behind
// it. (Rows without an ordering group are judged one by one.)
func (f *feeder) judge(r *run) {
	if r.judged {
		return
	}
	r.judged = true
	refused := false
	for i, fed := range r.feds {
		switch {
		case fed.Outcome.State == sink.Confirmed:
			r.results = append(r.results, store.Result{Row: r.rows[i], Kind: store.Delivered})
		case fed.Outcome.State == sink.Rejected && !(refused && r.ordered):
			refused = true
			if res, ok := f.rejectedResult(r, i, fed.Outcome.Fault); ok {
				r.results = append(r.results, res)
			}
		}
	}
}

// rejectedResult returns what becomes of row i of a run, which was rejected; false when nothing is
// written. The class of the fault decides (I4).
func (f *feeder) rejectedResult(r *run, i int, fault *sink.Fault) (store.Result, bool) {
	row, at, now := r.rows[i], r.places[i], time.Now()
	res := store.Result{
		Row: row, Kind: store.Backoff, Attempts: row.Attempts,
		Class: fault.Class, Reason: fault.Reason, Text: fault.Text, Destination: fault.Destination,
	}
	switch fault.Class {
	case sink.Destination:
		f.isPaused(at, 0)
		f.noteAnswer(at, r.sent, now)
		switch {
		case f.tooOld(row, at, r.sent):
			res.Kind = store.Dead
		case f.isPaused(at, r.group): // the row waits for the end of the pause
			f.noteFault(at, fault)
			return store.Result{}, false
		default: // the pause has ended meanwhile, or there are too many pauses to note this one
			age := time.Duration(0)
			if len(f.probes) > manyPauses {
				age = now.Sub(row.DeferredAt)
			}
			res.After = f.cfg.patience(age)
		}
	case sink.Transient:
		res.Attempts++
		first := row.First
		if row.Attempts == 0 { // First, if it is set, is the time of a destination's fault
			first = now
		}
		// Attempts alone do not make a dead letter: if nothing passes there, it may not be the
		// event's fault.
		if res.Attempts >= f.cfg.MaxAttempts && f.s.line.ConfirmedSince(at.Dest, first) {
			res.Kind = store.Dead
		} else {
			res.After = f.cfg.backoff(res.Attempts)
		}
	case sink.Permanent:
		res.Attempts++
		res.Kind = store.Dead
	}
	return res, true
}

// manyPauses is the number of pauses above which the line may not record another one. (The line's
// limit is relay's maxPauses.)
const manyPauses = 5000

// commitRuns commits the results of the runs that are back, all in one statement.
func (f *feeder) commitRuns(ctx context.Context) (bool, error) {
	group := f.nextGroup()
	if len(group) == 0 {
		return false, nil
	}
	var results []store.Result
	for _, r := range group {
		f.judge(r)
		results = append(results, r.results...)
	}
	st := &statement{
		do:      func(ctx context.Context) error { return f.cfg.Store.Apply(ctx, results) },
		done:    func() { f.finishAll(group) },
		refused: func(err error) { f.refusedEnds(group, err) },
	}
	if len(results) == 0 {
		st.done()
		return true, nil
	}
	return true, f.exec(ctx, st)
}

// nextGroup takes the runs whose results are committed next.
func (f *feeder) nextGroup() (group []*run) {
	if n := len(f.groups); n > 0 {
		group = f.groups[n-1]
		f.groups = f.groups[:n-1]
		return group
	}
	now := time.Now()
	f.done = slices.DeleteFunc(f.done, func(r *run) bool {
		if r.retryAt.After(now) {
			return false
		}
		group = append(group, r)
		return true
	})
	return group
}

// refusedEnds splits results whose statement was refused, and tries the parts. The result at fault
// is tried again for ever; its ordering group is blocked meanwhile.
func (f *feeder) refusedEnds(group []*run, err error) {
	if len(group) > 1 {
		half := len(group) / 2
		f.groups = append(f.groups, group[half:], group[:half])
		return
	}
	r := group[0]
	r.retryAt = time.Now().Add(maxPause)
	f.done = append(f.done, r)
	// the lane may keep new events in memory until all rows of the ordering group are gone
	if r.ordered {
		f.s.line.NotNow(r.lane, r.group, r.exchangeOrTopic)
	}
	f.cfg.Log.Error("database refuses the result of a deferred row: it is tried again, and its key is blocked meanwhile",
		f.cfg.about(&r.results[0].Row.Event, zap.Error(err))...)
}

func (f *feeder) finishAll(group []*run) {
	for _, r := range group {
		f.s.stats.ended(r.results)
		f.countResults(r)
		f.finish(r)
	}
}

// countResults reports to the hooks what became of a run.
func (f *feeder) countResults(r *run) {
	var retried, noted, dead, exhausted, failed int
	for _, fed := range r.feds {
		switch fed.Outcome.State {
		case sink.Rejected:
			failed++
			retried++
		case sink.Confirmed:
			retried++
		default: // it was not sent
		}
	}
	for _, res := range r.results {
		if res.Kind == store.Dead {
			dead++
			f.s.cfg.logDeadLetter(res.Row, res)
		}
		if res.Reason == "" || res.Kind == store.Delivered { // it was not rejected now
			continue
		}
		failed--
		if res.Kind == store.Backoff {
			noted++
		} else if res.Class == sink.Transient {
			exhausted++
		}
	}
	hooks := &f.cfg.Hooks
	call(hooks.Retried, retried)
	call(hooks.Deferred, noted)
	call(hooks.Dead, dead)
	call(hooks.Exhausted, exhausted)
	call(hooks.Failed, failed)
}

// finish ends a run whose results are committed: its ordering group may be read again.
func (f *feeder) finish(r *run) {
	f.unreserve(r)
	f.outstanding.Add(-1)
	delete(f.runs, r.group)
	if r.probe != nil {
		f.probed(r)
	}
	if r.requestWaits {
		f.requestsAt = time.Now()
	}
	look := r.again
	for _, res := range r.results {
		switch res.Kind {
		case store.Dead:
			look = f.deadLettered(r, res.Row) || look
		case store.Backoff:
			if at := time.Now().Add(res.After); res.After > 0 && at.Before(f.dueAt) {
				f.dueAt = at
			}
		case store.Delivered:
		}
	}
	look = f.worthReading(r) || look
	if look {
		f.makeReady(r.group, false)
	}
}

// deadLettered notifies the lane of a row that became a dead letter. With on_dead_letter: continue
// the ordering group goes on without the row; with block it stays blocked. deadLettered reports
// whether the ordering group is worth reading.
func (f *feeder) deadLettered(r *run, row *store.Row) bool {
	switch {
	case !row.Ordered:
	case f.cfg.Block:
		f.s.line.NotNow(r.lane, r.group, r.exchangeOrTopic)
		return false
	default:
		f.s.line.Uncount(r.lane, r.group, r.exchangeOrTopic)
		// with the lower count a cut-over may begin
		f.owed[r.group] = owing{r.lane, r.exchangeOrTopic}
	}
	return true
}

// worthReading reports whether the ordering group is worth reading again after the results of the
// rows that were sent.
func (f *feeder) worthReading(r *run) bool {
	if len(r.feds) == 0 {
		return false
	}
	stays := slices.ContainsFunc(r.feds, func(fed *relay.Fed) bool { return fed.Outcome.State != sink.Confirmed })
	switch {
	case r.ordered && stays:
		if !slices.ContainsFunc(r.feds, func(fed *relay.Fed) bool { return fed.Outcome.State == sink.Rejected }) {
			f.readyLater(r.group, time.Second) // the lane ends
		}
		return false // it waits for the end of a pause, for its time, or for its dead letter
	case r.ordered && 0 < r.left && r.left <= maxRun:
		f.owed[r.group] = owing{r.lane, r.exchangeOrTopic}
		return true
	}
	return r.more
}
