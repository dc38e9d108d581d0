package ops_test

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/opstest"
)

func TestForecast(t *testing.T) {
	var c ops.Course
	see := func(after time.Duration, safe int64) float64 {
		left := c.SeeSlot(opstest.Noon.Add(after), &safe)
		if left == nil {
			return -1
		}
		return *left
	}
	for i, want := range []struct {
		after time.Duration
		safe  int64
		left  float64
	}{
		{0, 1000, -1},
		{2 * time.Second, 990, -1},   // too soon for a pace
		{10 * time.Second, 900, -1},  // 10 bytes a second for too short a time
		{20 * time.Second, 800, 80},  // which fills the room in less than four times of it
		{20 * time.Second, 800, 80},  // the same reading again
		{25 * time.Second, 1200, -1}, // the slot has moved
		{45 * time.Second, 1000, -1}, // the pace begins again, too slow for a short look
		{55 * time.Second, 900, 90},  // of 30 seconds
		{65 * time.Second, 900, 180}, // slower in the newer half
		{85 * time.Second, 900, -1},  // a burst that has ended
		{250 * time.Second, 600, -1}, // after a gap the pace begins again
		{255 * time.Second, 100, 1},  // there is no time for a long look
		{260 * time.Second, 50, 5},   // the disk fills within a minute
		{270 * time.Second, -10, -1}, // nothing is left
	} {
		if got := see(want.after, want.safe); got != want.left {
			t.Errorf("%d: %v seconds are left, want %v", i, got, want.left)
		}
	}
	if c.SeeSlot(opstest.Noon, nil) != nil {
		t.Error("without a limit there is a forecast")
	}
}

func TestDownSince(t *testing.T) {
	var c ops.Course
	for i, step := range []struct {
		up    bool
		after time.Duration
		want  time.Time
	}{
		{true, 0, time.Time{}},
		{false, 1, opstest.Noon.Add(1)},
		{false, 2, opstest.Noon.Add(1)},
		{true, 3, time.Time{}},
		{false, 4, opstest.Noon.Add(4)},
		{false, time.Hour, opstest.Noon.Add(time.Hour)}, // nobody has looked meanwhile
	} {
		if got := c.SeeBroker(step.up, opstest.Noon.Add(step.after)); !got.Equal(step.want) {
			t.Errorf("%d: it is down since %v, want %v", i, got, step.want)
		}
	}
}
