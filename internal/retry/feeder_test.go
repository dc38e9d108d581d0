package retry

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

func TestDeferredRowsComeBackInOrder(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		f.deferRow(itsRoute, "1 k x/a", "2 k x/b", "3 k x/a")
		f.settle()
		f.equal("table", f.table(), "1 2 3")
		f.line.fix("x/a")
		f.pass(2 * time.Second)
		f.equal("table", f.table(), "")
		f.equal("sent", f.line.sentIDs(), "1 2 3")
	})
}

// A sweep finds what a former leader left; it skips paused destinations without reading their rows.
func TestStartSweeps(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		for _, x := range []string{"x", "y", "z"} {
			f.line.shut(x)
		}
		f.start()
		f.deferRow(nil, "1 k x/a", "2 j x/b", "3 i y/a", "4 h z/a", "5 - z/a", "6 h z/b")
		f.settle()
		f.equal("sent", f.line.sentIDs(), "")
		f.stop()
		f.succeed(Config{})
		f.line.shut("x")
		f.line.shut("y/a")
		f.start()
		f.settle()
		f.equal("table", f.table(), "1 2 3")
		inOrder(t, f.line.sentIDs(), "4 6")
		if n := f.store.count("sweep"); n > 4 { // z/a, z/b, and their ends
			t.Errorf("%d pages read", n)
		}
		// When the pause of a destination that it skipped ends, it goes back.
		f.line.fix("x")
		f.line.fix("y/a")
		f.line.set(func() { clear(f.line.paused) })
		signal(f.line.changed)
		f.pass(time.Second)
		f.equal("table", f.table(), "")
	})
}

// The next run of an ordering group is read after the end of the one before was committed, and an
// end of unknown outcome comes before any other statement.
func TestNextRunAfterTheEndOfTheOneBefore(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		var specs []string
		for i := range 3 * maxRun {
			specs = append(specs, fmt.Sprintf("%03d k x/a", i))
		}
		f.deferRow(nil, append(specs, "o j y/a")...)
		f.settle()
		f.equal("sent", f.line.sentIDs(), "o")
		lost := 0
		f.store.set(func() {
			f.store.calls = nil
			f.store.fault = func(call string) (error, bool) {
				if strings.HasPrefix(call, "apply delivered 001") && lost < 3 {
					if lost++; lost == 1 {
						f.deferRow(nil, "p j y/a") // something else to do
					} else if lost == 2 { // it says nothing about the first try
						return &store.Refused{Err: errLost, TooLarge: true}, false
					}
					return errLost, lost%2 == 1
				}
				return nil, false
			}
		})
		f.line.fix("x")
		f.pass(20 * time.Second)
		f.equal("table", f.table(), "")
		sent := strings.Fields(f.line.sentIDs())
		if len(sent) != 3*maxRun+2 || !slices.IsSorted(slices.DeleteFunc(sent, func(s string) bool { return len(s) == 1 })) {
			t.Errorf("sent %v", sent)
		}
		var around []string
		for _, c := range f.store.done() {
			if strings.HasPrefix(c, "apply delivered 001") {
				around = append(around, "apply")
			} else if len(around) > 0 && len(around) < 4 && !strings.HasPrefix(c, "defer") {
				around = append(around, c)
			}
		}
		f.equal("statements", strings.Join(around, "+"), "apply+apply+apply+apply")
	})
}

// Nothing goes past a row that may not, whatever stands behind it.
func TestRunStopsBeforeAPausedRow(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.line.shut("x/b")
		f.start()
		f.deferRow(itsRoute, "1 k x/a", "2 k x/c", "3 k x/b", "4 k x/c")
		f.settle()
		f.line.fix("x/a")
		f.pass(time.Minute)
		if log := f.line.said(); !strings.Contains(log, "offer 2\n") || strings.Contains(log, "2 3") || strings.Contains(log, "3 4") {
			t.Errorf("log:\n%s", log)
		}
		f.equal("table", f.table(), "3 4")
		f.line.fix("x/b")
		f.pass(15 * time.Second)
		f.equal("sent", f.line.sentIDs(), "3 4")
	})
}

// While a destination is paused one row goes there from time to time: the first of one ordering
// group, alone.
func TestProbes(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		f.deferRow(itsExchangeOrTopic, "1 k x/a", "2 k x/a", "3 j x/b", "4 i x/a", "5 - x/a")
		f.settle()
		f.line.said()
		f.pass(61 * time.Second)
		probes := strings.Count(f.line.said(), "refused")
		// 1.2 s, 2.4, 4.8, 9.6, then each 12 s
		if probes < 7 || probes > 9 || int(f.fed.Load()) != probes {
			t.Errorf("%d probes, %d rows offered", probes, f.fed.Load())
		}
		f.equal("table", f.table(), "1 2 3 4 5")
		f.line.fix("x")
		f.pass(13 * time.Second)
		inOrder(t, f.line.sentIDs(), "1 2")
		f.equal("table", f.table(), "")
		if _, most := f.line.inLanes(); most > 10 {
			t.Errorf("%d rows with the lanes", most)
		}
	})
}

// No probe is taken from an ordering group whose first row goes elsewhere: that row would be left
// out.
func TestProbeIsTheFirstOfItsGroup(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.line.shut("x/b")
		f.start()
		f.deferRow(itsRoute, "1 k x/a", "2 k x/b")
		f.pass(time.Minute)
		if log := f.line.said(); strings.Contains(log, "offer 2") || !strings.Contains(log, "refused 1") {
			t.Errorf("log:\n%s", log)
		}
		f.deferRow(nil, "3 j x/b") // one that may
		f.pass(15 * time.Second)
		if log := f.line.said(); strings.Contains(log, "offer 2") || !strings.Contains(log, "refused 3") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// The pause of a destination without rows is forgotten, and what comes later does not wait as long
// as the rows before.
func TestPausedDestWithoutRows(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		f.deferRow(itsRoute, "1 k x/a")
		f.pass(30 * time.Second)
		f.Ask(store.DeadLetter, "1")
		f.pass(2 * time.Minute)
		f.equal("paused", f.line.pauseCount(), "0")
		f.line.said()
		f.line.fix("x/a")
		f.deferRow(nil, "2 j x/a")
		f.pass(2 * time.Second)
		f.equal("sent", f.line.sentIDs(), "2")
	})
}

// Also one that began with the last row that went there, and one of an exchange or topic.
func TestPausedDestShutByTheLast(t *testing.T) {
	inBubble(t, Config{DestinationMaxAge: time.Minute, Backoff: 90 * time.Second, MaxBackoff: 90 * time.Second}, func(f *fixture) {
		f.start()
		f.deferRow(permanent, "1 k x/a")
		f.settle()
		f.line.shut("y")
		f.deferRow(itsExchangeOrTopic, "2 k y/a")
		f.pass(30 * time.Second)
		f.line.set(func() {
			f.line.broken["x"], f.line.broken["z/a"] = itsExchangeOrTopic, itsRoute
			f.line.keep = true
		})
		f.deferRow(transient, "3 k z/a")
		f.Ask(store.Replay, "1")
		f.pass(2 * time.Minute) // 3 is too old when it is sent, and refused
		f.line.set(func() { f.line.keep = false })
		f.line.release(0)
		f.settle()
		f.equal("paused", f.line.pauseCount(), "3")
		f.pass(2 * time.Minute)
		f.equal("table", f.table(), "")
		f.equal("paused", f.line.pauseCount(), "0")
	})
}

// When the row that a destination was probed with is gone another one is found.
func TestProbeIsReplaced(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		f.deferRow(itsRoute, "1 k x/a")
		f.deferRow(nil, "2 j x/a", "3 i x/a")
		f.settle()
		f.line.fix("x/a")
		f.answers(map[string]*sink.Fault{"1": permanent, "2": transient})
		f.pass(30 * time.Second)
		f.equal("dead_letters", f.deadLetters(), "1:open")
		if !strings.Contains(f.line.said(), "sent 3") {
			t.Error("the paused destination stays shut")
		}
	})
}

// Whose fault a refusal is decides what becomes of the row (I4).
func TestSentences(t *testing.T) {
	hour := Config{Backoff: time.Hour, MaxBackoff: time.Hour, MaxAttempts: 3}
	for _, c := range []struct {
		name        string
		cfg         Config
		fault       *sink.Fault
		attempts    int // before
		passes      bool
		table       string
		deadLetters string
		lane        string
		after       int // attempts
		apply       string
	}{
		{name: "destination", cfg: hour, fault: itsRoute, attempts: 2, table: "1 2", after: 2, apply: ""},
		{name: "destination that cannot be paused", cfg: hour, fault: notPausable, attempts: 2, table: "1 2", after: 2, apply: "apply backoff 1"},
		{name: "destination, refused for the first time", cfg: Config{DestinationMaxAge: 40 * time.Millisecond, Backoff: time.Hour, MaxBackoff: time.Hour}, fault: itsRoute, table: "1 2", apply: ""},
		{name: "transient", cfg: hour, fault: transient, attempts: 1, passes: true, table: "1 2", after: 2, apply: "apply backoff 1"},
		{name: "transient, spent", cfg: hour, fault: transient, attempts: 2, passes: true, deadLetters: "1:open", lane: "uncount k@x", apply: "apply dead 1"},
		{name: "transient, spent, nothing passes", cfg: hour, fault: transient, attempts: 2, table: "1 2", after: 3, apply: "apply backoff 1"},
		{name: "permanent", cfg: hour, fault: permanent, deadLetters: "1:open", lane: "uncount k@x", apply: "apply dead 1"},
		{name: "permanent, hold", cfg: Config{Block: true}, fault: permanent, table: "2", deadLetters: "1:open", lane: "not now k@x", apply: "apply dead 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, c.cfg, func(f *fixture) {
				f.line.shut("x")
				f.start()
				f.s.Defer(nil)
				p := f.deferredOf("1", "k", "x/a", nil)
				p.Attempts, p.Since = c.attempts, time.Now()
				f.line.counts[p.Group] = 2
				f.s.Defer([]*deferredEvent{p})
				f.deferRow(nil, "2 k x/a")
				f.line.set(func() { f.line.counts[p.Group] = 2 })
				f.settle()
				f.line.fix("x")
				f.line.set(func() {
					delete(f.line.paused, target{placeOf("x").ExchangeOrTopic, 0})
					if c.passes {
						f.line.confirmed[placeOf("x/a").Dest] = time.Now()
					}
				})
				f.answers(map[string]*sink.Fault{"1": c.fault})
				f.store.done()
				f.line.said()
				signal(f.line.changed)
				f.settle()
				f.equal("table", f.table(), c.table)
				f.equal("dead_letters", f.deadLetters(), c.deadLetters)
				var apply string
				for _, s := range f.store.done() {
					if strings.HasPrefix(s, "apply") && strings.Contains(s, " 1") {
						apply = s
					}
				}
				f.equal("statement", apply, c.apply)
				if c.table == "1 2" {
					if row := f.row("1"); row.Attempts != c.after {
						t.Errorf("%d attempts, want %d", row.Attempts, c.after)
					}
				}
				log := f.line.said()
				if c.lane != "" && !strings.Contains(log, c.lane) {
					t.Errorf("lane was not told %q:\n%s", c.lane, log)
				}
				if freed := strings.Contains(log, "sent 2"); freed != (c.table == "") {
					t.Errorf("later event sent: %v", freed)
				}
				if strings.Contains(log, "uncount") && c.lane != "uncount k@x" {
					t.Errorf("log:\n%s", log)
				}
				if want := strings.Contains(c.name, "spent") && c.deadLetters != ""; (f.exhausted.Load() == 1) != want {
					t.Errorf("%d exhausted", f.exhausted.Load())
				}
			})
		})
	}
}

// What passed at the destination while an event waited, unsent or refused by its destination, says
// nothing about it: only what passes after its first attempt.
func TestAttemptsOfOneThatWaited(t *testing.T) {
	for _, why := range []*sink.Fault{nil, itsRoute} {
		for attempts := 1; attempts <= 2; attempts++ {
			inBubble(t, Config{Backoff: time.Second, MaxBackoff: time.Second, MaxAttempts: attempts}, func(f *fixture) {
				f.line.shut("x/a")
				f.start()
				f.deferRow(why, "1 k x/a")
				f.settle()
				passes := func() { f.line.set(func() { f.line.confirmed[placeOf("x/a").Dest] = time.Now() }) }
				passes()
				f.settle()
				f.line.fix("x/a")
				f.answers(map[string]*sink.Fault{"1": transient})
				f.endPauses()
				f.pass(10 * time.Second)
				f.equal("dead_letters", f.deadLetters(), "")
				if n := f.row("1").Attempts; n < 2 {
					t.Errorf("%d attempts", n)
				}
				passes()
				f.pass(2 * time.Second)
				f.equal("dead_letters", f.deadLetters(), "1:open")
			})
		}
	}
}

// An event that may pass later comes again when its backoff is over, and no sooner.
func TestBackoff(t *testing.T) {
	inBubble(t, Config{Backoff: 10 * time.Second, MaxBackoff: 25 * time.Second}, func(f *fixture) {
		f.start()
		f.answers(map[string]*sink.Fault{"1": transient})
		f.deferRow(transient, "1 k x/a", "2 k x/a", "3 j x/a")
		f.settle()
		f.equal("sent", f.line.sentIDs(), "3")
		var at []int
		for second := range 90 {
			f.line.said()
			f.pass(time.Second)
			if strings.Contains(f.line.said(), "refused 1") {
				at = append(at, second)
			}
		}
		if want := []int{10, 30, 55, 80}; !near(at, want) {
			t.Errorf("tried at %v, want about %v", at, want)
		}
		f.answers(nil)
		f.pass(30 * time.Second)
		f.equal("sent", f.line.sentIDs(), "1 2")
	})
}

func near(got, want []int) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if got[i] < want[i]-1 || got[i] > want[i]+1 {
			return false
		}
	}
	return true
}

// With ordering pipelined two events of a key may be refused in one call. The second does not bring
// the first back before its time, nor does it stay in the list of what is due.
func TestBackoffOfTheFirst(t *testing.T) {
	inBubble(t, Config{Backoff: 10 * time.Second, MaxBackoff: time.Hour}, func(f *fixture) {
		f.start()
		f.answers(map[string]*sink.Fault{"1": transient})
		first, second := f.deferredOf("1", "k", "x/a", transient), f.deferredOf("2", "k", "x/a", transient)
		first.Attempts = 5 // 160 s
		f.line.set(func() { f.line.counts[first.Group] = 2 })
		f.s.Defer([]*deferredEvent{first, second})
		f.pass(150 * time.Second)
		if row := f.row("1"); row.Attempts != 5 || row.NextAttempt.IsZero() || !f.row("2").NextAttempt.IsZero() {
			t.Errorf("%d attempts, the next ones at %v and %v", row.Attempts, row.NextAttempt, f.row("2").NextAttempt)
		}
		f.answers(nil)
		f.pass(11 * time.Second)
		f.equal("sent", f.line.sentIDs(), "1 2")
	})
}

// Full jitter: anywhere between nothing and a doubling top, never nothing.
func TestBackoffDoubles(t *testing.T) {
	for attempt, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 11: 10 * time.Minute, 80: 10 * time.Minute} {
		c := New(Config{Jitter: func(d time.Duration) time.Duration { return d }}).cfg
		if got := c.backoff(attempt); got != want {
			t.Errorf("attempt %d: %s, want %s", attempt, got, want)
		}
		c.Jitter = func(time.Duration) time.Duration { return 0 }
		if got := c.backoff(attempt); got <= 0 {
			t.Errorf("attempt %d: %s", attempt, got)
		}
	}
	c := New(Config{}).cfg
	for range 1000 {
		if d := c.backoff(3); d <= 0 || d > 4*time.Second {
			t.Fatalf("%s", d)
		}
	}
}

// Rows that wait too long for a destination that is paused become dead letters without being sent,
// and their ordering group goes on.
func TestAge(t *testing.T) {
	for _, hold := range []bool{false, true} {
		t.Run(fmt.Sprint("hold=", hold), func(t *testing.T) {
			inBubble(t, Config{DestinationMaxAge: time.Hour, Block: hold}, func(f *fixture) {
				f.line.shut("x/a")
				f.start()
				f.deferRow(itsRoute, "1 k x/a", "2 k x/a", "3 k x/b", "4 j x/a", "5 - x/a")
				f.pass(30 * time.Minute)
				f.deferRow(nil, "6 j x/a")
				f.pass(29 * time.Minute)
				f.equal("dead_letters", f.deadLetters(), "")
				f.pass(3 * time.Minute)
				if hold {
					f.equal("dead_letters", f.deadLetters(), "1:open 4:open 5:open")
					f.equal("table", f.table(), "2 3 6")
				} else {
					f.equal("dead_letters", f.deadLetters(), "1:open 2:open 4:open 5:open")
					f.equal("table", f.table(), "6")
					f.equal("sent", f.line.sentIDs(), "3")
					for _, l := range f.db.DeadLetters(slot) { // also of those that were never sent
						if l.Row.Reason != itsRoute.Reason || l.Row.Destination != "there" || l.Row.Class != sink.Destination {
							t.Errorf("%s died of %q at %q", l.Row.Event.ID, l.Row.Reason, l.Row.Destination)
						}
					}
				}
			})
		})
	}
}

// While the broker is away nobody is refused, and nothing ages: neither what is with a lane nor
// what waits for the same destination. Afterwards that time does not count.
func TestNothingAgesDuringAnOutage(t *testing.T) {
	inBubble(t, Config{DestinationMaxAge: time.Hour}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		f.deferRow(itsRoute, "1 k x/a", "2 j x/a")
		f.pass(30 * time.Minute)
		for range 2 {
			f.line.set(func() { f.line.keep = true })
			f.pass(3 * time.Hour)
			f.equal("dead_letters", f.deadLetters(), "")
			f.line.set(func() { f.line.keep = false })
			f.line.release(0) // the probe, which is refused
			f.pass(14 * time.Minute)
			f.equal("dead_letters", f.deadLetters(), "")
		}
		f.pass(5 * time.Minute)
		f.equal("dead_letters", f.deadLetters(), "1:open 2:open")
	})
}

// Nor does what waited before the outage die at once when afterwards a pause begins that nothing is
// known of: of the whole exchange, after a confirm, or noted by a new leader.
func TestNothingAgesBeforeThePause(t *testing.T) {
	cfg := Config{DestinationMaxAge: time.Hour}
	answered := func(f *fixture) {
		f.line.set(func() { f.line.keep = false })
		f.line.release(0)
		f.pass(time.Minute)
		f.equal("dead_letters after the outage", f.deadLetters(), "")
	}
	for name, pause := range map[string]func(f *fixture){
		"exchange": func(f *fixture) {
			answered(f)
			f.line.shut("x")
		},
		"confirm": func(f *fixture) {
			answered(f)
			f.line.set(func() { clear(f.line.paused) })
			signal(f.line.changed)
		},
		"leader": func(f *fixture) {
			f.stop()
			f.succeed(cfg)
			f.line.shut("x/a")
			f.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, cfg, func(f *fixture) {
				f.line.shut("x/a")
				f.start()
				f.deferRow(itsRoute, "1 k x/a", "2 j x/a")
				f.pass(time.Minute)
				f.line.set(func() { f.line.keep = true })
				f.pass(3 * time.Hour)
				pause(f)
				f.pass(58 * time.Minute)
				f.equal("dead_letters", f.deadLetters(), "")
				f.pass(5 * time.Minute)
				f.equal("dead_letters", f.deadLetters(), "1:open 2:open")
			})
		})
	}
}

// A backlog of rows that are too old does not leave one by one with the probes. Neither keys with
// many rows, of which only the first may become a dead letter, nor young rows for another routing
// key, which are looked through before, keep other rows from it.
func TestAgeOfMany(t *testing.T) {
	first, last := "x/a", "x/b"
	if int64(placeOf(first).Dest) > int64(placeOf(last).Dest) {
		first, last = last, first
	}
	for _, c := range []struct {
		name, paused string
		hold         bool
		keys, others int // of 2*pageRows rows, and of rows behind them
		want         int
	}{
		{"many keys", last, false, 2 * pageRows, 0, 2 * pageRows},
		{"behind keys with many rows", last, true, 10, 30, 40},
		{"of an exchange", "x", false, 2 * pageRows, 0, 2 * pageRows},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, Config{DestinationMaxAge: 10 * time.Minute, Block: c.hold}, func(f *fixture) {
				f.line.shut(c.paused)
				f.start()
				var specs []string
				for i := range 2 * pageRows {
					specs = append(specs, fmt.Sprintf("%04d k%d %s", i, i%c.keys, last))
				}
				for i := range c.others {
					specs = append(specs, fmt.Sprintf("behind%02d other%d %s", i, i, last))
				}
				f.deferRow(f.line.broken[c.paused], specs...)
				f.pass(9 * time.Minute)
				f.deferRow(nil, "young j "+first)
				f.pass(3 * time.Minute)
				if n := len(f.db.DeadLetters(slot)); n != c.want {
					t.Errorf("%d dead letters, want %d", n, c.want)
				}
			})
		})
	}
}

// A row that is due while its destination is paused leaves the list of those that are due, and is
// found when the pause ends.
func TestDueButPaused(t *testing.T) {
	inBubble(t, Config{Backoff: 10 * time.Second}, func(f *fixture) {
		f.start()
		f.deferRow(transient, "1 k x/a")
		f.settle()
		f.line.shut("x/a")
		f.deferRow(itsRoute, "2 j x/a") // the probe
		f.pass(15 * time.Second)
		if at := f.row("1").NextAttempt; !at.IsZero() {
			t.Errorf("still due at %s", at)
		}
		f.equal("reason", string(f.row("1").Reason), string(transient.Reason))
		if n := f.store.count("due"); n > 10 {
			t.Errorf("asked %d times", n)
		}
		f.line.fix("x/a")
		f.pass(15 * time.Second)
		f.equal("table", f.table(), "")
	})
}

// Ordering groups that are due and blocked by a dead letter do not keep others out of the list.
func TestDueButHeld(t *testing.T) {
	inBubble(t, Config{Block: true, Backoff: 10 * time.Second}, func(f *fixture) {
		f.start()
		for i := range dueRows {
			f.deferRow(transient, fmt.Sprintf("%03d k%d x/a", i, i), fmt.Sprintf("behind%d k%d x/a", i, i))
		}
		f.settle()
		for i := range dueRows {
			f.Ask(store.DeadLetter, fmt.Sprintf("behind%d", i))
		}
		f.pass(5 * time.Second)
		f.deferRow(transient, "other j x/a")
		f.pass(15 * time.Second)
		f.equal("sent", f.line.sentIDs(), "other")
		f.Ask(store.Discard, "behind7")
		f.pass(2 * time.Second)
		f.equal("sent", f.line.sentIDs(), "other 007")
	})
}

// The budget of rows in the lanes, and of each lane.
func TestBudget(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		var specs []string
		for i := range 3000 {
			specs = append(specs, fmt.Sprintf("%04d k%d x/a", i, i%1500))
		}
		f.deferRow(nil, specs...)
		f.settle()
		f.line.fix("x")
		f.line.set(func() { f.line.keep = true })
		for range 15 {
			f.pass(time.Second)
			if n, _ := f.line.inLanes(); n == 1 {
				f.line.release(0) // the probe
			}
		}
		rows, most := f.line.inLanes()
		if most > budgetRows || most < budgetRows/2 {
			t.Errorf("%d rows in the lanes", most)
		}
		f.line.set(func() {
			for lane, n := range f.line.laneRows {
				if n > laneRows+maxRun {
					t.Errorf("%d rows in lane %d", n, lane)
				}
			}
		})
		if n := f.s.Snapshot().InFlight; n != rows {
			t.Errorf("%d in flight, %d in the lanes", n, rows)
		}
		f.line.set(func() { f.line.keep = false })
		f.line.release(0)
		f.pass(10 * time.Second)
		f.equal("table", f.table(), "")
		if n := f.s.Snapshot().InFlight; n != 0 {
			t.Errorf("%d in flight", n)
		}
	})
}

// A stalled lane does not take the budget of the others, nor their places, however much waits for
// it.
func TestLaneThatStandsStill(t *testing.T) {
	inBubble(t, Config{Backoff: 5 * time.Second}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		var still, others []string
		for i := 0; len(still) < readyLimit+1000 || len(others) < 30; i++ {
			spec := fmt.Sprintf("%05d k%d x/a", i, i)
			if digest(fmt.Sprintf("key k%d", i))%8 == 1 {
				still = append(still, spec)
			} else if len(others) < 30 {
				others = append(others, spec)
			}
		}
		f.deferRow(nil, still...)
		f.deferRow(nil, others...)
		f.settle()
		f.line.fix("x")
		f.line.set(func() {
			f.line.keep = true
			clear(f.line.paused)
		})
		signal(f.line.changed)
		for range 20 {
			f.settle()
			f.line.releaseBut(1)
		}
		if n := len(strings.Fields(f.line.sentIDs())); n != 30 {
			t.Errorf("%d sent", n)
		}
		f.pass(10 * time.Second)
		f.deferRow(transient, "late "+others[0][6:])
		for range 10 {
			f.pass(time.Second)
			f.line.releaseBut(1)
		}
		if !strings.Contains(f.line.said(), "sent late") {
			t.Error("no backoff ends")
		}
		f.line.set(func() { f.line.keep = false })
		f.line.releaseBut(-1)
		f.pass(30 * time.Second)
		f.equal("table", f.table(), "")
	})
}

// What is due for a stalled lane is not listed as due again and again: it would keep others out of
// the list.
func TestDueOfALaneThatStandsStill(t *testing.T) {
	inBubble(t, Config{Backoff: 5 * time.Second}, func(f *fixture) {
		f.start()
		f.line.set(func() { f.line.keep = true })
		var still, other string
		for i := 0; i < laneRows+2*dueRows; {
			still = fmt.Sprintf("k%d", digest(still+other))
			if digest("key "+still)%8 != 1 {
				other = still
				continue
			}
			if i++; i <= laneRows {
				f.deferRow(nil, fmt.Sprintf("%05d %s x/a", i, still))
			} else {
				f.deferRow(transient, fmt.Sprintf("%05d %s x/a", i, still))
			}
		}
		f.pass(time.Second)
		f.deferRow(transient, "other "+other+" x/a")
		for range 30 {
			f.pass(time.Second)
			f.line.releaseBut(1)
		}
		f.equal("sent", f.line.sentIDs(), "other")
		f.line.set(func() { f.line.keep = false })
		f.line.releaseBut(-1)
		f.pass(30 * time.Second)
		f.equal("table", f.table(), "")
	})
}

// Cut-overs: what a lane keeps in memory because a few rows are left waits for them. When none of
// them may go, the lane has to be notified, or its events wait for ever.
func TestNotNow(t *testing.T) {
	lost := func(string) (error, bool) { return errLost, false }
	refused := func(string) (error, bool) { return &store.Refused{Err: errLost}, false }
	for _, c := range []struct {
		name     string
		second   string // event, behind "1 k x/a", which is sent
		fault    *sink.Fault
		deferRow func(string) (error, bool) // what its INSERT meets until then
		then     func(string) (error, bool) // and afterwards
		// what the lane hears before 1 is sent, and within 200 ms after
		want string
		// and within 200 ms after its INSERT meets something else
		later string
	}{
		{name: "the rest may go", second: "2 k x/a", want: "sent 2"},
		{name: "paused", second: "2 k x/b", want: "not now k@x"},
		{name: "backoff", second: "2 k x/c", fault: transient, want: "not now k@x"},
		{name: "refused by the database", second: "2 k x/a", deferRow: refused, then: refused, want: "not now k@x"},
		{name: "refused by the database after the look", second: "2 k x/a", deferRow: lost, then: refused, later: "not now k@x"},
		{name: "not written yet", second: "2 k x/a", deferRow: lost, later: "settled 2 sent 2"},
		{name: "not written yet, paused", second: "2 k x/b", deferRow: lost, later: "settled 2 not now k@x"},
		{name: "not written yet, backoff", second: "2 k x/c", fault: transient, deferRow: lost, later: "settled 2 not now k@x"},
		{name: "not seen to be written", second: "2 k x/a", deferRow: func(string) (error, bool) { return errLost, true }, later: "settled 2 sent 2"},
		{name: "not seen to be written, paused", second: "2 k x/b", deferRow: func(string) (error, bool) { return errLost, true }, later: "settled 2 not now k@x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, Config{Backoff: time.Hour, MaxBackoff: time.Hour}, func(f *fixture) {
				f.line.shut("x/a")
				f.line.shut("x/b")
				f.start()
				f.deferRow(itsRoute, "1 k x/a")
				f.settle()
				meet := func(what func(string) (error, bool)) {
					f.store.set(func() {
						f.store.fault = func(call string) (error, bool) {
							if what != nil && call == "defer 2" {
								return what(call)
							}
							return nil, false
						}
					})
				}
				meet(c.deferRow)
				f.deferRow(c.fault, c.second)
				f.settle()
				f.line.said()
				f.line.fix("x/a")
				f.line.set(func() { delete(f.line.paused, target{placeOf("x/a").ExchangeOrTopic, placeOf("x/a").Dest}) })
				signal(f.line.changed)
				f.pass(200 * time.Millisecond)
				f.equal("at once", f.heard(), strings.TrimSpace("sent 1 "+c.want))
				f.pass(4 * time.Second) // probes of x/b, tries of the INSERT
				f.line.said()
				meet(c.then)
				for range 60 {
					f.pass(100 * time.Millisecond)
					if deferred := f.s.Snapshot(); deferred.Queued == 0 || deferred.RefusedAll > 0 {
						break
					}
				}
				f.pass(100 * time.Millisecond)
				f.equal("later", f.heard(), c.later)
			})
		})
	}
}

// A cut-over waits for a dead letter that blocks the ordering group, and is not in the table yet:
// once it is, the lane is notified.
func TestNotNowOfADeadLetter(t *testing.T) {
	inBubble(t, Config{Block: true}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		f.deferRow(itsRoute, "1 k x/a")
		f.settle()
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				if call == "defer 2" {
					return errLost, false
				}
				return nil, false
			}
		})
		f.deferRow(permanent, "2 k x/a")
		f.settle()
		f.line.said()
		f.line.fix("x/a")
		f.line.set(func() { clear(f.line.paused) })
		signal(f.line.changed)
		f.pass(time.Second)
		f.equal("at once", f.heard(), "sent 1")
		f.store.set(func() { f.store.fault = nil })
		f.pass(10 * time.Second)
		f.equal("later", f.heard(), "settled 2 not now k@x")
	})
}

// heard is what the line was notified of, in one line, without what it was offered.
func (f *fixture) heard() string {
	log := strings.Fields(strings.ReplaceAll(f.line.said(), " ", "_"))
	log = slices.DeleteFunc(log, func(s string) bool { return strings.HasPrefix(s, "offer") })
	return strings.ReplaceAll(strings.Join(log, " "), "_", " ")
}

// Rows that come back unsent although none before them was refused are offered again, not at once.
func TestUnsent(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		n := 0
		f.line.answer = func(*relay.Fed) sink.Outcome {
			if n++; n <= 5 {
				return sink.Outcome{State: sink.Unsent}
			}
			return sink.Outcome{State: sink.Confirmed}
		}
		f.deferRow(nil, "1 k x/a", "2 k x/a")
		f.settle()
		f.equal("log", f.line.said(), "settled 1\nsettled 2\noffer 1 2")
		f.pass(10 * time.Second)
		f.equal("table", f.table(), "")
		f.equal("sent", f.line.sentIDs(), "1 2")
	})
}

// An ordering group that is ready, and goes as a probe before its turn, is not read once more while
// that is in flight.
func TestGroupInFlightIsNotReadAgain(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.start()
		f.deferRow(itsRoute, "1 k x/a")
		f.settle()
		f.line.fix("x/a")
		lane := int(digest("key k") % 8)
		f.line.set(func() { f.line.keep = true })
		var specs []string
		for i := 0; len(specs) < budgetRows; i++ {
			if key := fmt.Sprint("o", i); int(digest("key "+key)%8) != lane {
				specs = append(specs, fmt.Sprintf("o%04d %s y/a", i, key))
			}
		}
		f.deferRow(nil, specs...)
		f.settle()
		if rows, _ := f.line.inLanes(); rows != budgetRows-probeRows {
			t.Fatalf("%d rows in the lanes", rows)
		}
		f.deferRow(nil, "2 k x/b") // ready, and there is no room
		f.pass(2 * time.Second)
		f.line.set(func() { clear(f.line.paused) })
		signal(f.line.changed)
		for range 3 {
			f.line.releaseBut(lane)
			f.settle()
		}
		if n := strings.Count(f.line.said(), "offer 1"); n != 1 {
			t.Errorf("offered %d times", n)
		}
		f.line.set(func() { f.line.keep = false })
		f.line.release(0)
		f.pass(time.Second)
		f.equal("table", f.table(), "")
	})
}

// What comes while an ordering group is in flight is read afterwards, also when it is too much for
// a cut-over.
func TestNewsOfAGroupInFlight(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.line.set(func() { f.line.keep = true })
		f.deferRow(nil, "first k x/a")
		f.settle()
		var specs []string
		for i := range 2 * maxRun {
			specs = append(specs, fmt.Sprintf("%03d k x/a", i))
		}
		f.deferRow(nil, specs...)
		f.settle()
		f.line.set(func() { f.line.keep = false })
		f.line.release(0)
		f.settle()
		f.equal("table", f.table(), "")
	})
}

// An ordering group is read on behind a run that was as long as it may be.
func TestLongGroupGoesOn(t *testing.T) {
	inBubble(t, Config{Backoff: time.Minute}, func(f *fixture) {
		f.start()
		var specs []string
		for i := range 5 * maxRun {
			specs = append(specs, fmt.Sprintf("%03d k x/a", i))
		}
		f.deferRow(transient, specs...)
		f.pass(50 * time.Second)
		f.line.said()
		f.pass(11 * time.Second)
		f.equal("table", f.table(), "")
		if n := f.store.count("apply"); n > 10 {
			t.Errorf("%d statements", n)
		}
	})
}

// An event without an order is not counted with its exchange or topic: the lane is notified
// although one is in flight.
func TestNotNowOfAExchangeOrTopicBesideOneInNoOrder(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.line.shut("x/b")
		f.line.set(func() { f.line.stays = func(fed *relay.Fed) bool { return fed.Group == 0 } })
		f.start()
		for i := range 64 { // some in each lane
			f.deferRow(nil, fmt.Sprintf("u%02d - x/c", i))
		}
		f.settle()
		f.deferRow(itsRoute, "1 k x/a", "2 j x/b")
		f.line.set(func() {
			for group := range f.line.counts {
				f.line.counts[group] = 2 // as if counted together
			}
		})
		f.settle()
		f.line.said()
		f.line.fix("x/a")
		f.pass(3 * time.Second)
		if log := f.line.said(); !strings.Contains(log, "not now k@x") {
			t.Errorf("log:\n%s", log)
		}
		f.line.set(func() { f.line.stays = nil })
		f.line.release(0)
		f.pass(time.Second)
		f.equal("table", f.table(), "2")
	})
}

// A pause that ends between a rejection and its commit: the sweep for it finds the ordering group
// in flight, which is read again afterwards.
func TestPausedDestOpensMeanwhile(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x/a")
		f.line.shut("x/b")
		f.start()
		f.deferRow(itsRoute, "0 j x/a", "1 k x/b", "2 k x/a")
		f.settle()
		f.line.fix("x/b")
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				// 2 was refused behind it; its pause ends just now
				if strings.HasPrefix(call, "apply delivered 1") {
					f.line.fix("x/a")
					f.line.set(func() { clear(f.line.paused) })
					f.store.fault = nil
				}
				return nil, false
			}
		})
		// 1 and 2 go in one run while x/a is not paused, 2 is refused
		f.line.set(func() { clear(f.line.paused) })
		signal(f.line.changed)
		f.pass(5 * time.Second)
		f.equal("table", f.table(), "")
	})
}

// A sweep makes up for missed notifications.
func TestMissedNews(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				if call == "requests" {
					f.pass(10 * time.Second) // the feeder is busy
				}
				return nil, false
			}
		})
		f.pass(2 * time.Second)
		var specs []string
		for i := range readyLimit + 3000 {
			specs = append(specs, fmt.Sprintf("%05d k%d x/a", i, i))
		}
		f.deferRow(nil, specs...)
		f.pass(2 * time.Second)
		f.store.set(func() { f.store.fault = nil })
		f.pass(30 * time.Second)
		if n := len(strings.Fields(f.table())); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// Pages of a sweep that find nothing to feed cost a tenth of the time, and no sweep is made again
// for no reason.
func TestUselessSweepsAreRare(t *testing.T) {
	inBubble(t, Config{Backoff: time.Hour, MaxBackoff: time.Hour}, func(f *fixture) {
		f.start()
		var all []*deferredEvent
		for i := range 5000 {
			p := f.deferredOf(fmt.Sprintf("%05d", i), fmt.Sprintf("k%d", i), "x/a", transient)
			all = append(all, p)
		}
		f.s.Defer(all)
		f.pass(time.Second)
		f.stop()
		f.succeed(Config{Backoff: time.Hour})
		began := time.Now()
		f.start()
		for f.store.count("sweep") < 10 {
			f.pass(10 * time.Millisecond)
		}
		// A page is 2 ms: Sweep and Runs.
		if took := time.Since(began); took < 150*time.Millisecond || took > time.Second {
			t.Errorf("10 pages of nothing took %s", took)
		}
		f.pass(time.Minute)
		if n := f.store.count("sweep"); n > 12 {
			t.Errorf("%d pages", n)
		}
		f.equal("sent", f.line.sentIDs(), "")
	})
}

// At a stop nothing is offered any more; what is with the lanes is taken back, and its end
// committed.
func TestStopFeeding(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		var specs []string
		for i := range 2 * maxRun {
			specs = append(specs, fmt.Sprintf("%03d k x/a", i))
		}
		f.deferRow(nil, specs...)
		f.settle()
		f.line.fix("x")
		f.line.set(func() { f.line.keep = true; clear(f.line.paused) })
		signal(f.line.changed)
		f.settle()
		f.s.StopFeeding()
		f.deferRow(nil, "late j y/a")
		idle := make(chan error, 1)
		go func() { idle <- f.s.WaitIdle(f.t.Context()) }()
		f.pass(time.Minute)
		if len(idle) > 0 {
			t.Error("idle with rows in the lanes")
		}
		f.line.set(func() { f.line.keep = false })
		f.line.release(0)
		f.settle()
		if len(idle) == 0 {
			t.Fatal("not idle")
		}
		if n := len(strings.Fields(f.table())); n != maxRun+1 {
			t.Errorf("%d rows left", n)
		}
		if n := len(strings.Fields(f.line.sentIDs())); n != maxRun {
			t.Errorf("%d sent", n)
		}
	})
}

// Also what was being read when the stop came is not offered.
func TestStopFeedingWhileReading(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				if call == "runs" {
					f.s.StopFeeding()
				}
				return nil, false
			}
		})
		f.deferRow(nil, "1 k x/a")
		f.pass(time.Minute)
		f.equal("log", f.line.said(), "settled 1")
		f.equal("table", f.table(), "1")
		if err := f.s.WaitIdle(f.t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A kind of statement that fails does not delay the others, and is not repeated in a hurry.
func TestOneStatementFails(t *testing.T) {
	for _, what := range []string{"requests", "due", "sweep", "skip"} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, Config{DestinationMaxAge: time.Hour}, func(f *fixture) {
				f.store.fault = func(call string) (error, bool) {
					if call == what {
						return errLost, false
					}
					return nil, false
				}
				f.line.shut("x/a")
				f.start()
				f.deferRow(itsRoute, "1 k x/a", "2 j y/a")
				f.settle()
				f.equal("sent", f.line.sentIDs(), "2")
				f.line.fix("x/a")
				f.pass(time.Minute)
				f.equal("table", f.table(), "")
				if n := f.store.count(what); n > 100 {
					t.Errorf("asked %d times in a minute", n)
				}
			})
		})
	}
}

// An end that the database refuses stands alone in the end; the others are committed.
func TestRefusedEnd(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		f.deferRow(nil, "1 k x/a", "2 j x/a", "3 i x/a", "4 h x/a", "5 j x/a")
		f.settle()
		f.line.fix("x")
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				if strings.HasPrefix(call, "apply") && strings.Contains(call, " 2") {
					return &store.Refused{Err: errLost}, false
				}
				return nil, false
			}
		})
		f.pass(15 * time.Second)
		f.equal("table", f.table(), "2 5")
		f.store.set(func() { f.store.fault = nil })
		f.pass(10 * time.Second)
		f.equal("table", f.table(), "")
		f.equal("sent once", fmt.Sprint(strings.Count(f.line.said(), "sent 2")), "1")
	})
}

// Rows that are in the table under another destination than they go to now are also found when its
// pause ends.
func TestMovedDestinations(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		f.deferRow(nil, "1 k x/a", "2 j x/a", "3 i x/a")
		f.settle()
		f.stop()
		f.succeed(Config{})
		f.s.cfg.Sink = movedSink{}
		f.line.set(func() {
			f.line.broken["x"] = itsRoute
			f.line.paused[target{placeOf("x").ExchangeOrTopic, placeOf("x/a").Dest + 2}] = true
		})
		f.start()
		f.pass(2 * time.Second)
		f.equal("table", f.table(), "1 2 3")
		f.line.fix("x")
		f.pass(15 * time.Second)
		f.equal("table", f.table(), "")
	})
}

// movedSink knows other destinations than the table.
type movedSink struct{ fakeSink }

func (s movedSink) Place(ev *event.Event) (sink.Place, bool) {
	p, ok := s.fakeSink.Place(ev)
	p.Dest += 2
	return p, ok
}

// A row that is read alone ends the run before it and its own. The ordering group goes on behind
// both, and in order.
func TestRowThatIsReadAlone(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		f.store.set(func() { f.store.alone = "010" })
		var specs, ids []string
		for i := range 3 * maxRun {
			ids = append(ids, fmt.Sprintf("%03d", i))
			specs = append(specs, ids[i]+" k x/a")
		}
		f.deferRow(nil, specs...)
		f.settle()
		f.line.fix("x")
		f.pass(20 * time.Second)
		f.equal("table", f.table(), "")
		f.equal("sent", f.line.sentIDs(), strings.Join(ids, " "))
	})
}
