package relay

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Names may be made from data, so there is a bound to what is noted as paused, or watched. Beyond
// it nothing is paused: an event is sent, refused and deferred.
func TestPausedDestsAreBounded(t *testing.T) {
	ps := newPauses(zap.NewNop())
	place := func(n int) sink.Place { return sink.Place{ExchangeOrTopic: uint64(n + 1), Dest: uint64(n + 1)} }
	shut := func(n int) {
		ps.pause(place(n), &sink.Fault{Class: sink.Destination, Reason: sink.Unroutable, Whole: n%2 == 0})
		ps.watch(place(n).Dest)
	}
	for n := range maxPauses + 10 {
		shut(n)
	}
	if n := len(ps.list()); n != maxPauses {
		t.Errorf("%d paused destinations are shut, want %d", n, maxPauses)
	}
	if n := len(ps.watched); n > maxPauses {
		t.Errorf("%d destinations are watched, of %d at most", n, maxPauses)
	}
	if !ps.paused(place(maxPauses-1)) || ps.paused(place(maxPauses)) {
		t.Error("not the first ones are paused")
	}
	ps.resume(place(0))
	shut(maxPauses)
	if ps.paused(place(0)) || !ps.paused(place(maxPauses)) {
		t.Error("the room of a paused destination that was opened is not taken again")
	}
}

// What was confirmed at a destination since an event of it was refused stays noted, however often
// one is refused meanwhile.
func TestConfirmsAreNoted(t *testing.T) {
	ps := newPauses(zap.NewNop())
	second := func(n int64) time.Time { return time.Unix(n, 0) }
	confirm := func(dest uint64, at time.Time) { ps.confirmed([]*item{{place: sink.Place{Dest: dest}}}, at) }
	confirm(1, second(1)) // nobody asks for it yet
	ps.watch(1)
	confirm(2, second(2))
	if ps.confirmedSince(1, second(0)) {
		t.Error("what was confirmed before, or elsewhere, counts")
	}
	confirm(1, second(3))
	ps.watch(1) // one more is refused
	if !ps.confirmedSince(1, second(2)) {
		t.Error("what was confirmed is forgotten")
	}
	if ps.confirmedSince(1, second(3)) {
		t.Error("what was confirmed counts for a later refusal")
	}
}
