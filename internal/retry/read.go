// Reading rows back for the lanes, within a budget.

package retry

import (
	"context"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// budget bounds the rows that are with the lanes, or whose result is not committed.
type budget struct {
	most  int64 // bytes
	all   load
	lanes map[int]load
}

type load struct {
	rows  int
	bytes int64
}

// The limits of the budget. A lane may have half of what is free: so a stalled lane leaves room to
// others, and a lane that is alone has large batches.
const (
	budgetRows  = 10_000
	budgetBytes = 8 << 20
	probeRows   = 100 // above the limit, for probes
	maxGroups   = 500 // that one statement reads
	leastRows   = 100 // no statement for less, while rows are with the lanes
)

func newBudget(cfg *Config) budget { return budget{most: cfg.BudgetBytes, lanes: map[int]load{}} }

func (b *budget) add(lane int, e *inflight.Event) { b.change(lane, 1, b.charge(e)) }

func (b *budget) remove(lane int, e *inflight.Event) { b.change(lane, -1, -b.charge(e)) }

// charge is what a row counts: a large one three quarters of the budget, so that others can be read
// while its lane stands still, and there are two such rows at most.
func (b *budget) charge(e *inflight.Event) int64 { return min(int64(e.Size), b.most*3/4) }

func (b *budget) change(lane, rows int, bytes int64) {
	of := b.lanes[lane]
	of.rows, of.bytes = of.rows+rows, of.bytes+bytes
	b.all.rows, b.all.bytes = b.all.rows+rows, b.all.bytes+bytes
	if b.lanes[lane] = of; of.rows == 0 {
		delete(b.lanes, lane)
	}
}

// room is how many rows, and how many bytes of them, may be read now; 0: none.
func (b *budget) room() (rows int, bytes int64) {
	rows, bytes = budgetRows-b.all.rows, b.most-b.all.bytes
	if b.all.rows > 0 && (rows < leastRows || bytes < b.most/8) {
		return 0, 0
	}
	return rows, max(bytes, 1)
}

// full reports whether a lane has its share.
func (b *budget) full(lane int) bool {
	of := b.lanes[lane]
	return of.rows > (budgetRows-b.all.rows)/2 || of.bytes > (b.most-b.all.bytes)/2
}

// read reads for the wants that have waited longest, as far as there is room: half of it, because
// all may be of one lane.
func (f *feeder) read(ctx context.Context) (bool, error) {
	if len(f.wants) == 0 {
		return false, nil
	}
	rows, bytes := f.budget.room()
	var taken, probes, rest []want
	for _, w := range f.wants {
		switch {
		case w.Probe && len(probes) < probeRows && f.budget.all.rows < budgetRows+probeRows:
			probes = append(probes, w)
		case w.Probe, rows == 0, len(taken) == maxGroups, f.budget.full(w.lane):
			rest = append(rest, w)
		default:
			taken = append(taken, w)
		}
	}
	switch {
	case len(probes) > 0 && (len(taken) == 0 || !f.probed): // they take turns with the others
		f.probed = true
		return true, f.readFor(ctx, probes, append(taken, rest...), 1, max(f.budget.most-f.budget.all.bytes, 1))
	case len(taken) > 0:
		f.probed = false
		return true, f.readFor(ctx, taken, append(probes, rest...), max(rows/2/len(taken), 1), max(bytes/2, 1))
	}
	return false, nil
}

// readFor answers wants, each with the run in its place; rest are the others.
func (f *feeder) readFor(ctx context.Context, wants, rest []want, run int, bytes int64) error {
	ask := make([]store.Want, len(wants))
	for i, w := range wants {
		ask[i] = w.Want.Want
	}
	found, err := f.readParts(ctx, ask, run, bytes)
	if err != nil {
		return err
	}
	f.wants = rest
	for i, w := range wants {
		f.hand(w.lane, f.foundOf(&found[i], w.ExchangeOrTopic))
	}
	return nil
}

// readParts reads rows. A damaged row, which cannot be read, must block only what is behind it in
// its ordering group. So when a read fails, it is done in parts: fewer groups, then fewer rows. A
// group whose first row cannot be read is Failed.
func (f *feeder) readParts(ctx context.Context, wants []store.Want, run int, bytes int64) ([]store.Run, error) {
	reportWork(f.cfg.Hooks.Feeder, true) // each part may have large rows, which take their time
	runs, err := f.cfg.Store.Read(ctx, wants, run, bytes, f.t.writer.acked.Load())
	switch {
	case !store.IsRefused(err):
		return runs, err
	case len(wants) == 1 && run > 1:
		return f.readParts(ctx, wants, run/2, bytes)
	case len(wants) == 1:
		if text := err.Error(); !f.logged[text] {
			if len(f.logged) == maxGroups {
				clear(f.logged)
			}
			f.logged[text] = true
			f.cfg.Log.Error("cannot read a deferred row: it is tried again and its key waits meanwhile, nothing is dropped",
				zap.Int64("ordering_group", int64(wants[0].Group)), zap.Error(err))
		}
		return []store.Run{{Group: wants[0].Group, Failed: true}}, nil
	}
	half := len(wants) / 2
	if runs, err = f.readParts(ctx, wants[:half], run, bytes); err != nil {
		return nil, err
	}
	for _, r := range runs {
		for _, row := range r.Rows {
			bytes -= int64(row.Event.Size())
		}
	}
	more, err := f.readParts(ctx, wants[half:], run, max(bytes, 1))
	return append(runs, more...), err
}

// foundOf makes what a lane takes of rows that were read. Rows whose place is not known now are
// left out, and so is what is behind them.
func (f *feeder) foundOf(r *store.Run, exchangeOrTopic uint64) order.Found {
	found := order.Found{Group: r.Group, ExchangeOrTopic: exchangeOrTopic, More: r.More, Blocked: r.Blocked, Failed: r.Failed}
	for i, row := range r.Rows {
		place, known := f.cfg.Sink.Place(&row.Event)
		if !known {
			found.More, found.Failed = true, i == 0
			break
		}
		e := &inflight.Event{Event: row.Event, Place: place, Size: row.Event.Size(), Row: row, Attempts: row.Attempts}
		if row.Ordered {
			e.Group = row.Group
		}
		found.Rows = append(found.Rows, e)
	}
	return found
}

// hand gives what was found to a lane.
func (f *feeder) hand(lane int, found order.Found) {
	for _, e := range found.Rows {
		f.budget.add(lane, e)
	}
	f.inFlight.Add(int32(len(found.Rows)))
	f.t.line.Found(lane, []order.Found{found})
}
