package relay

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A forgotten pause has ended: that of the destination, or of its exchange or topic as a whole, and
// not the other.
func TestForget(t *testing.T) {
	l := New(Config{})
	a, b := sink.Place{ExchangeOrTopic: 1, Dest: 11}, sink.Place{ExchangeOrTopic: 2, Dest: 21}
	l.pauses.pause(a, &sink.Fault{Class: sink.Destination})
	l.pauses.pause(b, &sink.Fault{Class: sink.Destination, Whole: true})
	l.Forget(sink.Place{ExchangeOrTopic: 1})
	l.Forget(b)
	if !l.Paused(a) || !l.Paused(b) {
		t.Error("the other of exchange or topic and destination was forgotten")
	}
	l.Forget(a)
	l.Forget(sink.Place{ExchangeOrTopic: 2})
	if l.Paused(a) || l.Paused(b) || len(l.Pauses()) > 0 || l.pauses.count.Load() != 0 {
		t.Errorf("still paused: %v", l.Pauses())
	}
}
