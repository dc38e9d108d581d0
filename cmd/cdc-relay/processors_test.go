package main

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// used is what a process uses in each of its next looks, in parts of one processor.
type used []float64

// play has the looks of a process that uses so much, and returns what was set after which look.
func play(t *testing.T, parts used) (set map[int]bool) {
	t.Helper()
	set = map[int]bool{}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		look := func() int { return int(time.Since(began) / processorsEvery) }
		p := &processors{wide: true, used: func() (sum time.Duration) {
			for _, part := range parts[:min(look(), len(parts))] {
				sum += time.Duration(part * float64(processorsEvery))
			}
			return sum
		}, set: func(wide bool) { set[look()] = wide }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(parts))*processorsEvery+processorsEvery/2)
		defer cancel()
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return set
}

func times(n int, part float64) used { return slices.Repeat(used{part}, n) }

// One processor is enough while little is used for a while; one look with much brings the others
// back, and what is between changes nothing.
func TestProcessorsFollowWhatIsUsed(t *testing.T) {
	for name, c := range map[string]struct {
		parts used
		want  map[int]bool
	}{
		"idle":                       {times(30, 0), map[int]bool{10: false}},
		"a live stream":              {times(30, 0.1), map[int]bool{10: false}},
		"a backlog":                  {times(30, 1.4), map[int]bool{}},
		"a backlog, then a stream":   {slices.Concat(times(7, 1), times(20, 0.1)), map[int]bool{17: false}},
		"a stream, then a backlog":   {slices.Concat(times(12, 0.1), times(20, 0.9)), map[int]bool{10: false, 13: true}},
		"a long list once":           {slices.Concat(times(15, 0.1), times(1, 0.5), times(14, 0.1)), map[int]bool{10: false, 16: true, 26: false}},
		"neither little nor much":    {times(30, 0.3), map[int]bool{}},
		"little, then rather more":   {slices.Concat(times(15, 0.1), times(30, 0.22)), map[int]bool{10: false}},
		"little, but never for long": {slices.Repeat(slices.Concat(times(9, 0.1), times(1, 0.3)), 4), map[int]bool{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := play(t, c.parts)
			if len(got) != len(c.want) {
				t.Fatalf("set %v, want %v", got, c.want)
			}
			for at, wide := range c.want {
				if is, ok := got[at]; !ok || is != wide {
					t.Errorf("set %v, want %v", got, c.want)
				}
			}
		})
	}
}

// The runtime has what was set, and the process' own time is what is looked at.
func TestProcessorsOfThisProcess(t *testing.T) {
	t.Cleanup(runtime.SetDefaultGOMAXPROCS)
	runtime.SetDefaultGOMAXPROCS() // whatever -cpu says
	all := runtime.GOMAXPROCS(0)
	setProcessors(false)
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d processors, want 1", n)
	}
	setProcessors(true)
	if n := runtime.GOMAXPROCS(0); n != all {
		t.Errorf("%d processors, want all %d", n, all)
	}
	before := processorTime()
	for processorTime() < before+20*time.Millisecond { // this work is counted
	}
}

// Who sets GOMAXPROCS is obeyed.
func TestProcessorsAreTheUsersOwn(t *testing.T) {
	t.Setenv("GOMAXPROCS", "3")
	if !processorsSettled() {
		t.Error("GOMAXPROCS is set and not obeyed")
	}
	t.Setenv("GOMAXPROCS", "")
	if processorsSettled() != (runtime.GOMAXPROCS(0) == 1) {
		t.Error("with nothing set the number is settled on a machine with one processor only")
	}
}
