// The results of rows, and how they are committed.

package retry

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// takeResult takes a result from a lane.
func (f *feeder) takeResult(r order.Result) {
	switch {
	case r.Request != nil:
		f.takeAnswer(r)
	case r.Returned:
		f.budget.remove(r.Event.Place.Lane, r.Event)
		f.inFlight.Add(-1)
		if r.Event.Refusal != nil {
			call(f.cfg.Hooks.Retried, 1)
		}
	default:
		f.results.fresh = append(f.results.fresh, r)
	}
}

// commit commits the results that have come, in one statement.
func (f *feeder) commit(ctx context.Context) (bool, error) {
	part := f.results.next()
	if len(part) == 0 {
		return false, nil
	}
	results := make([]store.Result, len(part))
	for i := range part {
		results[i] = part[i].Result
	}
	err := f.pace.untilKnown(ctx, f.cfg.Hooks.Feeder, func() error { return f.cfg.Store.Apply(ctx, results) })
	switch {
	case err == nil:
		f.committed(part)
	case store.IsRefused(err):
		f.refusedResults(part, err)
	default:
		return false, err
	}
	return true, nil
}

// refusedResults isolates the result that the database refuses. Nothing passes its row meanwhile.
func (f *feeder) refusedResults(part []order.Result, err error) {
	if f.results.halve(part) {
		return
	}
	f.results.rest(part)
	f.cfg.Log.Error("database refuses the result of a deferred row: it is tried again, and its key is blocked meanwhile",
		f.cfg.about(&part[0].Event.Event, zap.Error(err))...)
}

// committed does what follows from committed results.
func (f *feeder) committed(part []order.Result) {
	f.t.stats.moved.Store(true)
	f.count(part)
	byLane := map[int][]order.Result{}
	for _, r := range part {
		lane := r.Event.Place.Lane
		f.budget.remove(lane, r.Event)
		byLane[lane] = append(byLane[lane], r)
	}
	f.inFlight.Add(int32(-len(part)))
	f.delivered = true
	for lane, of := range byLane {
		f.t.line.Finished(lane, of)
	}
}

// count reports to the hooks what became of rows.
func (f *feeder) count(results []order.Result) {
	var retried, noted, dead, exhausted int
	for _, r := range results {
		res := r.Result
		if res.Kind == store.Dead {
			dead++
			f.cfg.logDeadLetter(res.Row, res)
		}
		switch {
		case res.Kind == store.Delivered:
			retried++
		case r.Event.Refusal == nil: // it was too old, and not sent
		case res.Kind == store.Backoff:
			retried++
			noted++
		default:
			retried++
			if res.Class == sink.Transient {
				exhausted++
			}
		}
	}
	hooks := &f.cfg.Hooks
	call(hooks.Retried, retried)
	call(hooks.Deferred, noted)
	call(hooks.Dead, dead)
	call(hooks.Exhausted, exhausted)
}

// reclaim gives the table's space back once nothing is deferred.
func (f *feeder) reclaim(ctx context.Context) (bool, error) {
	now := time.Now()
	if !f.delivered || now.Before(f.reclaimAt) || f.t.stats.snapshot().Deferred > 0 {
		return false, nil
	}
	f.reclaimAt = now.Add(reclaimEvery)
	done, err := f.cfg.Store.Reclaim(ctx)
	f.delivered = err != nil || done == store.InUse // a dump, say: it is tried again
	if done == store.Truncated {
		f.cfg.Log.Info("the retry table is empty again: its space was given back")
	}
	return err == nil, err
}

const reclaimEvery = time.Minute
