// Paused destinations, as the feeder knows them.

package retry

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// gate is what may be paused: a unit (dest 0), or a destination.
type gate struct{ unit, dest uint64 }

func (g gate) place() sink.Place { return sink.Place{Unit: g.unit, Dest: g.dest} }

// probe is what the feeder knows of a gate that is shut: how to find out whether the destination
// accepts again. Of what is paused nothing else is sent, and nothing but the confirm of a row that
// was fed opens a gate. So each has one row on its way from time to time, the first of its chain,
// as in any run.
type probe struct {
	chain uint64 // one whose first row goes there, as far as is known; 0: none is known
	sent  time.Time
	at    time.Time     // of the next
	wait  time.Duration // between that and the one before
	out   bool          // a row is with the lane
	find  *walk
	fault *sink.Fault // of the last refusal there that was seen
}

// Between two probes of a gate: doubling, while it stays shut.
const (
	minProbe = time.Second
	maxProbe = 10 * time.Second
)

// shut reports whether a place is paused. Then the feeder has noted that it left something out
// because of the gate, so that it goes there once the gate is open: whoever asks whether a place is
// paused asks here. chain, when not 0, has its first row there.
func (f *feeder) shut(at sink.Place, chain uint64) bool {
	if !f.s.line.Paused(at) {
		return false
	}
	g := f.gateOf(at)
	p := f.gates[g]
	if p == nil {
		p = &probe{wait: minProbe, sent: time.Now()} // what shut it was one
		f.gates[g] = p
		f.probeAfter(p, p.wait)
	}
	if p.chain == 0 && chain != 0 { // there was nothing to probe with
		p.chain = chain
		f.probeAfter(p, time.Until(p.sent.Add(p.wait)))
	}
	return true
}

// gateOf is the gate of a place that is paused.
func (f *feeder) gateOf(at sink.Place) gate {
	if f.s.line.Paused(sink.Place{Unit: at.Unit}) {
		return gate{unit: at.Unit}
	}
	return gate{at.Unit, at.Dest}
}

// accuse notes why a place is paused, for rows that wait there unsent until they are too old.
func (f *feeder) accuse(at sink.Place, fault *sink.Fault) {
	if p := f.gates[f.gateOf(at)]; p != nil && fault != nil {
		p.fault = fault
	}
}

// probeAfter sets the time of the next probe, or of the next search for one.
func (f *feeder) probeAfter(p *probe, wait time.Duration) {
	p.at = time.Now().Add(wait + f.cfg.Jitter(max(wait, 0)/5)) // gates shut together are not probed together
	if p.at.Before(f.probeAt) {
		f.probeAt = p.at
	}
}

// rowsOf is where in the table the rows of a gate are: the whole unit, once a row was seen that is
// under another destination than it goes to now (a topic has more partitions than when it was
// parked).
func (f *feeder) rowsOf(g gate) gate {
	if f.moved {
		g.dest = 0
	}
	return g
}

// place is where an event belongs, if the sink knows that now.
func (f *feeder) place(r *store.Row) (at sink.Place, known bool) {
	at, known = f.cfg.Sink.Place(&r.Event)
	f.moved = f.moved || known && at.Dest != r.Dest && !r.Dead
	return at, known
}
