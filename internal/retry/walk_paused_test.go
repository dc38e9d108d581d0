package retry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// A walk reads the first page of a paused destination, so that there is a row to probe it with, and
// leaves the rest until the pause ends. The exchange stays unsure until then.
func TestWalkLeavesOutWhatIsPaused(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		specs := []string{"1 k x/a"}
		for i := range pageRows + 1 {
			specs = append(specs, fmt.Sprintf("%03d k%d x/b", i, i))
		}
		f.left(Config{}, append(specs, "2 j y/a")...)
		f.pause("x/b")
		f.pause("z/a") // of another exchange
		f.start()
		f.pass(5 * time.Second)
		log := f.line.said()
		if !strings.Contains(log, "walk k@x 1") || !strings.Contains(log, "ends y") || strings.Contains(log, "ends x") || strings.Contains(log, "@x 500") {
			t.Errorf("log:\n%s", log)
		}
		f.unpause("x/b")
		f.pass(5 * time.Second)
		if log := f.line.said(); !strings.Contains(log, "@x 500") || !strings.Contains(log, "ends x") {
			t.Errorf("after the pause:\n%s", log)
		}
	})
}

// A destination that opens while a walk goes on behind it is walked again.
func TestPausedDestOpensDuringItsWalk(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		to := []string{"x/a", "x/b", "x/c", "x/d"} // in the order of a walk
		slices.SortFunc(to, func(a, b string) int { return cmp.Compare(int64(placeOf(a).Dest), int64(placeOf(b).Dest)) })
		var specs []string
		for i := range 2*pageRows + 1 {
			specs = append(specs, fmt.Sprintf("%04d k%d %s", i, i, to[0]))
		}
		f.left(Config{}, append(specs, "1 i "+to[1], "2 j "+to[2], "3 l "+to[3])...)
		f.pause(to[0])
		skips := 0
		f.store.fault = func(call string) (error, bool) {
			if call == "skip" {
				if skips++; skips == 3 {
					f.unpause(to[0])
				}
			}
			return nil, false
		}
		f.start()
		f.pass(2 * time.Minute)
		log := f.line.said()
		if opened := strings.Index(log, "walk j@x 2"); !strings.Contains(log[opened:], "@x 1000") || !strings.HasSuffix(log, "ends x") {
			t.Errorf("log:\n%s", log[max(len(log)-500, 0):])
		}
	})
}

// A paused target without a group at rest is given one; without rows its pause is forgotten.
func TestLonelyPause(t *testing.T) {
	for _, to := range []string{"x/a", "x"} {
		t.Run(to, func(t *testing.T) {
			inBubble(t, Config{}, func(f *fixture) {
				f.start()
				f.deferRows(nil, "1 k x/a", "2 j x/a")
				f.settle()
				f.line.said()
				f.pause(to)
				f.pass(3 * time.Second)
				want := []string{"walk k@x 1", "walk j@x 2"}
				if to == "x" {
					want = append(want, "begins x")
				}
				f.saidInAnyOrder(want...)
				for _, id := range []string{"1", "2"} {
					f.ask(store.Purge, id)
					f.pass(2 * time.Second)
					f.line.rest(false)
				}
				f.pass(time.Minute)
				if f.line.pauses.Any() {
					t.Errorf("%+v", f.line.pauses.List())
				}
			})
		})
	}
}

// A walk looks for a row to probe with behind rows that are blocked, however many.
func TestLonelyPauseBehindBlockedRows(t *testing.T) {
	inBubble(t, Config{Block: true}, func(f *fixture) {
		f.start()
		f.deferRows(permanent, "dead k x/a")
		var specs []string
		for i := range pageRows + 1 {
			specs = append(specs, fmt.Sprintf("%03d k x/a", i))
		}
		f.deferRows(nil, append(specs, "1 j x/a")...)
		f.pass(time.Second)
		f.line.said()
		f.pause("x/a")
		f.pass(5 * time.Second)
		f.said("walk j@x 1")
	})
}

// Rows that are too old are found, however many there are, behind groups that are blocked, and
// behind young rows for another routing key of a paused exchange.
func TestOldRowsAreFound(t *testing.T) {
	first, last := "x/a", "x/b"
	if int64(placeOf(first).Dest) > int64(placeOf(last).Dest) {
		first, last = last, first
	}
	for _, c := range []struct {
		name, paused string
		block        bool
		keys         int // of 2*pageRows rows
		behind       int
	}{
		{"many keys", last, false, 2 * pageRows, 0},
		{"behind keys that are blocked", last, true, 10, 30},
		{"of an exchange", "x", false, 2 * pageRows, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{DestinationMaxAge: time.Minute, Block: c.block}
			inBubble(t, cfg, func(f *fixture) {
				f.start()
				var specs []string
				for i := range 2 * pageRows {
					specs = append(specs, fmt.Sprintf("%04d k%d %s", i, i%c.keys, last))
				}
				for i := range c.behind {
					specs = append(specs, fmt.Sprintf("behind%02d other%d %s", i, i, last))
				}
				f.deferRows(nil, specs...)
				f.pass(time.Second)
				if c.block {
					for i := range c.keys {
						f.deferRows(permanent, fmt.Sprintf("dead%d k%d %s", i, i, last))
					}
				}
				for range 80 { // no rejection adds more than the wait between two probes
					f.pause(c.paused)
					f.pass(time.Second)
				}
				f.deferRows(nil, "young j "+first)
				f.settle()
				f.line.said()
				f.pass(20 * time.Second)
				log := f.line.said()
				want := c.keys
				if c.block {
					want = 0
				}
				for i := range want {
					if !strings.Contains(log, fmt.Sprintf("walk k%d@x ", i)) {
						t.Fatalf("not found: k%d", i)
					}
				}
				for i := range c.behind {
					if !strings.Contains(log, fmt.Sprintf("walk other%d@x behind%02d", i, i)) {
						t.Fatalf("not found: %d", i)
					}
				}
			})
		})
	}
}

// A page may have rows of groups only whose first row waits for another destination: a walk looks
// on for a row to probe this one with.
func TestWalkFindsAProbeBehindRowsOfOthers(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		var specs []string
		for i := range pageRows + 1 {
			specs = append(specs, fmt.Sprintf("%03da k%d x/a", i, i), fmt.Sprintf("%03db k%d x/b", i, i))
		}
		f.left(Config{}, append(specs, "last z x/b")...)
		f.pause("x/a")
		f.pause("x/b")
		f.start()
		f.pass(30 * time.Second)
		if log := f.line.said(); !strings.Contains(log, "walk z@x last") {
			t.Errorf("log:\n%s", log[max(len(log)-500, 0):])
		}
	})
}

// Behind a paused exchange each destination waits for the same probe: none is read but the first.
func TestWalkOfAPausedExchangeEnds(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		var specs []string
		for i := range 100 {
			specs = append(specs, fmt.Sprintf("%03d k%d x/%d", i, i, i))
		}
		f.left(Config{}, specs...)
		f.pause("x")
		calls := 0
		f.store.fault = func(call string) (error, bool) {
			if call == "sweep" || call == "skip" {
				calls++
			}
			return nil, false
		}
		f.start()
		f.pass(30 * time.Second)
		if log := f.line.said(); !strings.Contains(log, "walk k") || strings.Contains(log, "ends x") || calls > 10 {
			t.Errorf("%d calls, log:\n%s", calls, log)
		}
		f.unpause("x")
		f.pass(30 * time.Second)
		if log := f.line.said(); strings.Count(log, "walk k") < 99 || !strings.Contains(log, "ends x") {
			t.Errorf("after the pause:\n%s", log)
		}
	})
}
