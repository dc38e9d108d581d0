package main

import (
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// Destinations paused by the line and by the sink are listed, each once, the longest first.
func TestPausedOfLineAndSink(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	at := func(destination string, minutes int) ops.Paused {
		return ops.Paused{Destination: destination, Since: noon.Add(time.Duration(-minutes) * time.Minute)}
	}
	s := ops.Snapshot{Paused: []ops.Paused{at("a", 1), at("b", 3)}}
	addPaused(&s, []ops.Paused{at("a", 9), at("c", 2)})
	if want := []ops.Paused{at("b", 3), at("c", 2), at("a", 1)}; !slices.Equal(s.Paused, want) || s.PausedTotal != 3 {
		t.Errorf("got %v of %d, want %v", s.Paused, s.PausedTotal, want)
	}
	var many []ops.Paused
	for i := range 30 {
		many = append(many, at(string(rune('A'+i)), i))
	}
	addPaused(&s, many)
	if len(s.Paused) != maxPaused || s.PausedTotal != 33 || s.Paused[0].Destination != many[29].Destination {
		t.Errorf("%d of %d are named, from %s on", len(s.Paused), s.PausedTotal, s.Paused[0].Destination)
	}
}
