package retry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
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
		f.db.Lead(slot)
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
