package retry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/memorytest"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A replayed dead letter goes where the request says. Once its result is committed, and with
// on_dead_letter: block, the lane looks at its ordering group again.
func TestReplay(t *testing.T) {
	for _, block := range []bool{false, true} {
		t.Run(fmt.Sprint("block=", block), func(t *testing.T) {
			inBubble(t, Config{Block: block}, func(f *fixture) {
				f.start()
				f.deferRows(permanent, "1 k1 x/a")
				f.deferRows(permanent, "2 j x/a")
				f.deferRows(permanent, "3 i x/a")
				f.settle()
				f.line.said()
				one, two, three := f.ask(store.Replay, "1"), f.ask(store.Replay, "2", "y/c"), f.ask(store.Replay, "3")
				f.pass(2 * time.Second)
				f.said("replay 1 to x/a", "replay 2 to y/c", "replay 3 to x/a")
				for id, to := range map[string]string{"1": "x/a", "2": "y/c"} {
					e := f.line.rows[id]
					if !e.Event.Replay || !e.IsRow() || e.Request == nil || e.Place.Dest != placeOf(to).Dest || e.Place.ExchangeOrTopic != placeOf(to).ExchangeOrTopic || e.Group == 0 {
						t.Errorf("%s: %+v", id, e)
					}
				}
				f.line.outcome("1", sink.Outcome{State: sink.Confirmed})
				f.line.outcome("2", sink.Outcome{State: sink.Confirmed})
				f.line.outcome("3", rejected(permanent))
				f.settle()
				f.equal("dead letters", f.deadLetters(), "1:replayed 2:replayed 3:open")
				f.equal("asked", f.asked(one, two, three), "done+done+failed")
				if block {
					f.said("changed k1@x", "changed j@x", "changed i@x")
				} else {
					f.said("")
				}
				if n := f.table.Snapshot().InFlight; n != 0 || f.table.feeder.requests.Load() != 0 || f.table.feeder.budget.total.rows != 0 {
					t.Errorf("%d rows in flight, %d requests", n, f.table.feeder.requests.Load())
				}
			})
		})
	}
}

// A replay whose answer is not known to be written is not sent again. One that the lane gave back
// is.
func TestReplayIsSentOnce(t *testing.T) {
	for _, err := range []error{errLost, &store.Refused{Err: errLost}} {
		inBubble(t, Config{}, func(f *fixture) {
			f.start()
			f.deferRows(permanent, "1 k x/a")
			f.settle()
			f.line.said()
			id := f.ask(store.Replay, "1")
			f.pass(2 * time.Second)
			f.line.finish("returned", "1")
			f.pass(2 * time.Second)
			f.said("replay 1 to x/a", "replay 1 to x/a")
			n := 0
			f.store.set(func() {
				f.store.fault = func(call string) (error, bool) {
					if n++; strings.HasPrefix(call, "answer") && n < 5 {
						return err, n == 3 && errors.Is(err, errLost)
					}
					return nil, false
				}
			})
			f.line.outcome("1", sink.Outcome{State: sink.Confirmed})
			f.pass(time.Minute)
			f.said("")
			f.equal("asked", f.asked(id), "done")
			f.equal("dead letters", f.deadLetters(), "1:replayed")
		})
	}
}

// A replay that is cancelled on its way is a replay when it is confirmed: what is asked for about
// its dead letter meanwhile waits.
func TestRequestWaitsForACancelledReplay(t *testing.T) {
	for kind, want := range map[store.RequestKind]string{store.Discard: "failed", store.Replay: "failed", store.Redact: "done", store.Purge: "done"} {
		t.Run(string(kind), func(t *testing.T) {
			erased := 0
			inBubble(t, Config{Hooks: Hooks{Erased: func() { erased++ }}}, func(f *fixture) {
				f.start()
				f.deferRows(permanent, "1 k x/a")
				f.settle()
				replay := f.ask(store.Replay, "1")
				f.pass(2 * time.Second)
				f.db.Cancel(replay)
				second := f.ask(kind, "1")
				f.pass(5 * time.Second)
				f.equal("meanwhile", f.asked(replay, second), "cancelled+waiting")
				f.line.outcome("1", sink.Outcome{State: sink.Confirmed})
				f.pass(5 * time.Second)
				f.equal("asked", f.asked(replay, second), "done+"+want)
				if log := f.line.said(); strings.Count(log, "replay 1") != 1 {
					t.Errorf("log:\n%s", log)
				}
			})
			if removes := kind == store.Redact || kind == store.Purge; removes != (erased == 1) {
				t.Errorf("contents were removed %d times", erased)
			}
		})
	}
}

// An event that lacks values is replayed whole, as its row is in the table. Where there is no such
// row the request fails; where the table cannot be asked, it is asked again.
func TestReplayOfALargeRow(t *testing.T) {
	var mu sync.Mutex
	why, fails := "", errLost
	now := func(newWhy string, newFails error) {
		mu.Lock()
		defer mu.Unlock()
		why, fails = newWhy, newFails
	}
	cfg := Config{ReadRow: func(_ context.Context, of *event.Event) (*event.Event, string, error) {
		mu.Lock()
		defer mu.Unlock()
		if fails != nil || why != "" {
			return nil, why, fails
		}
		whole := *of
		whole.LeftOut, whole.Payload = nil, []byte("all of it")
		return &whole, "", nil
	}}
	inBubble(t, cfg, func(f *fixture) {
		f.start()
		f.deferLarge("1 k x/a")
		f.settle()
		f.line.said()
		first := f.ask(store.Replay, "1")
		f.pass(time.Minute)
		f.equal("while it cannot be read", f.asked(first)+f.line.said(), "waiting")
		now("no longer there", nil)
		f.pass(time.Minute)
		f.equal("without a row", f.asked(first)+f.line.said(), "failed")
		now("", nil)
		second := f.ask(store.Replay, "1", "y/c")
		f.pass(2 * time.Second)
		f.said("replay 1 to y/c")
		if e := f.line.rows["1"]; string(e.Payload) != "all of it" || e.LeftOut != nil || !e.Event.Replay || e.Size != e.Event.Size() || e.Group == 0 {
			t.Errorf("replayed is %+v", e)
		}
		f.line.outcome("1", sink.Outcome{State: sink.Confirmed})
		f.settle()
		f.equal("dead letters", f.asked(second)+" "+f.deadLetters(), "done 1:replayed")
	})
}

// deferLarge defers an event of which values are left out.
func (f *fixture) deferLarge(spec string) {
	large := f.eventOf(spec, sink.RowFault(&event.Event{LeftOut: &event.LeftOut{}}))
	large.LeftOut, large.Payload = &event.LeftOut{Table: "public.outbox", Bytes: 1 << 30}, nil
	f.table.Defer([]*inflight.Event{large})
}

// While the row of a replay is read, all else goes on, except that a second one is not read. A
// leader that ended meanwhile may have been killed by it: the next one answers the request, and
// reads the row when it is asked again.
func TestReplayThatEndsTheRelay(t *testing.T) {
	var begun []string
	suffices := false
	cfg := Config{ReadRow: func(ctx context.Context, of *event.Event) (*event.Event, string, error) {
		if begun = append(begun, string(of.ID)); !suffices {
			<-ctx.Done()
			return nil, "", ctx.Err()
		}
		whole := *of
		whole.LeftOut = nil
		return &whole, "", nil
	}}
	inBubble(t, cfg, func(f *fixture) {
		f.start()
		f.deferLarge("1 k x/a")
		f.deferLarge("2 j x/a")
		f.deferRows(permanent, "3 i x/a")
		f.deferRows(nil, "4 h x/a")
		f.settle()
		first, second := f.ask(store.Replay, "1"), f.ask(store.Replay, "2")
		f.pass(2 * time.Second)
		f.line.said()
		third := f.ask(store.Replay, "3")
		f.pass(2 * time.Second)
		f.said("replay 3 to x/a")
		f.line.outcome("3", sink.Outcome{State: sink.Confirmed})
		f.gets("h@x", "4")
		f.line.finish("delivered", "4")
		f.settle()
		f.equal("meanwhile", f.asked(first, second, third)+" "+f.rows(), "waiting+waiting+done ")
		f.equal("begun", strings.Join(begun, " "), "1")
		f.table.StopFeeding()
		if err := f.table.WaitIdle(t.Context()); err != nil {
			t.Error(err)
		}

		suffices = true
		f.restart(cfg)
		f.pass(2 * time.Second)
		f.equal("begun", strings.Join(begun, " "), "1 2")
		f.equal("asked", f.asked(first, second), "failed+waiting")
		if q, _ := f.db.RequestByID(first); !strings.Contains(q.Result, "1073741824 bytes: give it about 3 times that in memory") {
			t.Errorf("the operator reads %q", q.Result)
		}
		again := f.ask(store.Replay, "1")
		f.pass(2 * time.Second)
		f.line.outcome("1", sink.Outcome{State: sink.Confirmed})
		f.line.outcome("2", sink.Outcome{State: sink.Confirmed})
		f.settle()
		f.equal("asked", f.asked(second, again)+" "+f.deadLetters(), "done+done 1:replayed 2:replayed 3:replayed")
	})
}

// Requests about dead letters that need no broker are carried out at once, and the lane looks
// again at what was blocked. What has no row, or cannot be sent, is answered.
func TestRequestsWithoutALane(t *testing.T) {
	inBubble(t, Config{Block: true}, func(f *fixture) {
		f.start()
		raw := f.eventOf("0 - x/a", permanent)
		raw.Raw = []byte(`{"id":null}`)
		f.table.Defer([]*inflight.Event{raw})
		for _, spec := range []string{"1 k x/a", "2 j x/a", "3 i x/a"} {
			f.deferRows(permanent, spec)
		}
		f.settle()
		f.line.said()
		ids := []int64{f.ask(store.Discard, "1"), f.ask(store.Purge, "2"), f.ask(store.Replay, "0")}
		f.pass(2 * time.Second)
		f.equal("asked", f.asked(ids...), "done+done+failed")
		f.equal("dead letters", f.deadLetters(), "0:open 1:discarded :purged 3:open")
		f.saidInAnyOrder("changed k@x", "changed j@x")
		again := f.ask(store.Discard, "1")
		f.pass(2 * time.Second)
		f.equal("asked", f.asked(again), "failed")
		f.line.said()
	})
}

// A request about a deferred row is carried out when its lane has the ordering group at rest,
// which is told the end.
func TestRequestsAboutRows(t *testing.T) {
	for _, kind := range []store.RequestKind{store.Retry, store.DeadLetter, store.Purge} {
		t.Run(string(kind), func(t *testing.T) {
			inBubble(t, Config{}, func(f *fixture) {
				f.start()
				f.deferRows(transient, "1 k x/a")
				f.settle()
				f.line.said()
				id := f.ask(kind, "1")
				f.pass(5 * time.Second)
				f.said("asked to " + string(kind) + " k@x")
				f.line.rest(true) // not now
				f.pass(2 * time.Second)
				f.said("asked to " + string(kind) + " k@x")
				f.equal("asked", f.asked(id), "waiting")
				f.sink.forget("x") // the lane is known all the same
				f.line.rest(false)
				f.settle()
				f.equal("asked", f.asked(id), "done")
				f.said("answered " + string(kind))
			})
		})
	}
}

// A lane that holds an ordering group is told the end in any case: of a request that was
// cancelled, and after its statement was refused.
func TestHeldGroupIsReleased(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRows(nil, "1 k x/a")
		f.settle()
		f.line.said()
		id := f.ask(store.DeadLetter, "1")
		f.pass(2 * time.Second)
		f.db.Cancel(id)
		f.store.fails("answer", &store.Refused{Err: errLost}, false)
		f.line.rest(false)
		f.pass(time.Minute)
		f.said("asked to dead_letter k@x")
		f.store.accept()
		f.pass(maxPause)
		f.said("answered dead_letter")
		f.equal("asked", f.asked(id), "cancelled")
		f.equal("rows", f.rows(), "1")
	})
}

// A request is answered once, also while another one is refused again and again.
func TestRequestIsAnsweredOnce(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRows(permanent, "1 k x/a")
		f.deferRows(permanent, "2 j x/a")
		f.settle()
		f.ask(store.Replay, "1")
		f.pass(2 * time.Second)
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				if strings.HasPrefix(call, "answer") && strings.Contains(call, "replay") {
					return &store.Refused{Err: errLost}, false
				}
				return nil, false
			}
		})
		f.line.outcome("1", sink.Outcome{State: sink.Confirmed})
		f.settle()
		f.store.done("")
		id := f.ask(store.Discard, "2")
		f.pass(30 * time.Second)
		f.equal("asked", f.asked(id), "done")
		if log := f.store.done("answer"); strings.Contains(log, strings.Repeat(" discard", 2)) || strings.Count(log, "answer discard") > 1 {
			t.Errorf("statements: %s", log)
		}
		f.store.accept()
		f.pass(10 * time.Second)
		f.equal("dead letters", f.deadLetters(), "1:replayed 2:discarded")
	})
}

// However many requests wait, rows are read too.
func TestRequestsDoNotStarveFeeding(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		for i := range 1000 {
			f.deferRows(permanent, fmt.Sprintf("%04d k%d x/a", i, i))
		}
		f.deferRows(nil, "new k x/b")
		f.pass(time.Second)
		var last int64
		for _, l := range f.db.DeadLetters(slot) {
			last = f.db.AddRequest(memorytest.Request{Slot: slot, System: "1", Kind: store.Discard, N: l.Row.N})
		}
		for f.store.count("answer") == 0 {
			f.pass(time.Millisecond)
		}
		f.read("k@x")
		f.pass(10 * time.Millisecond)
		if f.asked(last) != "waiting" || f.line.has() != 1 {
			t.Errorf("the last request is %s, the lane has %d rows", f.asked(last), f.line.has())
		}
		f.pass(2 * time.Second)
		f.equal("asked", f.asked(last), "done")
	})
}

// Replays that wait for the broker delay nothing that needs no broker.
func TestRequestsBehindManyReplays(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		for i := range requestRows + 1 {
			f.deferRows(permanent, fmt.Sprintf("%03d k%d x/a", i, i))
		}
		f.settle()
		for i := range requestRows {
			f.ask(store.Replay, fmt.Sprintf("%03d", i))
		}
		discard := f.ask(store.Discard, fmt.Sprint(requestRows))
		f.pass(10 * time.Second)
		f.equal("asked", f.asked(discard), "done")
	})
}

// A dead letter that cannot be read is not replayed, and keeps no request waiting.
func TestReplayOfADeadLetterThatCannotBeRead(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		for _, spec := range []string{"1 k x/a", "2 j x/a", "3 i x/a"} {
			f.deferRows(permanent, spec)
		}
		f.settle()
		f.line.said()
		f.store.torn = map[string]bool{"2": true}
		one, two, three := f.ask(store.Replay, "1"), f.ask(store.Replay, "2"), f.ask(store.Discard, "3")
		f.pass(2 * time.Second)
		f.line.outcome("1", sink.Outcome{State: sink.Confirmed})
		f.pass(5 * time.Second)
		f.equal("asked", f.asked(one, two, three), "done+failed+done")
		f.equal("dead letters", f.deadLetters(), "1:replayed 2:open 3:discarded")
		if q, _ := f.db.RequestByID(two); !strings.Contains(q.Result, "cannot be read") {
			t.Errorf("the operator reads %q", q.Result)
		}
	})
}

// A replay that is on its way is answered by the broker, also when its dead letter cannot be read
// any more.
func TestReplayOnItsWayIsNotReadAgain(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRows(permanent, "1 k x/a")
		f.settle()
		f.line.said()
		id := f.ask(store.Replay, "1")
		f.pass(2 * time.Second)
		f.store.set(func() { f.store.torn = map[string]bool{"1": true} })
		f.pass(5 * time.Second)
		f.equal("asked", f.asked(id), "waiting")
		f.line.outcome("1", sink.Outcome{State: sink.Confirmed})
		f.pass(5 * time.Second)
		f.equal("asked", f.asked(id), "done")
		f.equal("dead letters", f.deadLetters(), "1:replayed")
		f.said("replay 1 to x/a")
	})
}
