package retention

import (
	"slices"
	"testing"
	"time"
)

// TestZones: when a zone is looked at again.
func TestZones(t *testing.T) {
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	const keep, again = 10 * time.Hour, time.Minute
	in := func(hours float64) *float64 { seconds := hours * 3600; return &seconds }
	at := func(hours float64) time.Time { return began.Add(time.Duration(hours * float64(time.Hour))) }
	for name, tc := range map[string]struct {
		found   findings
		at      time.Time
		settled int64
		writes  int64
		want    bool
	}{
		// the counter is trusted for an hour
		"empty, nobody has written":           {findings{settled: 100}, at(10.5), 200, 7, true},
		"empty, too early":                    {findings{settled: 100}, at(9), 200, 8, false},
		"empty, nothing more is settled":      {findings{settled: 100}, at(11), 100, 8, false},
		"empty, written and settled":          {findings{settled: 100}, at(11), 101, 8, true},
		"young, too early":                    {findings{rows: 1, young: 1, next: in(2), settled: 100}, at(1.9), 200, 7, false},
		"young, and of age":                   {findings{rows: 1, young: 1, next: in(2), settled: 100}, at(2), 100, 7, true},
		"young of unknown age":                {findings{rows: 1, young: 1, settled: 100}, at(10), 100, 7, true},
		"old and not settled, still not":      {findings{rows: 1, above: 1, late: 1, settled: 100}, at(0.1), 100, 7, false},
		"old and not settled, now":            {findings{rows: 1, above: 1, late: 1, settled: 100}, at(0.1), 101, 7, true},
		"neither settled nor old, too early":  {findings{rows: 1, above: 1, next: in(9), settled: 100}, at(8), 101, 7, false},
		"neither settled nor old, of age now": {findings{rows: 1, above: 1, next: in(9), settled: 100}, at(9), 101, 7, true},
		"nothing is known to be settled":      {findings{rows: 1, above: 1, late: 1}, at(1), 0, 7, false},
		"held, too early":                     {findings{rows: 1, held: 1, settled: 100}, began.Add(59 * time.Second), 200, 8, false},
		"held":                                {findings{rows: 1, held: 1, settled: 100}, began.Add(time.Minute), 100, 7, true},
	} {
		if got := tc.found.nextLook(began, 7, keep, again).worth(tc.at, tc.settled, tc.writes); got != tc.want {
			t.Errorf("%s: worth a look is %t", name, got)
		}
	}
	z := (&findings{settled: 100}).nextLook(began, 7, 0, again)
	if z.worth(at(0.9), 200, 7) || !z.worth(at(0.9), 200, 8) || !z.worth(at(1), 200, 7) {
		t.Error("an empty zone is looked at although nobody has written, or not when somebody has, or not for ever")
	}
}

// TestZonesFollowTheLeaf: its size, and another file in its place.
func TestZonesFollowTheLeaf(t *testing.T) {
	now := time.Now()
	l := &leaf{oid: 1, settled: 1}
	l.resize(1, 2*stepBlocks+1, now)
	if from, to := l.bounds(2); len(l.zones) != 3 || from != 2*stepBlocks || to != 2*stepBlocks+1 {
		t.Fatalf("%d zones, the last is from %d to %d", len(l.zones), from, to)
	}
	l.zones[0].due = now.Add(time.Hour)
	l.resize(1, 2*stepBlocks, now)
	if list := dueZones(map[uint32]*leaf{1: l}, now); len(list) != 1 || list[0].number != 1 {
		t.Errorf("worth a look are %v, want the second of two zones", list)
	}
	l.resize(2, 2*stepBlocks, now)
	if list := dueZones(map[uint32]*leaf{1: l}, now); len(list) != 2 {
		t.Errorf("of another file %d zones are worth a look, want both", len(list))
	}
	l.resize(2, 10*maxZones*stepBlocks, now)
	if len(l.zones) > maxZones || l.zoneBlocks%stepBlocks != 0 {
		t.Errorf("a large leaf has %d zones", len(l.zones))
	}
}

// TestFailedZonesComeLast: also when they have waited for longest.
func TestFailedZonesComeLast(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	l := &leaf{oid: 1, settled: 1, zones: []zone{
		{due: now.Add(-3 * time.Hour), writes: -1, failed: true}, {due: now.Add(-time.Hour), writes: -1}, {due: now.Add(-2 * time.Hour), writes: -1},
	}}
	var order []int
	for _, z := range dueZones(map[uint32]*leaf{1: l}, now) {
		order = append(order, z.number)
	}
	if !slices.Equal(order, []int{2, 1, 0}) {
		t.Errorf("the zones come in the order %v", order)
	}
}

// TestLateRows: since when they wait. One that cannot be told waits since the look.
func TestLateRows(t *testing.T) {
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	waits := 7200.0
	for want, found := range map[time.Time]findings{
		began.Add(-2 * time.Hour): {late: 2, above: 2, waits: &waits},
		began:                     {late: 1, above: 1},
		{}:                        {above: 1},
	} {
		if z := found.nextLook(began, 7, time.Hour, time.Minute); !z.late.Equal(want) {
			t.Errorf("%+v: rows wait since %s, want %s", found, z.late, want)
		}
	}
}

// TestSamples: what is known of the age of rows, also when the clock is set.
func TestSamples(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	const keep = 64 * time.Minute
	var s samples
	for i := range 300 {
		now := start.Add(time.Duration(i) * time.Minute)
		s.add(now, int64(i), keep)
		want := int64(max(i-64, 0))
		if got := s.below(now, keep); got != want || len(s) > 70 {
			t.Fatalf("after %d minutes rows below %d are old, want %d; %d samples", i, got, want, len(s))
		}
	}
	s.add(start.Add(-time.Hour), 300, keep)
	if got := s.below(start, keep); got != 0 || len(s) != 1 {
		t.Errorf("after the clock was set back rows below %d are old; %d samples", got, len(s))
	}
}
