package display

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
)

// clockwork gives a meter events at moments that are counted from a fixed one.
type clockwork struct {
	*Meter
	start time.Time
}

func newClockwork() clockwork { return clockwork{NewMeter(), time.Unix(1_700_000_000, 0)} }

func (c clockwork) at(after time.Duration) time.Time { return c.start.Add(after) }

func (c clockwork) committed(id string, after time.Duration) {
	c.Commit([]checker.Row{{ID: id}}, c.at(after))
}

func (c clockwork) arrived(id string, after time.Duration) {
	c.Arrive([]checker.Delivery{{ID: id, At: c.at(after).UnixNano()}})
}

func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want*98/100 || got > want*102/100 {
		t.Errorf("%s is %v, want %v within 2 %%", what, got, want)
	}
}

func TestMeterPercentiles(t *testing.T) {
	c := newClockwork()
	for i := 1; i <= 1000; i++ { // latencies of 1 to 1,000 ms
		id, began := fmt.Sprint(i), time.Duration(i)*time.Second
		c.committed(id, began)
		c.arrived(id, began+time.Duration(i)*time.Millisecond)
	}
	up, outages := c.Total()
	near(t, "p50", up.P50, 500*time.Millisecond)
	near(t, "p99", up.P99, 990*time.Millisecond)
	near(t, "max", up.Max, time.Second)
	if up.Count != 1000 || len(outages) != 0 || c.Last() != up {
		t.Errorf("counted %d with the broker up, %d outages; of the last two seconds %+v", up.Count, len(outages), c.Last())
	}
}

func TestMeterTakesTheFirstArrivalAndEitherEndFirst(t *testing.T) {
	c := newClockwork()
	// the order service has not yet heard that COMMIT succeeded
	c.arrived("early", 5*time.Millisecond)
	c.committed("early", 0)
	c.committed("twice", 0)
	c.arrived("twice", 5*time.Millisecond)
	c.arrived("twice", time.Hour)
	c.arrived("never committed", 0)
	up, _ := c.Total()
	near(t, "max", up.Max, 5*time.Millisecond)
	if up.Count != 2 {
		t.Errorf("counted %d events, want 2", up.Count)
	}
}

func TestMeterCountsTheOutageApart(t *testing.T) {
	c := newClockwork()
	c.GoAway(c.at(10 * time.Second))
	c.committed("cut", 10*time.Second-1)
	c.committed("waits", 11*time.Second)
	if n := c.Waiting(c.at(11 * time.Second)); n != 1 {
		t.Errorf("%d events wait that were committed before 11 s, want 1", n)
	}
	c.arrived("cut", 20*time.Second)
	c.arrived("waits", 20*time.Second)
	c.ComeBack(c.at(21 * time.Second))
	c.committed("after", 22*time.Second)
	c.arrived("after", 22*time.Second+time.Millisecond)
	c.GoAway(c.at(30 * time.Second))
	c.committed("again", 31*time.Second)
	c.arrived("again", 35*time.Second)
	c.ComeBack(c.at(36 * time.Second))
	up, outages := c.Total()
	if up.Count != 2 || len(outages) != 2 || outages[0].Count != 1 || outages[1].Count != 1 || c.Waiting(c.at(time.Hour)) != 0 {
		t.Errorf("counted %d with the broker up and %+v in outages, want 2, 1 and 1", up.Count, outages)
	}
	// committed while it was: no excuse
	near(t, "the longest with the broker up", up.Max, 10*time.Second)
	near(t, "the longest in the outage", outages[0].Max, 9*time.Second)
	near(t, "the longest in the second one", outages[1].Max, 4*time.Second)
}

func TestMeterForgetsInLast(t *testing.T) {
	c := newClockwork()
	c.committed("a", 0)
	c.arrived("a", time.Millisecond)
	for range recentWindows {
		if c.Last().Count != 1 {
			t.Fatal("forgotten too early")
		}
		c.Rotate()
	}
	if c.Last().Count != 0 {
		t.Error("an event of more than two seconds ago counts")
	}
}
