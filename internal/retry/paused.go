// Paused destinations, and where the feeder notes them.

package retry

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// target is what can be paused: a whole exchange or topic (dest 0), or one destination.
type target struct{ exchangeOrTopic, dest uint64 }

func (t target) place() sink.Place {
	return sink.Place{ExchangeOrTopic: t.exchangeOrTopic, Dest: t.dest}
}

// probe is what the feeder knows of a paused target: how to find out whether it accepts again.
// Nothing else is sent to what is paused, and only the confirm of a row that was fed ends a pause.
// So from time to time one row per target is sent as a probe. It is the first of its ordering
// group, as in any run.
type probe struct {
	// an ordering group whose first row goes to the target, as far as is known; 0: none
	group uint64
	sent  time.Time
	at    time.Time     // of the next probe
	wait  time.Duration // between the previous probe and the next one
	out   bool          // a row is with the lane
	find  *walk
	fault *sink.Fault // of the last rejection seen there
	// What rows wait for ages by rejections, so that nothing ages while the broker is away (I4).
	since   time.Time     // when this pause was noted
	refused time.Time     // when a row that was fed was rejected there last, or since
	silent  time.Duration // how long such rows were without an answer, in all
}

// The pause between two probes of a target doubles while it stays paused.
const (
	minProbe = time.Second
	maxProbe = 10 * time.Second
)

// isPaused reports whether a place is paused. If so, it also notes that rows wait for it, so that a
// sweep finds them when the pause ends. So every caller that skips rows because of a pause must
// call isPaused. group, if not 0, has its first row there.
func (f *feeder) isPaused(at sink.Place, group uint64) bool {
	if !f.s.line.Paused(at) {
		return false
	}
	t := f.pausedTarget(at)
	p := f.probes[t]
	if p == nil {
		now := time.Now()
		// the rejection that paused it counts as one
		p = &probe{wait: minProbe, sent: now, since: now, refused: now}
		f.probes[t] = p
		f.probeAfter(p, p.wait)
	}
	if p.group == 0 && group != 0 { // there was no row to probe with until now
		p.group = group
		f.probeAfter(p, time.Until(p.sent.Add(p.wait)))
	}
	return true
}

// pausedTarget returns the part of a paused place that is paused.
func (f *feeder) pausedTarget(at sink.Place) target {
	if f.s.line.Paused(sink.Place{ExchangeOrTopic: at.ExchangeOrTopic}) {
		return target{exchangeOrTopic: at.ExchangeOrTopic}
	}
	return target{at.ExchangeOrTopic, at.Dest}
}

// noteFault records why a place is paused, for the rows that become too old there without being
// sent.
func (f *feeder) noteFault(at sink.Place, fault *sink.Fault) {
	if p := f.probes[f.pausedTarget(at)]; p != nil && fault != nil {
		p.fault = fault
	}
}

// noteAnswer records the rejection of a row that was sent there. Until now nobody was refused since
// the row was sent, or since the previous rejection if that is later.
func (f *feeder) noteAnswer(at sink.Place, sent, now time.Time) {
	p := f.probes[f.pausedTarget(at)]
	if p == nil {
		return
	}
	if p.refused.After(sent) {
		sent = p.refused
	}
	p.silent += now.Sub(sent)
	p.refused = now
}

// tooOld reports whether a row has waited for its destination as long as it may: whether the
// destination has refused for so long since the row was deferred. The time in which a row was with
// a lane and was not answered does not count: the broker may have been away. Nothing is known of
// the time before the pause was noted, by this leader and for this target: it does not count
// either. So a row dies late rather than early. sent is when the row was sent, if it was: that is
// its age where there is no probe, because there are too many pauses to note them.
func (f *feeder) tooOld(row *store.Row, at sink.Place, sent time.Time) bool {
	age := sent.Sub(row.DeferredAt)
	if p := f.probes[f.pausedTarget(at)]; p != nil {
		age = min(p.refused.Sub(row.DeferredAt), p.refused.Sub(p.since)) - p.silent
	}
	return f.cfg.DestinationMaxAge > 0 && age > f.cfg.DestinationMaxAge
}

// probeAfter sets the time of the next probe, or of the next search for one.
func (f *feeder) probeAfter(p *probe, wait time.Duration) {
	// targets that were paused together are not probed together
	p.at = time.Now().Add(wait + f.cfg.Jitter(max(wait, 0)/5))
	if p.at.Before(f.probeAt) {
		f.probeAt = p.at
	}
}

// storedTarget is the target under which the table has the rows of a paused target. It is the whole
// exchange or topic once a row was seen that goes to another destination than the table says: the
// topic has more partitions than when the row was deferred.
func (f *feeder) storedTarget(t target) target {
	if f.moved {
		t.dest = 0
	}
	return t
}

// place returns where an event belongs, if the sink knows that now.
func (f *feeder) place(r *store.Row) (at sink.Place, known bool) {
	at, known = f.cfg.Sink.Place(&r.Event)
	f.moved = f.moved || known && at.Dest != r.Dest && !r.Dead
	return at, known
}
