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
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// I2: an event is settled when its row is committed, and not before.
func TestSettledOnceCommitted(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.store.fails("defer", errLost, false)
		f.deferRows(nil, "1 k x/a")
		f.settle()
		f.said("")
		f.store.accept()
		f.pass(time.Second)
		f.said("committed 1")
		if n := f.deferred.Load(); n != 1 {
			t.Errorf("%d rows told of", n)
		}
	})
}

// A statement of unknown outcome is made again as it was, before any other.
func TestUnknownDeferIsRepeatedFirst(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.store.fails("defer 1", errLost, true)
		f.deferRows(transient, "1 k x/a")
		f.settle()
		f.deferRows(nil, "2 k x/a", "3 j x/a")
		f.pass(600 * time.Millisecond)
		f.store.accept()
		f.pass(3 * time.Second)
		f.equal("statements", f.store.done("defer"), "defer 1, defer 1, defer 1, defer 1, defer 2 3")
		if n := len(f.store.defers); n < 4 || !slices.Equal(f.store.defers[0], f.store.defers[3]) {
			t.Errorf("repeated under other numbers: %v", f.store.defers)
		}
		f.said("committed 1", "committed 2", "committed 3")
	})
}

// Rows are not read, and no request about them is carried out, before the writer knows that they
// are committed, although they are there: they would be sent, deleted, and written once more.
func TestNothingIsReadThatIsNotAcknowledged(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRows(nil, "1 k x/a")
		f.settle()
		f.store.fails("defer 2", errLost, true)
		f.deferRows(nil, "2 k x/a", "3 j x/a")
		f.gets("k@x", "1 more")
		f.gets("j@x", "more")
		f.ask(store.DeadLetter, "3")
		f.line.said()
		f.walk("x")
		f.pass(900 * time.Millisecond)
		f.said("begins x", "walk k@x 1 more", "ends x") // the lane of 3 has it in memory
		f.store.accept()
		f.pass(10 * time.Second)
		f.line.finish("returned", "1")
		f.gets("k@x", "1 2")
		f.gets("j@x", "3")
	})
}

// A round has at most so many rows and bytes, and at least one row. Numbers rise over rounds and
// blocks.
func TestRounds(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.sizes = map[string]int{"big": roundBytes + 1, "half1": roundBytes/2 + 1, "half2": roundBytes/2 + 1}
		f.start()
		specs := []string{"a k x/a", "big k x/a", "half1 k x/a", "half2 k x/a"}
		for i := range 2500 {
			specs = append(specs, fmt.Sprintf("%04d k%d x/a", i, i))
		}
		f.deferRows(nil, specs...)
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
		if n := int(f.deferred.Load()); n != len(specs) || f.table.Snapshot().Queued != 0 {
			t.Errorf("%d deferred of %d", n, len(specs))
		}
	})
}

// A row holds what is needed to publish it when its outbox row is gone, and why it is here.
func TestRowOfADeferredEvent(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		late := f.eventOf("1 k x/a", transient)
		late.DueIn = 10 * time.Second
		f.table.Defer([]*inflight.Event{late})
		f.deferRows(nil, "2 k x/b")
		f.deferRows(itsRoute, "3 - x/c")
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

// A route that was decided is kept. An event with a permanent fault is dead-lettered.
func TestRouteAndDeadLetter(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		e := f.eventOf("1 k x/a", nil)
		e.Route = &event.Route{Name: []byte("y"), RoutingKey: []byte("z")}
		f.table.Defer([]*inflight.Event{e})
		f.deferRows(permanent, "2 k x/a")
		f.settle()
		if r := f.row("1").Event.Route; string(r.Name) != "y" || string(r.RoutingKey) != "z" {
			t.Errorf("route %+v", r)
		}
		f.said("committed 1", "committed 2")
		f.equal("dead letters", f.deadLetters(), "2:open")
		if dead, deferred := f.dead.Load(), f.deferred.Load(); dead != 1 || deferred != 1 {
			t.Errorf("told of %d dead letters, %d rows", dead, deferred)
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
		{"writer", "defer", func(f *fixture) { f.deferRows(nil, "9 j y/a") }},
		{"feeder", "requests", func(*fixture) {}}, // it is at most a second away
		{"lane", "read", func(f *fixture) { f.read("k@x") }},
		{"reader", "positions", func(f *fixture) {
			go func() {
				if known, err := f.table.Known(f.t.Context(), &event.Event{}); err == nil {
					f.t.Errorf("Known says %t, nobody knows", known)
				}
			}()
		}},
	} {
		t.Run(do.name, func(t *testing.T) {
			inBubble(t, Config{}, func(f *fixture) {
				f.start()
				f.deferRows(nil, "1 k x/a")
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
				f.db.RaiseEpoch(slot)
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
				f.said("")
				f.equal("rows", f.rows(), "1")
			})
		})
	}
}

// The writer writes what comes while nothing may be read (a stop), and WaitIdle waits for it.
func TestWaitIdle(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRows(nil, "1 k x/a", "2 j x/a")
		f.gets("k@x", "1")
		f.table.StopFeeding()
		f.read("j@x")
		f.deferRows(nil, "3 i x/a")
		f.store.fails("defer", errLost, false)
		var idle atomic.Bool
		go func() {
			if err := f.table.WaitIdle(f.t.Context()); err == nil {
				idle.Store(true)
			}
		}()
		wants := func(what string, want bool) {
			t.Helper()
			f.pass(time.Minute)
			if idle.Load() != want {
				t.Errorf("%s: idle is %t", what, !want)
			}
		}
		wants("nothing is written", false)
		f.store.fails("apply", errLost, false)
		wants("a row is with a lane", false)
		f.line.finish("delivered", "1")
		wants("its result is not committed", false)
		f.store.accept()
		wants("all is done", true)
		f.said("committed 3", "finished 1")
		f.equal("rows", f.rows(), "2 3")
	})
}

// A row that the database refuses keeps the later ones of its ordering group out of the table, and
// no others.
func TestRefusedRowIsIsolated(t *testing.T) {
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprint("named=", named), func(t *testing.T) {
			inBubble(t, Config{}, func(f *fixture) {
				f.store.bad["3"], f.store.named = true, named
				f.start()
				f.deferRows(nil, "1 k x/a", "2 j x/a", "3 k x/a", "4 j x/a", "5 k x/a", "6 i x/a")
				f.settle()
				f.equal("rows", f.rows(), "1 2 4 6")
				f.saidInAnyOrder("committed 1", "committed 2", "committed 4", "committed 6")
				f.deferRows(nil, "7 k x/a", "8 j x/a")
				f.settle()
				f.equal("rows", f.rows(), "1 2 4 6 8")
				shot := f.table.Snapshot()
				if shot.RefusedAll != 1 || shot.Queued != 3 || shot.Refused[0].ID != "3" || shot.Refused[0].Behind != 2 || shot.Refused[0].Err != "invalid byte" {
					t.Errorf("snapshot %+v", shot)
				}
				f.pass(time.Minute) // tried again and again, and not for ever longer
				tried := f.store.count("defer 3")
				f.store.set(func() { delete(f.store.bad, "3") })
				f.store.done("")
				f.pass(time.Minute)
				f.equal("rows", f.rows(), "1 2 3 4 5 6 7 8")
				f.equal("statements", f.store.done("defer"), "defer 3, defer 5 7")
				if tried < 5 || tried > 20 {
					t.Errorf("tried %d times in a minute", tried)
				}
				if shot := f.table.Snapshot(); shot.Queued != 0 || shot.RefusedAll != 0 {
					t.Errorf("snapshot %+v", shot)
				}
			})
		})
	}
}

// What was behind a refused row comes before all that came later.
func TestFreedRowsComeBeforeLaterOnes(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.store.bad["1"] = true
		f.start()
		f.deferRows(nil, "1 k x/a", "2 k x/a")
		f.settle()
		// Two rounds are waiting, with a later row in the second, when the first one is written.
		f.store.set(func() { delete(f.store.bad, "1") })
		f.store.fails("defer one", errLost, false)
		f.deferRows(nil, "one j x/a")
		var specs []string
		for i := range roundRows + 100 {
			specs = append(specs, fmt.Sprintf("%04d k%d x/a", i, i))
		}
		f.deferRows(nil, append(specs, "3 k x/a")...)
		f.pass(time.Second) // 1 is due
		f.store.accept()
		f.pass(10 * time.Second)
		all := " " + strings.ReplaceAll(f.store.done("defer"), ",", "") + " "
		if i, j := strings.LastIndex(all, " 2 "), strings.Index(all, " 3 "); i < 0 || i > j {
			t.Errorf("2 was written at %d, 3 at %d", i, j)
		}
	})
}

// A refused row gets a number above acked at each try: one below would be read while it is not seen
// to be committed.
func TestRefusedRowGetsNewNumbers(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.store.bad["1"] = true
		f.start()
		f.deferRows(nil, "1 k x/a", "2 j x/a")
		f.settle()
		f.store.set(func() { delete(f.store.bad, "1") })
		f.store.fails("defer 1", errLost, true) // written, and not seen to be
		f.pass(3 * time.Second)
		f.equal("rows", f.rows(), "1 2")
		f.gets("k@x", "more")
		f.store.accept()
		f.pass(10 * time.Second)
		f.gets("k@x", "1")
	})
}

// When the statement itself is refused, rows are not kept back one by one.
func TestRefusedStatementIsNotTheRows(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.store.fails("defer", &store.Refused{Err: errors.New("no such column")}, false)
		var specs []string
		for i := range 200 {
			specs = append(specs, fmt.Sprintf("%03d k%d x/a", i, i))
		}
		f.deferRows(nil, specs...)
		f.settle()
		if n := f.table.Snapshot().RefusedAll; n != refusalLimit {
			t.Errorf("%d rows are held back", n)
		}
		f.store.accept()
		f.pass(2 * time.Minute)
		if n := len(strings.Fields(f.rows())); n != 200 {
			t.Errorf("%d rows", n)
		}
	})
}
