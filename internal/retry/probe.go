// Finding out whether a paused destination accepts again.

package retry

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// openGates starts a sweep for each gate that was opened.
func (f *feeder) openGates(context.Context) (bool, error) {
	if !f.gatesChanged {
		return false, nil
	}
	f.gatesChanged = false
	did := false
	for g := range f.gates {
		did = f.opened(g) || did
	}
	return did, nil
}

// opened forgets a gate that is open, and has its rows looked for.
func (f *feeder) opened(g gate) bool {
	if f.s.line.Paused(g.place()) {
		return false
	}
	delete(f.gates, g)
	f.sweep(f.rowsOf(g))
	return true
}

// forget has a gate forgotten of which nothing is in the table, and so nothing will find out. What
// is parked meanwhile finds out anew: a gate only spares useless sends.
func (f *feeder) forget(g gate) {
	f.s.line.Forget(g.place())
	f.opened(g)
}

// probe sends the first row of one chain to each gate that is due.
func (f *feeder) probe(ctx context.Context) (bool, error) {
	now := time.Now()
	if len(f.gates) == 0 || now.Before(f.probeAt) || f.probeRoom() == 0 {
		return false, nil
	}
	var due []gate
	next := now.Add(maxProbe)
	for g, p := range f.gates {
		switch {
		// A gate may be open without a word: when it turned out that only one destination of the
		// unit is at fault.
		case p.out || p.chain == 0 || f.opened(g):
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
	// Not more often than this are all gates looked through: there may be as many as there are
	// names in the data.
	if f.probeAt = now.Add(minProbe / 10); next.After(f.probeAt) {
		f.probeAt = next
	}
	if len(due) == 0 {
		return false, nil
	}
	return true, f.probeWith(ctx, due)
}

// probeWith reads the first rows of the gates' chains and sends those that go there indeed.
func (f *feeder) probeWith(ctx context.Context, due []gate) error {
	of := map[uint64]gate{}
	var chains []uint64
	for _, g := range due {
		p := f.gates[g]
		f.probeAfter(p, p.wait)
		if f.cannotRead(p.chain) || f.runs[p.chain] != nil { // perhaps for long: the database may refuse its end
			p.chain = 0
			continue
		}
		if _, twice := of[p.chain]; !twice {
			of[p.chain] = g
			chains = append(chains, p.chain)
		}
	}
	if len(chains) == 0 {
		return nil
	}
	acked := f.s.writer.acked.Load()
	runs, err := f.read(ctx, chains, 1, f.probeRoom(), acked)
	if err != nil {
		return err
	}
	found := map[gate]bool{}
	var out []*run
	for _, r := range runs {
		switch g := of[r.Chain]; {
		case f.gates[g] == nil:
		case len(r.Rows) == 0: // it had no room, most likely: later
			found[g] = !r.Blocked
		case f.fits(g, &r):
			found[g] = true
			out = append(out, f.probing(g, &r))
		}
	}
	for _, g := range of {
		if p := f.gates[g]; p != nil && !found[g] {
			p.chain = 0
		}
	}
	f.launch(out)
	return nil
}

// fits reports whether the head of a chain can be the probe of a gate.
func (f *feeder) fits(g gate, r *store.Run) bool {
	head := r.Rows[0]
	at, ok := f.place(head)
	return ok && !r.Blocked && !head.NextAttempt.After(time.Now()) && at.Unit == g.unit && (g.dest == 0 || at.Dest == g.dest)
}

// probing makes a run of the head.
func (f *feeder) probing(g gate, r *store.Run) *run {
	at, _ := f.place(r.Rows[0])
	out := f.newRun(r.Chain, at, r.Rows[0])
	out.add(r.Rows[0], at)
	out.more = true
	out.probe = f.gates[g]
	out.probe.out, out.probe.sent = true, time.Now()
	f.book(out)
	f.gates[g].find = nil
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

// findProbe looks for a chain whose first row goes to a gate that no such chain is known of: one
// page, and not more than a tenth of the time.
func (f *feeder) findProbe(ctx context.Context) (bool, error) {
	now := time.Now()
	if now.Before(f.findAt) || f.probeRoom() == 0 {
		return false, nil
	}
	var g gate
	var p *probe
	for other, q := range f.gates {
		if q.chain == 0 && !q.out && !q.at.After(now) && (p == nil || q.at.Before(p.at)) {
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

func (f *feeder) findFor(ctx context.Context, g gate, p *probe) error {
	chains, err := f.next(ctx, p.find)
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
	free := f.restful(chains, pageRows)
	if len(free) == 0 {
		return nil
	}
	runs, err := f.read(ctx, free, 1, min(f.probeRoom(), max(f.cfg.BudgetBytes/8, 1)), f.s.writer.acked.Load())
	if err != nil {
		return err
	}
	for _, r := range runs {
		if len(r.Rows) > 0 && f.fits(g, &r) {
			p.chain = r.Chain
			f.launch([]*run{f.probing(g, &r)})
			return nil
		}
	}
	return nil
}
