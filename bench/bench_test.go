package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// TestHistorySees breaks a history in each way: the check of the runs is checked.
func TestHistorySees(t *testing.T) {
	type message struct {
		i   int64
		key string
	}
	for name, tc := range map[string]struct {
		ordering string
		queue    []message
		left     int
		want     string // in the verdict; "" for none
	}{
		"all in order":              {"key", []message{{0, "a"}, {1, "b"}, {2, "a"}, {3, "b"}}, 0, ""},
		"keys overtake each other":  {"key", []message{{1, "b"}, {0, "a"}, {3, "b"}, {2, "a"}}, 0, ""},
		"one lost":                  {"key", []message{{0, "a"}, {1, "b"}, {2, "a"}}, 0, "lost 1,"},
		"one twice":                 {"key", []message{{0, "a"}, {1, "b"}, {0, "a"}, {2, "a"}, {3, "b"}}, 0, "twice 1,"},
		"some left":                 {"key", []message{{0, "a"}, {1, "b"}, {2, "a"}, {3, "b"}}, 2, "left 2,"},
		"a key out of order":        {"key", []message{{2, "a"}, {1, "b"}, {0, "a"}, {3, "b"}}, 0, "order 1,"},
		"the WAL's order broken":    {"commit", []message{{1, "b"}, {0, "a"}, {2, "a"}, {3, "b"}}, 0, "order 1,"},
		"another key than the row":  {"key", []message{{0, "b"}, {1, "b"}, {2, "a"}, {3, "b"}}, 0, "unknown 1,"},
		"an event of another run":   {"key", []message{{-1, "a"}, {0, "a"}, {1, "b"}, {2, "a"}, {3, "b"}}, 0, "unknown 1,"},
		"an event that no row made": {"key", []message{{0, "a"}, {1, "b"}, {2, "a"}, {3, "b"}, {4, "a"}}, 0, "unknown 1,"},
	} {
		t.Run(name, func(t *testing.T) {
			const first = 7 << 32
			h := &history{first: first, keys: []string{"a", "b", "a", "b"}, seen: make([]bool, 4), lastOf: map[string]int{}, newest: -1, ordering: tc.ordering}
			for _, m := range tc.queue {
				h.note(uuid(first+m.i), m.key)
			}
			err := h.verdict(tc.left)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("verdict %v, want %q", err, tc.want)
			}
		})
	}
	if err := (&history{}).verdict(0); err == nil {
		t.Error("a history without rows shows nothing, and must not pass")
	}
}

func TestVerdict(t *testing.T) {
	for _, tc := range []struct {
		r    result
		want string
	}{
		{result{value: 0.79, must: 0.8, aim: 0.95, higher: true}, "FAIL"},
		{result{value: 0.80, must: 0.8, aim: 0.95, higher: true}, "PASS"},
		{result{value: 0.95, must: 0.8, aim: 0.95, higher: true}, "PASS, aim reached"},
		{result{value: 0.95, must: 0.8, aim: 0.95, higher: true, void: true}, "VOID"},
		{result{value: 97, must: 96, aim: 48}, "FAIL"},
		{result{value: 96, must: 96, aim: 48}, "PASS"},
		{result{value: 40, must: 96, aim: 48}, "PASS, aim reached"},
		{result{value: 0.1}, ""},
		{result{value: 0, none: true}, "PASS, aim reached"},
		{result{value: 1, none: true}, "FAIL"},
	} {
		if got := tc.r.verdict(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.r, got, tc.want)
		}
		rep := report{results: []result{tc.r}}
		if got, want := rep.missed(), tc.want == "FAIL" || tc.want == "VOID"; got != want {
			t.Errorf("%+v: missed %t, want %t", tc.r, got, want)
		}
	}
}

// TestProcessorTime holds this process' clock against what the kernel says of it just before and
// just after.
func TestProcessorTime(t *testing.T) {
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	got, err := cpuTime(os.Getpid())
	after := used()
	const tick = 10 * time.Millisecond // they round differently
	if err != nil || got < before-tick || got > after+tick {
		t.Errorf("processor time %s, %v; want %s … %s", got, err, before, after)
	}
	if got, err := cpuTime(1<<22 + 1); err == nil {
		t.Errorf("processor time %s of a process that there cannot be", got)
	}
}

func TestBaselineAgainstItself(t *testing.T) {
	// odd ones 100, 90, 110; even ones 120, 130, 125
	p := series{base: []float64{100, 120, 90, 130, 110, 125}}
	if got := p.aa(); got < 0.249 || got > 0.251 {
		t.Errorf("A/A %.3f, want 0.25", got)
	}
}

func TestQuantile(t *testing.T) {
	v := []float64{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.625: 3.5, 1: 5} {
		if got := quantile(v, q); got != want {
			t.Errorf("quantile %v of %v is %v, want %v", q, v, got, want)
		}
	}
}

// TestTurns throws a series away whose baseline does not agree with itself, a bounded number of
// times.
func TestTurns(t *testing.T) {
	s := &stand{size: sizes{tries: 2}, began: time.Now(), say: t.Logf}
	for name, tc := range map[string]struct {
		base []float64 // one run after the other
		runs int
		void bool
	}{
		"steady":          {[]float64{100, 101, 102, 100}, 4, false},
		"steady at last":  {[]float64{100, 150, 100, 150, 100, 101, 102, 100}, 8, false},
		"never":           {[]float64{100, 150, 100, 150, 100, 150, 100, 150}, 8, true},
		"one bad of four": {[]float64{100, 40, 100, 102, 100, 101, 102, 100}, 8, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			p, err := s.turns(t.Context(), 3, func(context.Context) (float64, error) {
				n++
				return tc.base[n-1], nil
			}, func(context.Context) (float64, error) { return 90, nil }, perSecond)
			if err != nil || n != tc.runs || p.void != tc.void || len(p.ours) != 3 || len(p.base) != 4 {
				t.Errorf("%d runs of the baseline, %+v, %v; want %d runs, void %t", n, p, err, tc.runs, tc.void)
			}
		})
	}
}
