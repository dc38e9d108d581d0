package metrics

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops/opstest"
)

// A step ends less than an eighth above each latency in it.
func TestLatencySteps(t *testing.T) {
	last := -1
	for latency := time.Microsecond; latency < 10*24*time.Hour; latency += latency/16 + time.Microsecond {
		step := latencyStep(latency)
		if end := latencyUpTo(step); end <= latency || end > latency+latency/8+time.Microsecond || step < last || step >= latencySteps {
			t.Fatalf("%s is in step %d, which ends at %s", latency, step, end)
		}
		last = step
	}
	if latencyStep(-time.Hour) != 0 || latencyStep(1<<62) != latencySteps-1 {
		t.Errorf("steps of the lowest and the highest: %d and %d of %d", latencyStep(-time.Hour), latencyStep(1<<62), latencySteps)
	}
}

// The percentile is that of the events that were confirmed in the last minute.
func TestLatencyP99(t *testing.T) {
	m := New("", "", "")
	confirm := func(n int, latency time.Duration, at time.Time) {
		events := []*event.Event{{Copy: true}}
		for range n {
			events = append(events, &event.Event{CommitTime: at.Add(-latency)})
		}
		m.Confirmed(0, events, at)
	}
	wants := func(at time.Time, want time.Duration) {
		t.Helper()
		got := m.Rates(at).LatencyP99Seconds
		if (got == nil) != (want == 0) || got != nil && (*got < want.Seconds() || *got > want.Seconds()*1.13) {
			t.Errorf("at %s it is %v, want %s", at, got, want)
		}
	}
	wants(opstest.Noon, 0)
	confirm(0, 0, opstest.Noon)
	wants(opstest.Noon, 0)
	confirm(99, 10*time.Millisecond, opstest.Noon)
	confirm(1, time.Minute, opstest.Noon.Add(time.Second))
	wants(opstest.Noon.Add(2*time.Second), 10*time.Millisecond)
	if half := m.Rates(opstest.Noon.Add(2 * time.Second)).LatencyP50Seconds; half == nil || *half < 0.01 || *half > 0.0113 {
		t.Errorf("half of them took %v", half)
	}
	confirm(1, time.Minute, opstest.Noon.Add(30*time.Second))
	wants(opstest.Noon.Add(50*time.Second), time.Minute)
	if half := m.Rates(opstest.Noon.Add(80 * time.Second)).LatencyP50Seconds; half == nil || *half < 60 {
		t.Errorf("half of the late ones took %v", half)
	}
	wants(opstest.Noon.Add(80*time.Second), time.Minute) // the others are forgotten
	wants(opstest.Noon.Add(2*time.Minute), 0)
	confirm(1, time.Second, opstest.Noon.Add(time.Hour))
	wants(opstest.Noon.Add(time.Hour), time.Second)
}
