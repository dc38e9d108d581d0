package relay

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// What is forgotten is paused no longer: the destination, or its unit as a whole, and not the
// other.
func TestForget(t *testing.T) {
	l := New(Config{})
	a, b := sink.Place{Unit: 1, Dest: 11}, sink.Place{Unit: 2, Dest: 21}
	l.gates.shut(a, &sink.Fault{Class: sink.Destination})
	l.gates.shut(b, &sink.Fault{Class: sink.Destination, Whole: true})
	l.Forget(sink.Place{Unit: 1})
	l.Forget(b)
	if !l.Paused(a) || !l.Paused(b) {
		t.Error("the other of unit and destination was forgotten")
	}
	l.Forget(a)
	l.Forget(sink.Place{Unit: 2})
	if l.Paused(a) || l.Paused(b) || len(l.Gates()) > 0 || l.gates.count.Load() != 0 {
		t.Errorf("still paused: %v", l.Gates())
	}
}
