//go:build testall

package main

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
)

// TestMeter: the first arrival of an event counts, either end may be known first, and what was
// committed in an outage is counted apart. What was committed before it has no excuse.
func TestMeter(t *testing.T) {
	m, start := newMeter(), time.Unix(1_700_000_000, 0)
	committed := func(id string, after time.Duration) { m.commit([]checker.Row{{ID: id}}, start.Add(after)) }
	arrived := func(id string, after time.Duration) {
		m.arrive([]checker.Delivery{{ID: id, At: start.Add(after).UnixNano()}})
	}
	arrived("early", 5*time.Millisecond)
	committed("early", 0)
	committed("before", 5*time.Second)
	m.goAway(start.Add(10 * time.Second))
	committed("waits", 11*time.Second)
	if n := m.waiting(start.Add(time.Hour)); n != 2 {
		t.Errorf("%d events wait, want 2", n)
	}
	arrived("before", 15*time.Second)
	arrived("waits", 20*time.Second)
	arrived("waits", time.Hour)
	arrived("never committed", 0)
	m.comeBack(start.Add(21 * time.Second))
	committed("after", 22*time.Second)
	arrived("after", 22*time.Second+time.Millisecond)
	up, outages := m.total()
	if up.count != 3 || len(outages) != 1 || outages[0].count != 1 || m.waiting(start.Add(time.Hour)) != 0 {
		t.Errorf("counted %d with the broker up and %+v in outages, want 3 and 1", up.count, outages)
	}
	for _, got := range []struct{ is, want time.Duration }{{up.max, 10 * time.Second}, {up.p50, 5 * time.Millisecond}, {outages[0].max, 9 * time.Second}} {
		if got.is < got.want*98/100 || got.is > got.want*102/100 {
			t.Errorf("measured %v, want %v", got.is, got.want)
		}
	}
	for range recentWindows {
		m.rotate()
	}
	if m.last().count != 0 {
		t.Error("an event of more than two seconds ago counts")
	}
}
