// Paused destinations, as the feeder knows them.

package retry

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// paused destination is what may be paused: an exchange or topic (dest 0), or a destination.
type pausedDest struct{ exchangeOrTopic, dest uint64 }

func (g pausedDest) place() sink.Place {
	return sink.Place{ExchangeOrTopic: g.exchangeOrTopic, Dest: g.dest}
}

// probe is what the feeder knows of a paused destination that is shut: how to find out whether the
// destination accepts again. Of what is paused nothing else is sent, and nothing but the confirm of
// a row that was fed opens a paused destination. So each has one row on its way from time to time,
// the first of its ordering group, as in any run.
type probe struct {
	group uint64 // one whose first row goes there, as far as is known; 0: none is known
	sent  time.Time
	at    time.Time     // of the next
	wait  time.Duration // between that and the one before
	out   bool          // a row is with the lane
	find  *walk
	fault *sink.Fault // of the last refusal there that was seen
}

// Between two probes of a paused destination: doubling, while it stays shut.
const (
	minProbe = time.Second
	maxProbe = 10 * time.Second
)

// shut reports whether a place is paused. Then the feeder has noted that it left something out
// because of the paused destination, so that it goes there once the paused destination is open:
// whoever asks whether a place is paused asks here. ordering group, when not 0, has its first row
// there.
func (f *feeder) shut(at sink.Place, group uint64) bool {
	if !f.s.line.Paused(at) {
		return false
	}
	g := f.pausedDestOf(at)
	p := f.pausedDests[g]
	if p == nil {
		p = &probe{wait: minProbe, sent: time.Now()} // what shut it was one
		f.pausedDests[g] = p
		f.probeAfter(p, p.wait)
	}
	if p.group == 0 && group != 0 { // there was nothing to probe with
		p.group = group
		f.probeAfter(p, time.Until(p.sent.Add(p.wait)))
	}
	return true
}

// pausedDestOf is the paused destination of a place that is paused.
func (f *feeder) pausedDestOf(at sink.Place) pausedDest {
	if f.s.line.Paused(sink.Place{ExchangeOrTopic: at.ExchangeOrTopic}) {
		return pausedDest{exchangeOrTopic: at.ExchangeOrTopic}
	}
	return pausedDest{at.ExchangeOrTopic, at.Dest}
}

// accuse notes why a place is paused, for rows that wait there unsent until they are too old.
func (f *feeder) accuse(at sink.Place, fault *sink.Fault) {
	if p := f.pausedDests[f.pausedDestOf(at)]; p != nil && fault != nil {
		p.fault = fault
	}
}

// probeAfter sets the time of the next probe, or of the next search for one.
func (f *feeder) probeAfter(p *probe, wait time.Duration) {
	// paused destinations shut together are not probed together
	p.at = time.Now().Add(wait + f.cfg.Jitter(max(wait, 0)/5))
	if p.at.Before(f.probeAt) {
		f.probeAt = p.at
	}
}

// rowsOf is where in the table the rows of a paused destination are: the whole exchange or topic,
// once a row was seen that is under another destination than it goes to now (a topic has more
// partitions than when it was deferred).
func (f *feeder) rowsOf(g pausedDest) pausedDest {
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
