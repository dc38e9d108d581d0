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
	for t := range f.probes {
		did = f.resume(t) || did
	}
	return did, nil
}

// resume drops the probe of a target whose pause has ended, and starts a sweep for its rows. It
// reports whether it did.
func (f *feeder) resume(t target) bool {
	if f.s.line.Paused(t.place()) {
		return false
	}
	delete(f.probes, t)
	f.sweep(f.storedTarget(t))
	return true
}

// forget ends the pause of a target that has no row in the table: there is nothing to probe with.
// The next event for the target finds out whether it accepts again. This is safe, because a pause
// only saves useless sends.
func (f *feeder) forget(t target) {
	f.s.line.Forget(t.place())
	f.resume(t)
}

// probe sends the first row of one ordering group to each paused target that is due.
func (f *feeder) probe(ctx context.Context) (bool, error) {
	now := time.Now()
	if len(f.probes) == 0 || now.Before(f.probeAt) || f.probeRoom() == 0 {
		return false, nil
	}
	var due []target
	next := now.Add(maxProbe)
	for t, p := range f.probes {
		switch {
		// A pause may have ended without a signal: when it turned out that only one destination of
		// the exchange or topic is at fault.
		case p.out || p.group == 0 || f.resume(t):
		case p.at.After(now):
			if p.at.Before(next) {
				next = p.at
			}
		case len(due) == probeRows:
			next = now
		default:
			due = append(due, t)
		}
	}
	// All targets are checked no more often than this, because there may be many: names may be made
	// from data.
	if f.probeAt = now.Add(minProbe / 10); next.After(f.probeAt) {
		f.probeAt = next
	}
	if len(due) == 0 {
		return false, nil
	}
	return true, f.probeWith(ctx, due)
}

// probeWith reads the first row of each target's ordering group, and sends the rows that really go
// to their target.
func (f *feeder) probeWith(ctx context.Context, due []target) error {
	of := map[uint64]target{}
	var groups []uint64
	for _, t := range due {
		p := f.probes[t]
		f.probeAfter(p, p.wait)
		// it may be in flight for long: the database may refuse its results
		if f.cannotRead(p.group) || f.runs[p.group] != nil {
			p.group = 0
			continue
		}
		if _, twice := of[p.group]; !twice {
			of[p.group] = t
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
		switch t := of[r.Group]; {
		case f.probes[t] == nil:
		case len(r.Rows) == 0: // most likely it had no room: later
			found[t] = !r.Blocked
		case f.fits(t, &r):
			found[t] = true
			out = append(out, f.probing(t, &r))
		}
	}
	for _, t := range of {
		if p := f.probes[t]; p != nil && !found[t] {
			p.group = 0
		}
	}
	f.launch(out)
	return nil
}

// fits reports whether the first row of an ordering group can be the probe of a target.
func (f *feeder) fits(t target, r *store.Run) bool {
	head := r.Rows[0]
	at, ok := f.place(head)
	return ok && !r.Blocked && !head.NextAttempt.After(time.Now()) && at.ExchangeOrTopic == t.exchangeOrTopic && (t.dest == 0 || at.Dest == t.dest)
}

// probing makes a run of the first row, as the probe of a target.
func (f *feeder) probing(t target, r *store.Run) *run {
	at, _ := f.place(r.Rows[0])
	out := f.newRun(r.Group, at, r.Rows[0])
	out.add(r.Rows[0], at)
	out.more, out.feds[0].Alone = true, true
	out.probe = f.probes[t]
	out.probe.out, out.probe.sent = true, time.Now()
	f.reserve(out)
	f.probes[t].find = nil
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

// findProbe searches an ordering group for a target that has none to probe with: its first row must
// go to the target. It reads one page, and uses no more than a tenth of the time.
func (f *feeder) findProbe(ctx context.Context) (bool, error) {
	now := time.Now()
	if now.Before(f.findAt) || f.probeRoom() == 0 {
		return false, nil
	}
	var t target
	var p *probe
	for other, q := range f.probes {
		if q.group == 0 && !q.out && !q.at.After(now) && (p == nil || q.at.Before(p.at)) {
			t, p = other, q
		}
	}
	if p == nil {
		f.findAt = now.Add(minProbe / 2)
		return false, nil
	}
	if f.resume(t) {
		return true, nil
	}
	if p.find == nil {
		p.find = &walk{of: f.storedTarget(t)}
	}
	err := f.findFor(ctx, t, p)
	f.findAt = time.Now().Add(9 * time.Since(now))
	return true, err
}

func (f *feeder) findFor(ctx context.Context, t target, p *probe) error {
	groups, err := f.next(ctx, p.find)
	if err != nil {
		return err
	}
	if p.find.ended { // nothing for now; the writer notifies of a new row
		if !p.find.found {
			f.forget(t)
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
		if len(r.Rows) > 0 && f.fits(t, &r) {
			p.group = r.Group
			f.launch([]*run{f.probing(t, &r)})
			return nil
		}
	}
	return nil
}
