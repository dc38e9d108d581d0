// Probes: they find out whether a paused destination accepts again.

package retry

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// sweepResumed starts a sweep for each target whose pause has ended.
func (f *feeder) sweepResumed(context.Context) (bool, error) {
	if !f.resumed {
		return false, nil
	}
	f.resumed = false
	did := false
	for g := range f.probes {
		did = f.resume(g) || did
	}
	return did, nil
}

// resume drops the probe of a target whose pause has ended, and starts a sweep for its rows. It
// reports whether it did.
func (f *feeder) resume(g target) bool {
	if f.s.line.Paused(g.place()) {
		return false
	}
	delete(f.probes, g)
	f.sweep(f.rowsOf(g))
	return true
}

// forget ends the pause of a target that has no row in the table, and so nothing to probe with. The
// next event for it finds out: a pause only saves useless sends.
func (f *feeder) forget(g target) {
	f.s.line.Forget(g.place())
	f.resume(g)
}

// probe sends the first row of one ordering group to each paused target that is due.
func (f *feeder) probe(ctx context.Context) (bool, error) {
	now := time.Now()
	if len(f.probes) == 0 || now.Before(f.probeAt) || f.probeRoom() == 0 {
		return false, nil
	}
	var due []target
	next := now.Add(maxProbe)
	for g, p := range f.probes {
		switch {
		// A pause may have ended unnoticed: when it turned out that only one destination of the
		// exchange or topic is at fault.
		case p.out || p.group == 0 || f.resume(g):
		case p.at.After(now):
			if p.at.Before(next) {
				next = p.at
			}
		case len(due) == probeRows:
			next = now
		default:
			due = append(due, g)
		}
	}
	// All targets are checked no more often than this: there may be as many as there are names in
	// the data.
	if f.probeAt = now.Add(minProbe / 10); next.After(f.probeAt) {
		f.probeAt = next
	}
	if len(due) == 0 {
		return false, nil
	}
	return true, f.probeWith(ctx, due)
}

// probeWith reads the first row of each target's ordering group and sends those that really go
// there.
func (f *feeder) probeWith(ctx context.Context, due []target) error {
	of := map[uint64]target{}
	var groups []uint64
	for _, g := range due {
		p := f.probes[g]
		f.probeAfter(p, p.wait)
		// perhaps for long: the database may refuse its results
		if f.cannotRead(p.group) || f.runs[p.group] != nil {
			p.group = 0
			continue
		}
		if _, twice := of[p.group]; !twice {
			of[p.group] = g
			groups = append(groups, p.group)
		}
	}
	if len(groups) == 0 {
		return nil
	}
	acked := f.s.writer.acked.Load()
	runs, err := f.read(ctx, groups, 1, f.probeRoom(), acked)
	if err != nil {
		return err
	}
	found := map[target]bool{}
	var out []*run
	for _, r := range runs {
		switch g := of[r.Group]; {
		case f.probes[g] == nil:
		case len(r.Rows) == 0: // most likely it had no room: later
			found[g] = !r.Blocked
		case f.fits(g, &r):
			found[g] = true
			out = append(out, f.probing(g, &r))
		}
	}
	for _, g := range of {
		if p := f.probes[g]; p != nil && !found[g] {
			p.group = 0
		}
	}
	f.launch(out)
	return nil
}

// fits reports whether the head of an ordering group can be the probe of a target.
func (f *feeder) fits(g target, r *store.Run) bool {
	head := r.Rows[0]
	at, ok := f.place(head)
	return ok && !r.Blocked && !head.NextAttempt.After(time.Now()) && at.ExchangeOrTopic == g.exchangeOrTopic && (g.dest == 0 || at.Dest == g.dest)
}

// probing makes a run of the head, as the probe of a target.
func (f *feeder) probing(g target, r *store.Run) *run {
	at, _ := f.place(r.Rows[0])
	out := f.newRun(r.Group, at, r.Rows[0])
	out.add(r.Rows[0], at)
	out.more = true
	out.probe = f.probes[g]
	out.probe.out, out.probe.sent = true, time.Now()
	f.book(out)
	f.probes[g].find = nil
	return out
}

// probed handles the result of a probe.
func (f *feeder) probed(r *run) {
	p := r.probe
	p.out = false
	if fed := r.feds[0]; fed.Outcome.State == sink.Rejected && fed.Outcome.Fault.Class == sink.Destination {
		p.wait = min(2*p.wait, maxProbe)
	}
	f.probeAfter(p, p.wait)
}

// findProbe searches an ordering group whose first row goes to a target that has none to probe
// with: one page, and no more than a tenth of the time.
func (f *feeder) findProbe(ctx context.Context) (bool, error) {
	now := time.Now()
	if now.Before(f.findAt) || f.probeRoom() == 0 {
		return false, nil
	}
	var g target
	var p *probe
	for other, q := range f.probes {
		if q.group == 0 && !q.out && !q.at.After(now) && (p == nil || q.at.Before(p.at)) {
			g, p = other, q
		}
	}
	if p == nil {
		f.findAt = now.Add(minProbe / 2)
		return false, nil
	}
	if f.resume(g) {
		return true, nil
	}
	if p.find == nil {
		p.find = &walk{of: f.rowsOf(g)}
	}
	err := f.findFor(ctx, g, p)
	f.findAt = time.Now().Add(9 * time.Since(now))
	return true, err
}

func (f *feeder) findFor(ctx context.Context, g target, p *probe) error {
	groups, err := f.next(ctx, p.find)
	if err != nil {
		return err
	}
	if p.find.ended { // nothing for now; the writer notifies of a new row
		if !p.find.found {
			f.forget(g)
		}
		p.find = nil
		f.probeAfter(p, maxProbe)
		return nil
	}
	free := f.resting(groups, pageRows)
	if len(free) == 0 {
		return nil
	}
	runs, err := f.read(ctx, free, 1, min(f.probeRoom(), max(f.cfg.BudgetBytes/8, 1)), f.s.writer.acked.Load())
	if err != nil {
		return err
	}
	for _, r := range runs {
		if len(r.Rows) > 0 && f.fits(g, &r) {
			p.group = r.Group
			f.launch([]*run{f.probing(g, &r)})
			return nil
		}
	}
	return nil
}
