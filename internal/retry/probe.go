// Finding out whether a paused destination accepts again.

package retry

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// openPausedDests starts a sweep for each paused destination that was opened.
func (f *feeder) openPausedDests(context.Context) (bool, error) {
	if !f.pausedDestsChanged {
		return false, nil
	}
	f.pausedDestsChanged = false
	did := false
	for g := range f.pausedDests {
		did = f.opened(g) || did
	}
	return did, nil
}

// opened forgets a paused destination that is open, and has its rows looked for.
func (f *feeder) opened(g pausedDest) bool {
	if f.s.line.Paused(g.place()) {
		return false
	}
	delete(f.pausedDests, g)
	f.sweep(f.rowsOf(g))
	return true
}

// forget has a paused destination forgotten of which nothing is in the table, and so nothing will
// find out. What is deferred meanwhile finds out again: a paused destination only spares useless
// sends.
func (f *feeder) forget(g pausedDest) {
	f.s.line.Forget(g.place())
	f.opened(g)
}

// probe sends the first row of one ordering group to each paused destination that is due.
func (f *feeder) probe(ctx context.Context) (bool, error) {
	now := time.Now()
	if len(f.pausedDests) == 0 || now.Before(f.probeAt) || f.probeRoom() == 0 {
		return false, nil
	}
	var due []pausedDest
	next := now.Add(maxProbe)
	for g, p := range f.pausedDests {
		switch {
		// A paused destination may be open without a word: when it turned out that only one
		// destination of the exchange or topic is at fault.
		case p.out || p.group == 0 || f.opened(g):
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
	// Not more often than this are all paused destinations looked through: there may be as many as
	// there are names in the data.
	if f.probeAt = now.Add(minProbe / 10); next.After(f.probeAt) {
		f.probeAt = next
	}
	if len(due) == 0 {
		return false, nil
	}
	return true, f.probeWith(ctx, due)
}

// probeWith reads the first rows of the paused destinations' ordering groups and sends those that
// go there indeed.
func (f *feeder) probeWith(ctx context.Context, due []pausedDest) error {
	of := map[uint64]pausedDest{}
	var groups []uint64
	for _, g := range due {
		p := f.pausedDests[g]
		f.probeAfter(p, p.wait)
		// perhaps for long: the database may refuse its end
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
	found := map[pausedDest]bool{}
	var out []*run
	for _, r := range runs {
		switch g := of[r.Group]; {
		case f.pausedDests[g] == nil:
		case len(r.Rows) == 0: // it had no room, most likely: later
			found[g] = !r.Blocked
		case f.fits(g, &r):
			found[g] = true
			out = append(out, f.probing(g, &r))
		}
	}
	for _, g := range of {
		if p := f.pausedDests[g]; p != nil && !found[g] {
			p.group = 0
		}
	}
	f.launch(out)
	return nil
}

// fits reports whether the head of an ordering group can be the probe of a paused destination.
func (f *feeder) fits(g pausedDest, r *store.Run) bool {
	head := r.Rows[0]
	at, ok := f.place(head)
	return ok && !r.Blocked && !head.NextAttempt.After(time.Now()) && at.ExchangeOrTopic == g.exchangeOrTopic && (g.dest == 0 || at.Dest == g.dest)
}

// probing makes a run of the head.
func (f *feeder) probing(g pausedDest, r *store.Run) *run {
	at, _ := f.place(r.Rows[0])
	out := f.newRun(r.Group, at, r.Rows[0])
	out.add(r.Rows[0], at)
	out.more = true
	out.probe = f.pausedDests[g]
	out.probe.out, out.probe.sent = true, time.Now()
	f.book(out)
	f.pausedDests[g].find = nil
	return out
}

// probed takes in what came of a probe.
func (f *feeder) probed(r *run) {
	p := r.probe
	p.out = false
	if fed := r.feds[0]; fed.Outcome.State == sink.Rejected && fed.Outcome.Fault.Class == sink.Destination {
		p.wait = min(2*p.wait, maxProbe)
	}
	f.probeAfter(p, p.wait)
}

// findProbe looks for an ordering group whose first row goes to a paused destination that no such
// ordering group is known of: one page, and not more than a tenth of the time.
func (f *feeder) findProbe(ctx context.Context) (bool, error) {
	now := time.Now()
	if now.Before(f.findAt) || f.probeRoom() == 0 {
		return false, nil
	}
	var g pausedDest
	var p *probe
	for other, q := range f.pausedDests {
		if q.group == 0 && !q.out && !q.at.After(now) && (p == nil || q.at.Before(p.at)) {
			g, p = other, q
		}
	}
	if p == nil {
		f.findAt = now.Add(minProbe / 2)
		return false, nil
	}
	if f.opened(g) {
		return true, nil
	}
	if p.find == nil {
		p.find = &walk{of: f.rowsOf(g)}
	}
	err := f.findFor(ctx, g, p)
	f.findAt = time.Now().Add(9 * time.Since(now))
	return true, err
}

func (f *feeder) findFor(ctx context.Context, g pausedDest, p *probe) error {
	groups, err := f.next(ctx, p.find)
	if err != nil {
		return err
	}
	if p.find.ended { // nothing for now; a row that comes is heard of
		if !p.find.found {
			f.forget(g)
		}
		p.find = nil
		f.probeAfter(p, maxProbe)
		return nil
	}
	free := f.restful(groups, pageRows)
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
