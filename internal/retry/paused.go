// Paused destinations, and where the feeder notes them.

package retry

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// target is what can be paused: a whole exchange or topic (dest 0), or one destination.
type target struct{ exchangeOrTopic, dest uint64 }

func (g target) place() sink.Place {
	return sink.Place{ExchangeOrTopic: g.exchangeOrTopic, Dest: g.dest}
}

// probe is what the feeder knows of a paused target: how to find out whether it accepts again.
// Nothing else is sent to what is paused, and only the confirm of a row that was fed ends a pause.
// So each target has one row in flight from time to time, the first of its ordering group, as in
// any run.
type probe struct {
	group uint64 // one whose first row goes there, as far as is known; 0: none
	sent  time.Time
	at    time.Time     // of the next
	wait  time.Duration // between that and the one before
	out   bool          // a row is with the lane
	find  *walk
	fault *sink.Fault // of the last rejection seen there
}

// The pause between two probes of a target doubles while it stays paused.
const (
	minProbe = time.Second
	maxProbe = 10 * time.Second
)

// isPaused reports whether a place is paused. If so, it also notes that rows wait for it, so that a
// sweep finds them when the pause ends: whoever skips rows because of a pause must ask here. group,
// when not 0, has its first row there.
func (f *feeder) isPaused(at sink.Place, group uint64) bool {
	if !f.s.line.Paused(at) {
		return false
	}
	g := f.targetOf(at)
	p := f.probes[g]
	if p == nil {
		p = &probe{wait: minProbe, sent: time.Now()} // the rejection that paused it counts as one
		f.probes[g] = p
		f.probeAfter(p, p.wait)
	}
	if p.group == 0 && group != 0 { // there was no row to probe with
		p.group = group
		f.probeAfter(p, time.Until(p.sent.Add(p.wait)))
	}
	return true
}

// targetOf is what is paused of a paused place.
func (f *feeder) targetOf(at sink.Place) target {
	if f.s.line.Paused(sink.Place{ExchangeOrTopic: at.ExchangeOrTopic}) {
		return target{exchangeOrTopic: at.ExchangeOrTopic}
	}
	return target{at.ExchangeOrTopic, at.Dest}
}

// accuse notes why a place is paused, for the rows that become too old there without being sent.
func (f *feeder) accuse(at sink.Place, fault *sink.Fault) {
	if p := f.probes[f.targetOf(at)]; p != nil && fault != nil {
		p.fault = fault
	}
}

// probeAfter sets the time of the next probe, or of the next search for one.
func (f *feeder) probeAfter(p *probe, wait time.Duration) {
	// targets that were paused together are not probed together
	p.at = time.Now().Add(wait + f.cfg.Jitter(max(wait, 0)/5))
	if p.at.Before(f.probeAt) {
		f.probeAt = p.at
	}
}

// rowsOf is the target under which the table has the rows of a paused one: the whole exchange or
// topic, once a row was seen that goes to another destination than the table says (a topic has more
// partitions than when it was deferred).
func (f *feeder) rowsOf(g target) target {
	if f.moved {
		g.dest = 0
	}
	return g
}

// place returns where an event belongs, if the sink knows that now.
func (f *feeder) place(r *store.Row) (at sink.Place, known bool) {
	at, known = f.cfg.Sink.Place(&r.Event)
	f.moved = f.moved || known && at.Dest != r.Dest && !r.Dead
	return at, known
}
