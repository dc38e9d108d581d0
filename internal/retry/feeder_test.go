package retry

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Each want is answered: with the rows behind the one it names, in order, or with the news that
// there are none.
func TestEachWantIsAnswered(t *testing.T) {
	for _, block := range []bool{false, true} {
		t.Run(fmt.Sprint("block=", block), func(t *testing.T) {
			inBubble(t, Config{Block: block}, func(f *fixture) {
				f.start()
				f.deferRows(nil, "1 k1 x/a", "2 k1 x/b", "3 k1 x/a", "4 j2 x/a", "5 - y/a")
				f.deferRows(permanent, "6 i x/a")
				f.settle()
				f.line.said()
				f.read("k1@x", "1")
				f.read("j2@x")
				f.read("none@x")
				f.read("i@x")
				f.settle()
				none := map[bool]string{false: "found i@x", true: "found i@x blocked"}[block]
				f.saidInAnyOrder("found k1@x 2 3", "found j2@x 4", "found none@x", none)
				e := f.line.rows["2"]
				if lane := f.line.lanes["2"]; lane != 1 || e.Place.Lane != 1 || e.Group == 0 || e.Row.N == 0 || !e.IsRow() || e.Place.Dest != placeOf("x/b").Dest {
					t.Errorf("lane %d got %+v", lane, e)
				}
				if n := f.table.Snapshot().InFlight; n != 3 {
					t.Errorf("%d rows in flight", n)
				}
			})
		})
	}
}

// Rows whose place is not known now are left out, with those behind them.
func TestRowWithoutAPlace(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.sink.forget("y")
		f.deferRows(nil, "1 k x/a")
		moved := f.eventOf("2 k x/a", nil)
		moved.Route = &event.Route{Name: []byte("y")}
		f.table.Defer([]*inflight.Event{moved})
		f.deferRows(nil, "3 k x/a")
		f.gets("k@x", "1 more")
		f.line.finish("delivered", "1")
		f.gets("k@x", "failed")
		f.sink.forget("")
		f.gets("k@x", "2 3")
	})
}

// A row that cannot be read blocks what is behind it in its ordering group, and nothing else.
func TestRowThatCannotBeRead(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.store.torn = map[string]bool{"000": true, "333": true}
		var specs []string
		for i := range 400 {
			specs = append(specs, fmt.Sprintf("%03d k%d x/a", i, i))
		}
		f.deferRows(nil, "before k333 x/a")
		f.deferRows(nil, append(specs, "behind k333 x/a")...)
		f.settle()
		f.store.done("")
		for i := range 400 {
			f.read(fmt.Sprintf("k%d@x", i))
		}
		f.pass(time.Second)
		log := f.line.said()
		if !strings.Contains(log, "found k0@x failed\n") || !strings.Contains(log, "found k333@x before more\n") || strings.Count(log, "\nfound") < 399 || f.line.has() != 399 {
			t.Errorf("log:\n%s", log)
		}
		if n := f.store.count("read"); n > 60 {
			t.Errorf("%d reads", n)
		}
	})
}

// While statements that read fail, results are committed all the same, and in the end the want is
// answered.
func TestReadThatFailsIsMadeAgain(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRows(nil, "1 k x/a", "2 j x/a")
		f.gets("k@x", "1")
		f.store.fails("read", errLost, false)
		f.read("j@x")
		f.settle()
		f.line.finish("delivered", "1")
		f.pass(time.Minute)
		f.said("finished 1")
		if n := f.store.count("read"); n > 30 {
			t.Errorf("%d reads in a minute", n)
		}
		f.store.accept()
		f.pass(maxPause)
		f.said("found j@x 2")
	})
}

// A probe is one row.
func TestProbeIsOneRow(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRows(nil, "1 k x/a", "2 k x/a")
		f.settle()
		f.line.said()
		_, w := f.wantOf("k@x")
		w.Probe = true
		f.table.Read(0, []order.Want{w}, nil)
		f.settle()
		f.said("found k@x 1 more")
	})
}

// At a stop nothing is read any more, and requests wait for the next leader.
func TestStopFeeding(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRows(nil, "1 k x/a", "2 j x/a")
		f.settle()
		f.line.said()
		f.table.StopFeeding()
		f.read("k@x")
		f.walk("x")
		id := f.ask(store.DeadLetter, "2")
		f.pass(time.Minute)
		f.said("")
		f.equal("asked", f.asked(id), "waiting")
	})
}

// lanesWant defers so many rows of each lane, each of its own key, and has the lanes want them.
func (f *fixture) lanesWant(rows int, lanes ...int) {
	var specs []string
	for i := range rows {
		for _, lane := range lanes {
			id := fmt.Sprintf("%d-%05d", lane, i)
			specs = append(specs, fmt.Sprintf("%s %s-%d x/a", id, id, lane))
		}
	}
	f.deferRows(nil, specs...)
	f.pass(10 * time.Second)
	wants := map[int][]order.Want{}
	for _, spec := range specs {
		lane, w := f.wantOf(strings.Fields(spec)[1] + "@x")
		wants[lane] = append(wants[lane], w)
	}
	for _, lane := range lanes {
		f.table.Read(lane, wants[lane], nil)
	}
}

// inLane is how many rows a lane has.
func (f *fixture) inLane(lane int) (n int) {
	for _, id := range f.line.ids() {
		if strings.HasPrefix(id, fmt.Sprint(lane, "-")) {
			n++
		}
	}
	return n
}

// deliver has the lanes deliver all they have, except those that stand still.
func (f *fixture) deliver(still ...int) {
	for _, id := range f.line.ids() {
		keeps := false
		for _, lane := range still {
			keeps = keeps || strings.HasPrefix(id, fmt.Sprint(lane, "-"))
		}
		if !keeps {
			f.line.finish("delivered", id)
		}
	}
}

// The rows that are with the lanes have a budget; what has no room is read when there is some.
func TestBudget(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.lanesWant(6000, 1, 2)
		f.pass(10 * time.Second)
		if n := f.line.has(); n > budgetRows || n < budgetRows/2 || f.table.Snapshot().InFlight != n {
			t.Errorf("%d rows with the lanes, %d in flight", n, f.table.Snapshot().InFlight)
		}
		for range 20 {
			f.deliver()
			f.pass(time.Second)
		}
		f.equal("rows", f.rows(), "")
		if n := f.table.Snapshot().InFlight; n != 0 || f.line.most > budgetRows {
			t.Errorf("%d in flight, %d at the most", n, f.line.most)
		}
	})
}

// Lanes that stand still leave room for the others, whether they have many rows or large ones, and
// for probes.
func TestLaneThatStandsStill(t *testing.T) {
	for _, size := range []int{0, 1 << 20} {
		t.Run(fmt.Sprint("size=", size), func(t *testing.T) {
			inBubble(t, Config{}, func(f *fixture) {
				f.start()
				rows := 4000
				if size > 0 {
					rows = 20
					f.sizes = map[string]int{}
					for i := range rows {
						f.sizes[fmt.Sprintf("1-%05d", i)], f.sizes[fmt.Sprintf("2-%05d", i)] = size, size
					}
				}
				f.lanesWant(rows, 1, 2)
				f.pass(time.Second)
				f.lanesWant(50, 3)
				for range 20 {
					f.pass(time.Second)
					f.deliver(1, 2)
				}
				if n := strings.Count(" "+f.rows(), " 3-"); n > 0 {
					t.Errorf("%d rows of the other lane are left; lane 1 has %d, lane 2 has %d", n, f.inLane(1), f.inLane(2))
				}
				f.deferRows(nil, "probe k1 x/a")
				f.settle()
				lane, w := f.wantOf("k1@x")
				w.Probe = true
				f.line.said()
				f.table.Read(lane, []order.Want{w}, nil)
				f.settle()
				f.said("found k1@x probe")
			})
		})
	}
}

// A lane may keep a row that it gave back for as long as a call takes: its bytes are freed.
func TestRowThatWasGivenBackHasNoBytes(t *testing.T) {
	row := &store.Row{Event: event.Event{Payload: []byte("{}")}}
	e := &inflight.Event{Event: row.Event, Row: row}
	table := New(Config{Log: zap.NewNop()})
	table.feeder.takeResult(order.Result{Event: e, Returned: true})
	if kept := e.Event.Size() + row.Event.Size(); kept > 0 {
		t.Errorf("%d bytes are kept", kept)
	}
}

// A long group comes in few large reads, each behind the last.
func TestReadsAreLarge(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		var specs []string
		for i := range 5000 {
			specs = append(specs, fmt.Sprintf("%04d k x/a", i))
		}
		f.deferRows(nil, specs...)
		f.pass(time.Second)
		f.store.done("")
		f.read("k@x")
		f.settle()
		if n := f.line.has(); n < 2000 {
			t.Errorf("%d rows in one read", n)
		}
		if n := f.store.count("read"); n != 1 {
			t.Errorf("%d reads", n)
		}
	})
}

// handed is a fixture whose lanes have these rows.
func (f *fixture) handed(specs ...string) {
	f.start()
	f.deferRows(nil, specs...)
	f.settle()
	asked := map[string]bool{}
	for _, spec := range specs {
		part := strings.Fields(spec)
		exchange, _, _ := strings.Cut(part[2], "/")
		if group := part[1] + "@" + exchange; !asked[group] {
			asked[group] = true
			f.read(group)
		}
	}
	f.settle()
	f.line.said()
	f.store.done("")
}

// Results are committed together, and their lanes are told afterwards. What is returned is not
// written.
func TestResultsAreCommitted(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.handed("1 k x/a", "2 j x/a", "3 i x/a", "4 h x/a")
		f.store.fails("apply", errLost, false)
		f.line.finish("delivered", "1")
		f.line.finish("dead", "2")
		f.line.finish("returned", "4")
		f.settle()
		f.said("")
		f.line.finish("backoff", "3")
		f.store.accept()
		f.pass(time.Second)
		f.equal("rows", f.rows(), "3 4")
		f.equal("dead letters", f.deadLetters(), "2:open")
		f.saidInAnyOrder("finished 1", "finished 2", "finished 3")
		if shot := f.table.Snapshot(); shot.InFlight != 0 {
			t.Errorf("%d rows in flight", shot.InFlight)
		}
	})
}

// Results of unknown outcome come before any other statement of the feeder: rows that were deleted
// would be read once more.
func TestUnknownResultsAreRepeatedFirst(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.handed("1 k x/a", "2 k x/a", "3 j x/a")
		lost := 0
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				if !strings.HasPrefix(call, "apply delivered 1") || lost == 3 {
					return nil, false
				}
				lost++
				return errLost, lost == 1
			}
		})
		f.line.finish("delivered", "1")
		f.settle()
		f.line.finish("delivered", "3")
		f.ask(store.Retry, "2")
		f.read("k@x")
		f.walk("x")
		f.pass(10 * time.Second)
		var first []string
		for _, call := range strings.Split(f.store.done(""), ", ") {
			if !strings.HasPrefix(call, "defer") && len(first) < 4 {
				first = append(first, strings.Fields(call)[0])
			}
		}
		f.equal("statements", strings.Join(first, "+"), "apply+apply+apply+apply")
		f.equal("rows", f.rows(), "2")
	})
}

// A result that the database refuses stands alone in the end, and is tried for ever; the others are
// committed.
func TestRefusedResult(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.handed("1 k x/a", "2 j x/a", "3 i x/a", "4 h x/a", "5 g x/a")
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				if strings.HasPrefix(call, "apply") && strings.Contains(call, " 2") {
					return &store.Refused{Err: errLost}, false
				}
				return nil, false
			}
		})
		f.line.finish("delivered", "1", "2", "3", "4", "5")
		f.pass(15 * time.Second)
		f.equal("rows", f.rows(), "2")
		f.saidInAnyOrder("finished 1", "finished 3", "finished 4", "finished 5")
		f.store.accept()
		f.pass(10 * time.Second)
		f.equal("rows", f.rows(), "")
		f.said("finished 2")
	})
}

// Each attempt is reported once, by its result.
func TestAttemptsAreTold(t *testing.T) {
	refused := func(kind store.ResultKind, class sink.Class) order.Result {
		return order.Result{
			Event:  &inflight.Event{Refusal: transient},
			Result: store.Result{Row: &store.Row{}, Kind: kind, Class: class, Reason: sink.Invalid},
		}
	}
	silent := func(kind store.ResultKind, reason sink.Reason) order.Result {
		return order.Result{Event: &inflight.Event{}, Result: store.Result{Row: &store.Row{}, Kind: kind, Reason: reason}}
	}
	for name, c := range map[string]struct {
		result order.Result
		want   map[string]int
	}{
		"confirmed":                      {silent(store.Delivered, ""), map[string]int{"retried": 1}},
		"refused for a while":            {refused(store.Backoff, sink.Transient), map[string]int{"retried": 1, "deferred": 1}},
		"attempts spent":                 {refused(store.Dead, sink.Transient), map[string]int{"retried": 1, "dead": 1, "exhausted": 1}},
		"too large now":                  {refused(store.Dead, sink.Permanent), map[string]int{"retried": 1, "dead": 1}},
		"too old, and not sent":          {silent(store.Dead, sink.Nacked), map[string]int{"dead": 1}},
		"returned, and not sent":         {order.Result{Event: &inflight.Event{Row: &store.Row{}}, Returned: true}, map[string]int{}},
		"returned, refused by its pause": {order.Result{Event: &inflight.Event{Refusal: itsRoute, Row: &store.Row{}}, Returned: true}, map[string]int{"retried": 1}},
	} {
		got := map[string]int{}
		hook := func(name string) func(int) { return func(n int) { got[name] += n } }
		table := New(Config{Log: zap.NewNop(), Hooks: Hooks{
			Deferred: hook("deferred"), Dead: hook("dead"), Exhausted: hook("exhausted"), Retried: hook("retried"), Failed: hook("failed"),
		}})
		if c.result.Returned {
			table.feeder.takeResult(c.result)
		} else {
			table.feeder.countResults([]order.Result{c.result})
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: told %v, want %v", name, got, c.want)
		}
	}
}
