package retry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// I2: an event is settled when its row is committed, and not before.
func TestSettledOnceCommitted(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		f.store.fault = func(call string) (error, bool) {
			if strings.HasPrefix(call, "defer") {
				return errLost, false
			}
			return nil, false
		}
		f.deferRow(nil, "1 k x/a")
		f.settle()
		f.equal("log", f.line.said(), "")
		f.store.set(func() { f.store.fault = nil })
		f.pass(time.Second)
		f.equal("log", f.line.said(), "settled 1")
		if n := f.deferred.Load(); n != 1 {
			t.Errorf("%d rows told of", n)
		}
	})
}

// A statement of unknown outcome is made again as it was, before any other; what it wrote is not
// read meanwhile, or it would be sent, deleted, and written once more.
func TestUnknownDeferIsRepeatedFirst(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		lost := 0
		f.store.fault = func(call string) (error, bool) {
			if strings.HasPrefix(call, "defer 1") && lost < 3 {
				lost++
				return errLost, true
			}
			return nil, false
		}
		f.deferRow(transient, "1 k x/a")
		f.settle()
		f.deferRow(nil, "2 k x/a", "3 j x/a")
		f.pass(3 * time.Second)
		var defers []string
		for _, c := range f.store.done() {
			if strings.HasPrefix(c, "defer") {
				defers = append(defers, c)
			}
		}
		f.equal("defers", strings.Join(defers, ", "), "defer 1, defer 1, defer 1, defer 1, defer 2 3")
		if n := len(f.store.defers); n < 4 || !slices.Equal(f.store.defers[0], f.store.defers[3]) {
			t.Errorf("repeated under other numbers: %v", f.store.defers)
		}
		f.equal("sent", f.line.sentIDs(), "3 1 2")
		f.equal("table", f.table(), "")
	})
}

// Rows are not read before the writer knows that they are committed, although they are there and
// the feeder looks for them.
func TestNothingIsReadThatIsNotAcknowledged(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		var look atomic.Bool
		f.store.fault = func(call string) (error, bool) {
			if strings.HasPrefix(call, "defer") {
				return errLost, true
			}
			return f.noSweepBefore(&look, call)
		}
		f.start()
		f.deferRow(nil, "1 k x/a")
		f.settle()
		look.Store(true)
		f.pass(time.Minute)
		f.equal("table", f.table(), "1")
		if f.store.count("runs") == 0 {
			t.Error("the feeder has not looked")
		}
		f.equal("sent", f.line.sentIDs(), "")
		f.store.set(func() { f.store.fault = nil })
		f.pass(6 * time.Second)
		f.equal("sent", f.line.sentIDs(), "1")
		f.equal("table", f.table(), "")
	})
}

// noSweepBefore makes the sweep over everything, with which a leader begins, fail until then.
func (f *fixture) noSweepBefore(then *atomic.Bool, call string) (err error, done bool) {
	if (call == "skip" || call == "sweep") && !then.Load() {
		return errLost, false
	}
	return nil, false
}

// A row that the database refuses keeps the later ones of its ordering group out of the table, and
// no others.
func TestRefusedRowIsIsolated(t *testing.T) {
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprint("named=", named), func(t *testing.T) {
			inBubble(t, Config{}, func(f *fixture) {
				f.line.shut("x")
				f.store.bad["3"], f.store.named = true, named
				f.start()
				f.deferRow(nil, "1 k x/a", "2 j x/a", "3 k x/a", "4 j x/a", "5 k x/a", "6 i x/a")
				f.settle()
				f.equal("table", f.table(), "1 2 4 6")
				f.deferRow(nil, "7 k x/a", "8 j x/a")
				f.settle()
				f.equal("table", f.table(), "1 2 4 6 8")
				shot := f.s.Snapshot()
				if shot.RefusedAll != 1 || shot.Queued != 3 || shot.Refused[0].ID != "3" || shot.Refused[0].Behind != 2 || shot.Refused[0].Err != "invalid byte" {
					t.Errorf("snapshot %+v", shot)
				}
				f.pass(time.Minute) // tried again and again, and not for ever longer
				tried := f.store.count("defer 3")
				f.store.set(func() { delete(f.store.bad, "3") })
				f.pass(time.Minute)
				f.equal("table", f.table(), "1 2 3 4 5 6 7 8")
				if tried < 5 || tried > 20 {
					t.Errorf("tried %d times in a minute", tried)
				}
				if shot := f.s.Snapshot(); shot.Queued != 0 || shot.RefusedAll != 0 || shot.QueuedBytes != 0 {
					t.Errorf("snapshot %+v", shot)
				}
				f.line.said()
				f.line.fix("x")
				f.pass(15 * time.Second)
				for _, key := range []string{"1 3 5 7", "2 4 8"} {
					inOrder(t, f.line.sentIDs(), key)
				}
			})
		})
	}
}

// inOrder checks that ids were sent in this order, each once.
func inOrder(t *testing.T, sent, want string) {
	t.Helper()
	var got []string
	for _, id := range strings.Fields(sent) {
		if slices.Contains(strings.Fields(want), id) {
			got = append(got, id)
		}
	}
	if strings.Join(got, " ") != want {
		t.Errorf("sent %q, want %q in this order", sent, want)
	}
}

// What was behind a refused row comes before all that came later.
func TestFreedRowsComeBeforeLaterOnes(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.store.bad["1"] = true
		f.start()
		f.deferRow(nil, "1 k x/a", "2 k x/a")
		f.settle()
		// Two rounds are waiting, with a later row in the second, when the first one is written.
		f.store.set(func() {
			delete(f.store.bad, "1")
			f.store.fault = func(call string) (error, bool) {
				if strings.HasPrefix(call, "defer o") && f.s.Snapshot().RefusedAll > 0 {
					return errLost, false
				}
				return nil, false
			}
		})
		specs := []string{"one j x/a"}
		f.deferRow(nil, specs...)
		specs = nil
		for i := range roundRows + 100 {
			specs = append(specs, fmt.Sprintf("%04d k%d x/a", i, i))
		}
		f.deferRow(nil, append(specs, "3 k x/a")...)
		f.pass(time.Second) // 1 is due
		f.store.set(func() { f.store.fault = nil })
		f.pass(10 * time.Second)
		var defers []string
		for _, c := range f.store.done() {
			if strings.HasPrefix(c, "defer") {
				defers = append(defers, c)
			}
		}
		all := " " + strings.Join(defers, " ") + " "
		if i, j := strings.LastIndex(all, " 2 "), strings.Index(all, " 3 "); i < 0 || i > j {
			t.Errorf("2 was written at %d, 3 at %d", i, j)
		}
	})
}

// Rows that are not acknowledged are not read, by a sweep or by the search for a probe.
func TestNoLookReadsWhatIsNotAcknowledged(t *testing.T) {
	for _, c := range []struct {
		second string
		gone   bool // the row that the destination was probed with
	}{{"2 j x/a", false}, {"2 j x/a", true}, {"2 k x/a", true}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			inBubble(t, Config{}, func(f *fixture) {
				f.line.shut("x/a")
				f.start()
				f.deferRow(itsRoute, "1 k x/a")
				f.settle()
				f.store.set(func() {
					f.store.fault = func(call string) (error, bool) {
						if call == "defer 2" {
							return errLost, true
						}
						return nil, false
					}
				})
				f.deferRow(nil, c.second)
				f.settle()
				f.equal("table", f.table(), "1 2")
				if c.gone { // the destination needs another probe then
					f.Ask(store.DeadLetter, "1")
				} else {
					f.line.fix("x/a")
				}
				f.pass(30 * time.Second)
				if log := f.line.said(); strings.Contains(log, "offer 2") {
					t.Errorf("log:\n%s", log)
				}
				f.store.set(func() { f.store.fault = nil })
				f.line.fix("x/a")
				f.pass(30 * time.Second)
				f.equal("table", f.table(), "")
				if n := strings.Count(f.line.said(), "sent 2"); n != 1 {
					t.Errorf("sent %d times", n)
				}
			})
		})
	}
}

// A refused row gets a number above acked at each try: one below would be read while it is not seen
// to be committed.
func TestRefusedRowGetsNewNumbers(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		var look atomic.Bool
		f.store.bad["1"] = true
		f.store.fault = func(call string) (error, bool) {
			if call == "defer 1" && !f.store.isBad("1") {
				return errLost, true // written, and not seen to be
			}
			return f.noSweepBefore(&look, call)
		}
		f.start()
		f.deferRow(nil, "1 k x/a", "2 j x/a")
		f.settle()
		f.store.set(func() { delete(f.store.bad, "1") })
		f.pass(3 * time.Second)
		f.equal("table", f.table(), "1")
		looks := f.store.count("runs")
		look.Store(true)
		f.deferRow(nil, "3 k x/a")
		f.pass(10 * time.Second)
		if f.store.count("runs") == looks {
			t.Error("the feeder has not looked")
		}
		f.equal("sent", f.line.sentIDs(), "2")
		f.store.set(func() { f.store.fault = nil })
		f.pass(10 * time.Second)
		f.equal("sent", f.line.sentIDs(), "2 1 3")
		f.equal("table", f.table(), "")
	})
}

// When the statement itself is refused, rows are not kept back one by one.
func TestRefusedStatementIsNotTheRows(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		var fixed atomic.Bool
		f.store.fault = func(call string) (error, bool) {
			if !fixed.Load() && strings.HasPrefix(call, "defer") {
				return &store.Refused{Err: errors.New("no such column")}, false
			}
			return nil, false
		}
		var specs []string
		for i := range 200 {
			specs = append(specs, fmt.Sprintf("%03d k%d x/a", i, i))
		}
		f.deferRow(nil, specs...)
		f.settle()
		if n := f.s.Snapshot().RefusedAll; n != refusalLimit {
			t.Errorf("%d rows are held back", n)
		}
		fixed.Store(true)
		f.pass(2 * time.Minute)
		if n := len(strings.Fields(f.table())); n != 200 {
			t.Errorf("%d rows", n)
		}
	})
}

// A round has at most so many rows and bytes, and at least one row. Numbers rise over rounds and
// blocks.
func TestRounds(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.sizes = map[string]int{"big": roundBytes + 1, "half1": roundBytes/2 + 1, "half2": roundBytes/2 + 1}
		f.start()
		specs := []string{"a k x/a", "big k x/a", "half1 k x/a", "half2 k x/a"}
		for i := range 2500 {
			specs = append(specs, fmt.Sprintf("%04d k%d x/a", i, i))
		}
		f.deferRow(nil, specs...)
		f.settle()
		var sizes []int
		last := int64(0)
		for _, numbers := range f.store.defers {
			sizes = append(sizes, len(numbers))
			for _, n := range numbers {
				if n <= last {
					t.Fatalf("number %d after %d", n, last)
				}
				last = n
			}
		}
		if want := []int{1, 1, 1, 500, 500, 500, 500, 500, 1}; !slices.Equal(sizes, want) {
			t.Errorf("rounds %v, want %v", sizes, want)
		}
		if n := int(f.deferred.Load()); n != len(specs) || f.s.Snapshot().Queued != 0 {
			t.Errorf("%d deferred of %d", n, len(specs))
		}
	})
}

// A row holds what is needed to publish it when its outbox row is gone, and why it is here.
func TestRowOfADeferredEvent(t *testing.T) {
	inBubble(t, Config{Backoff: 10 * time.Second}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		f.deferRow(transient, "1 k x/a", "2 k x/b")
		f.deferRow(itsRoute, "3 - x/c")
		f.settle()
		one, two, three := f.row("1"), f.row("2"), f.row("3")
		in := time.Until(one.NextAttempt).Round(time.Second)
		if one.Class != transient.Class || one.Reason != transient.Reason || one.Attempts != 1 || one.First.IsZero() || in != 10*time.Second {
			t.Errorf("refused: %+v, in %s", one, in)
		}
		if two.Reason != "" || two.Attempts != 0 || !two.First.IsZero() || !two.NextAttempt.IsZero() || !two.Ordered || two.Group != one.Group || two.Dest == one.Dest {
			t.Errorf("behind: %+v", two)
		}
		if r := two.Event.Route; string(r.Name) != "x" || string(r.RoutingKey) != "b" || string(two.Event.Payload) != "payload of 2" {
			t.Errorf("event: %+v to %+v", two.Event, r)
		}
		if three.Ordered || three.Group == 0 || three.Attempts != 0 || !three.NextAttempt.IsZero() || three.Reason != itsRoute.Reason || three.Destination != "there" {
			t.Errorf("unordered: %+v", three)
		}
	})
}

// An event with a permanent fault is dead-lettered; the line is notified when that is committed.
func TestFreshDeadLetter(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRow(permanent, "1 k x/a")
		f.settle()
		f.equal("log", f.line.said(), "settled 1")
		f.equal("dead_letters", f.deadLetters(), "1:open")
		if dead, deferred := f.dead.Load(), f.deferred.Load(); dead != 1 || deferred != 0 {
			t.Errorf("told of %d dead letters, %d rows", dead, deferred)
		}
	})
}

// A route that was decided is kept.
func TestRouteOfAnEventIsKept(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		p := f.deferredOf("1", "k", "x/a", nil)
		p.Event.Route = &event.Route{Name: []byte("y"), RoutingKey: []byte("z")}
		f.s.Defer([]*relay.Deferred{p})
		f.line.shut("y")
		f.settle()
		if r := f.row("1").Event.Route; string(r.Name) != "y" || string(r.RoutingKey) != "z" {
			t.Errorf("route %+v", r)
		}
	})
}

// A leader that is fenced ends, whichever of its goroutines finds out, and has settled nothing.
func TestFencedLeaderEnds(t *testing.T) {
	for _, do := range []struct {
		name string
		call string // the others have lost their connections
		what func(f *fixture)
	}{
		{"writer", "defer", func(f *fixture) { f.deferRow(nil, "9 j y/a") }},
		{"feeder", "requests", func(*fixture) {}}, // it is at most a second away
		{"reader", "positions", func(f *fixture) {
			go func() {
				if known, err := f.s.Known(f.t.Context(), &event.Event{}); err == nil {
					f.t.Errorf("Known says %t, nobody knows", known)
				}
			}()
		}},
	} {
		t.Run(do.name, func(t *testing.T) {
			inBubble(t, Config{}, func(f *fixture) {
				f.line.shut("x")
				f.start()
				f.deferRow(nil, "1 k x/a")
				f.settle()
				f.line.said()
				f.store.set(func() {
					f.store.fault = func(call string) (error, bool) {
						if strings.HasPrefix(call, do.call) {
							return nil, false
						}
						return errLost, false
					}
				})
				f.db.Lead(slot)
				do.what(f)
				f.pass(2 * time.Second)
				select {
				case err := <-f.ended:
					var stop *event.Stop
					if !errors.As(err, &stop) || stop.Code != event.ExitFailure || stop.Reason != "fenced" {
						t.Errorf("Run: %v", err)
					}
				default:
					t.Error("Run goes on")
				}
				f.ended <- nil
				f.equal("log", f.line.said(), "")
				f.equal("table", f.table(), "1")
			})
		})
	}
}
