package retry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// left has a leader leave these rows to another one, which is not started.
func (f *fixture) left(cfg Config, specs ...string) {
	f.start()
	f.deferRows(nil, specs...)
	f.pass(time.Second)
	f.stop()
	f.succeed(cfg)
}

// A new leader tells the lanes which exchanges have rows, hands them the first rows of each
// ordering group, and then says that these are all.
func TestStartWalks(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.left(Config{}, "1 k1 x/a", "2 k1 x/b", "3 j x/b", "4 - x/c", "5 i y/a")
		f.start()
		f.pass(time.Second)
		f.saidInAnyOrder("unsure x", "unsure y", "begins x", "begins y", "walk k1@x 1 2", "walk k1@x 1 2", "walk j@x 3", "walk 4 4", "walk i@y 5", "ends x", "ends y")
		f.pass(time.Minute)
		f.said("")
	})
}

// Without rows nothing is unsure. With on_dead_letter: block a walk does not find what is blocked,
// so its exchange stays unsure.
func TestStartOfEmptyAndBlockedTables(t *testing.T) {
	for _, block := range []bool{false, true} {
		inBubble(t, Config{Block: block}, func(f *fixture) {
			f.start()
			f.deferRows(permanent, "1 k x/a")
			f.settle()
			f.restart(Config{Block: block})
			f.pass(time.Minute)
			f.said(map[bool]string{false: "", true: "unsure x\nbegins x"}[block])
		})
	}
}

// Load returns an error when it is fenced, and when its statement fails.
func TestLoadFails(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.db.RaiseEpoch(slot)
		var stop *event.Stop
		if err := f.table.Load(f.t.Context(), f.line); !errors.As(err, &stop) || stop.Reason != "fenced" {
			t.Errorf("fenced: %v", err)
		}
		f.succeed(Config{})
		f.store.fails("", errLost, false)
		if err := f.table.Load(f.t.Context(), f.line); !errors.Is(err, errLost) || errors.As(err, &stop) {
			t.Errorf("lost: %v", err)
		}
	})
}

// A walk goes on where it was after a statement that failed, and stays in its exchange: it would
// tell the lanes of another one that they know its ordering groups.
func TestWalkAfterAStatementThatFailed(t *testing.T) {
	for _, call := range []string{"skip", "sweep", "read"} {
		t.Run(call, func(t *testing.T) {
			inBubble(t, Config{}, func(f *fixture) {
				f.left(Config{}, "1 k x/a", "2 j x/b", "3 i y/a", "4 h z/a")
				n := 0
				f.store.fault = func(c string) (error, bool) {
					if n++; c == call && n%3 > 0 {
						return errLost, false
					}
					return nil, false
				}
				f.start()
				f.pass(2 * time.Minute)
				want := []string{"unsure x", "unsure y", "unsure z", "begins x", "begins y", "begins z", "walk k@x 1", "walk j@x 2", "walk i@y 3", "walk h@z 4", "ends x", "ends y", "ends z"}
				if call == "skip" { // a walk whose first statement failed begins again
					want = append(want, "begins x", "begins x", "begins z")
				}
				f.saidInAnyOrder(want...)
			})
		})
	}
}

// The walk that a lane asks for begins after it has asked: a group that is forgotten while a walk
// passes it was not handed over. And the lanes know that it begins before it reads anything: what
// they forget later it may have missed.
func TestForgottenDuringAWalk(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRows(nil, "1 k x/a")
		f.settle()
		f.line.said()
		once := false
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				if call == "sweep" && !once {
					once = true
					f.walk("x")
				}
				if call == "skip" && !f.line.was("begins x") {
					f.t.Error("a walk reads, and the lanes do not know that it has begun")
				}
				return nil, false
			}
		})
		f.walk("x")
		f.pass(5 * time.Second)
		f.said("begins x", "walk k@x 1", "ends x", "begins x", "walk k@x 1", "ends x")
	})
}

// What cannot be read or placed keeps a walk from being complete, whatever is paused elsewhere,
// and it begins again: its rows are found when they can be.
func TestIncompleteWalkBeginsAgain(t *testing.T) {
	for _, c := range []string{"read", "placed"} {
		t.Run(c, func(t *testing.T) {
			inBubble(t, Config{}, func(f *fixture) {
				specs := []string{"1 k x/a", "2 j x/a"}
				for i := range pageRows + 1 {
					specs = append(specs, fmt.Sprintf("%03d k%d y/b", i, i))
				}
				f.left(Config{}, specs...)
				f.pause("y/b")
				if c == "read" {
					f.store.torn = map[string]bool{"1": true}
				} else {
					f.sink.forget("x")
				}
				f.start()
				f.pass(time.Minute)
				if log := f.line.said(); strings.Contains(log, "ends") || strings.Contains(log, "k@x") || strings.Contains(log, "j@x 2") != (c == "read") {
					t.Errorf("log:\n%s", log)
				}
				if n := f.store.count("sweep"); n > 200 {
					t.Errorf("%d pages in a minute", n)
				}
				f.store.set(func() { f.store.torn = nil })
				f.sink.forget("")
				f.pass(time.Minute)
				if log := f.line.said(); !strings.Contains(log, "walk k@x 1\n") || !strings.Contains(log, "ends x") {
					t.Errorf("log:\n%s", log)
				}
			})
		})
	}
}

// Groups that found no room in a statement are handed over before the walk goes on.
func TestWalkOfLargeRows(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.sizes = map[string]int{}
		var specs, want []string
		for i := range 100 {
			id := fmt.Sprintf("%03d", i)
			f.sizes[id] = budgetBytes / 20
			specs, want = append(specs, fmt.Sprintf("%s k%d x/a", id, i)), append(want, fmt.Sprintf("walk k%d@x %s", i, id))
		}
		f.left(Config{}, specs...)
		f.start()
		f.pass(10 * time.Second)
		log := strings.Split(f.line.said(), "\n")
		if len(log) != 103 || !slices.Equal(log[2:102], want) || log[102] != "ends x" {
			t.Errorf("log of %d lines: %v", len(log), log)
		}
	})
}

// A lane that stands still takes its share of the budget, and the others' groups are found. When it
// goes on, its own are found, too.
func TestWalkBesideALaneThatStandsStill(t *testing.T) {
	inBubble(t, Config{BudgetBytes: 10_000}, func(f *fixture) {
		f.sizes = map[string]int{}
		var specs []string
		for i := range 100 {
			id := fmt.Sprintf("1-%d", i)
			f.sizes[id] = 1000
			specs = append(specs, fmt.Sprintf("%s k%d1 x/a", id, i))
		}
		f.left(Config{BudgetBytes: 10_000}, append(specs, "2-a k2 x/a")...)
		f.line.keep = true
		f.start()
		f.pass(time.Minute)
		if f.inLane(1) < 3 || f.inLane(2) != 1 {
			t.Errorf("lane 1 has %d rows, lane 2 has %d", f.inLane(1), f.inLane(2))
		}
		for range 60 {
			f.deliver()
			f.pass(2 * time.Second)
		}
		f.equal("rows", f.rows(), "")
		if !strings.Contains(f.line.said(), "ends x") {
			t.Error("x stays unsure")
		}
	})
}

// Walks go on, at a tenth of the time, while lanes drain a backlog.
func TestWalkBesideABacklog(t *testing.T) {
	cfg := Config{BudgetBytes: 16_000}
	inBubble(t, cfg, func(f *fixture) {
		var specs []string
		for i := range 3 * pageRows {
			specs = append(specs, fmt.Sprintf("%04d k%d x/a", i, i))
		}
		f.left(cfg, specs...)
		f.start()
		f.lanesWant(300, 1, 2, 3, 4, 5)
		f.line.said()
		f.walk("x")
		for range 10 {
			f.pass(time.Second)
			f.line.finish("delivered", f.line.ids()[:10]...)
		}
		if !strings.Contains(f.line.said(), "@x 1499") {
			t.Error("the walk has not reached its end")
		}
	})
}

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
				if f.line.pauses.AnyPaused() {
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
