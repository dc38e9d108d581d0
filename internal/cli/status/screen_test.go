package status

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

func TestSpark(t *testing.T) {
	for _, c := range []struct {
		of    series
		width int
		want  string
		most  float64
	}{
		{nil, 3, "   ", 0},
		{series{0, 0}, 4, "  ▁▁", 0},
		{series{0, 1, 50, 100}, 4, "▁▂▅█", 100},
		{series{100, 0.001, 1}, 2, "▂█", 1},
		{series{5, notKnown, 5}, 3, "█ █", 5},
		{series{1, 2}, 0, "", 0},
		{series{1, 2}, -3, "", 0},
	} {
		if got, most := c.of.spark(c.width); got != c.want || most != c.most {
			t.Errorf("%v in %d: %q up to %g, want %q up to %g", c.of, c.width, got, most, c.want, c.most)
		}
	}
	var s series
	for i := range 2 * samples {
		s.add(float64(i))
	}
	if len(s) != samples || s.last() != 2*samples-1 {
		t.Errorf("%d samples, the last %g", len(s), s.last())
	}
}

// The rate is that between two polls; a relay that was started again, or away, is not counted from
// before.
func TestRateBetweenPolls(t *testing.T) {
	var h history
	rateAfter := func(started time.Time, at time.Duration, published uint64, mean float64) float64 {
		h.add(&snapshot{status: &ops.Status{
			StartedAt: started, Now: noon.Add(at), Totals: ops.TotalsStatus{Published: published}, Rates: ops.RatesStatus{PublishedPerSecond: mean},
		}})
		return h.rate.last()
	}
	for _, c := range []struct{ got, want float64 }{
		{rateAfter(noon, 0, 100, 7), 7},
		{rateAfter(noon, 2*time.Second, 150, 7), 25},
		{rateAfter(noon.Add(time.Second), 3*time.Second, 10, 1), 1},
		{rateAfter(noon.Add(time.Second), 3*time.Second, 10, 1), 1}, // at the same moment
	} {
		if c.got != c.want {
			t.Errorf("the rate is %g, want %g", c.got, c.want)
		}
	}
	h.add(&snapshot{noAnswer: errors.New("gone"), database: &databaseStatus{SlotExists: true, LagBytes: 9}})
	if h.rate.last() != notKnown || h.lag.last() != notKnown || h.wal.last() != 9 {
		t.Errorf("while it is away: %v %v %v", h.rate, h.lag, h.wal)
	}
	h.add(&snapshot{status: &ops.Status{Role: ops.RoleStandby, Slot: ops.SlotStatus{CheckedAt: noon, LagBytes: 8}}})
	if h.lag.last() != notKnown || h.wal.last() != 8 {
		t.Errorf("on a standby: %v %v", h.lag, h.wal)
	}
	if got := rateAfter(noon.Add(time.Second), 10*time.Second, 500, 3); got != 3 {
		t.Errorf("back again, the rate is %g", got)
	}
}

func TestFit(t *testing.T) {
	for _, c := range []struct {
		text          string
		width, height int
		want          []string
	}{
		{"state      idle\nslot       s\n", 30, 5, []string{"state      idle", "slot       s"}},
		{"state      broker down: no route to it", 24, 5, []string{"state      broker down:", "           no route to", "           it"}},
		{"state      \x1b[1;31mbroker down\x1b[0m: no route", 24, 5, []string{"state      \x1b[1;31mbroker down\x1b[0m:", "           no route"}},
		{"state      " + strings.Repeat("x", 30), 24, 5, []string{"state      xxxxxxxxxxxxx", "           xxxxxxxxxxxxx", "           xxxx"}},
		{"a\nb\nc\nd\n", 30, 3, []string{"a", "b", "... 2 more lines"}},
		{"a\nb\n", 30, 1, []string{"... 2 more lines"}},
		// the terminal clips it
		{"state      too narrow to break", 10, 3, []string{"state      too narrow to break"}},
	} {
		if got := fit(c.text, c.width, c.height); !slices.Equal(got, c.want) {
			t.Errorf("%q in %dx%d:\n%q, want\n%q", c.text, c.width, c.height, got, c.want)
		}
	}
}
