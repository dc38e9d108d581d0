package retry

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/retry/memorytest"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Ask stores a request about the row or dead letter of an event.
func (f *fixture) Ask(kind store.RequestKind, id string, to ...string) int64 {
	f.t.Helper()
	q := memorytest.Request{Slot: slot, System: "1", Kind: kind}
	for _, l := range f.db.DeadLetters(slot) {
		if string(l.Row.Event.ID) == id {
			q.N = l.Row.N
		}
	}
	if q.N == 0 {
		q.N = f.row(id).N
	}
	if len(to) > 0 {
		name, key, _ := strings.Cut(to[0], "/")
		q.Route = event.Route{Name: []byte(name), RoutingKey: []byte(key)}
	}
	return f.db.AddRequest(q)
}

func (f *fixture) Asked(id int64) string {
	q, _ := f.db.RequestByID(id)
	return q.State
}

// A replayed dead letter says so, goes where the request says, and with on_dead_letter: block
// releases its ordering group, once that is committed.
func TestReplay(t *testing.T) {
	for _, hold := range []bool{false, true} {
		t.Run(fmt.Sprint("hold=", hold), func(t *testing.T) {
			inBubble(t, Config{Block: hold}, func(f *fixture) {
				f.start()
				f.deferRow(permanent, "1 k x/a")
				f.deferRow(permanent, "2 j x/a")
				f.settle()
				f.line.shut("x/b")
				f.deferRow(nil, "3 k x/b", "4 k x/a")
				f.settle()
				f.line.said()
				var fed []relay.Fed
				f.line.set(func() {
					f.line.answer = func(r *relay.Fed) sink.Outcome {
						fed = append(fed, *r)
						return sink.Outcome{State: sink.Confirmed}
					}
				})
				one, two := f.Ask(store.Replay, "1"), f.Ask(store.Replay, "2", "y/c")
				f.line.fix("x/b")
				f.pass(20 * time.Second)
				f.equal("dead_letters", f.deadLetters(), "1:replayed 2:replayed")
				f.equal("asked", f.Asked(one)+", "+f.Asked(two), "done, done")
				inOrder(t, f.line.sentIDs(), "1 3 4")
				f.equal("table", f.table(), "")
				if strings.Contains(f.line.said(), "uncount k@x") != hold {
					t.Errorf("wrong count")
				}
				for _, r := range fed {
					to := string(r.Event.Route.Name) + "/" + string(r.Event.Route.RoutingKey)
					switch string(r.Event.ID) {
					case "1":
						if !r.Replay || !r.Event.Replay || to != "x/a" || r.Group == 0 {
							t.Errorf("%+v", r)
						}
					case "2":
						if !r.Replay || to != "y/c" || r.Place.ExchangeOrTopic != digest("y") {
							t.Errorf("%+v", r)
						}
					default:
						if r.Replay || r.Event.Replay {
							t.Errorf("%+v", r)
						}
					}
				}
			})
		})
	}
}

// A replay that is refused stays a dead letter, and blocks as before.
func TestReplayRefused(t *testing.T) {
	inBubble(t, Config{Block: true}, func(f *fixture) {
		f.start()
		f.deferRow(permanent, "1 k x/a")
		f.deferRow(nil, "2 k x/a")
		f.settle()
		f.answers(map[string]*sink.Fault{"1": permanent})
		id := f.Ask(store.Replay, "1")
		f.pass(3 * time.Second)
		f.equal("dead_letters", f.deadLetters(), "1:open")
		f.equal("asked", f.Asked(id), "failed")
		f.equal("table", f.table(), "2")
		if log := f.line.said(); strings.Contains(log, "uncount") || strings.Count(log, "refused 1") != 1 {
			t.Errorf("log:\n%s", log)
		}
	})
}

// A replay whose answer is not known to be written is not sent again.
func TestReplayIsSentOnce(t *testing.T) {
	for _, err := range []error{errLost, &store.Refused{Err: errLost}} {
		inBubble(t, Config{Block: true}, func(f *fixture) {
			f.start()
			f.deferRow(permanent, "1 k x/a")
			f.settle()
			f.store.set(func() {
				n := 0
				f.store.fault = func(call string) (error, bool) {
					if strings.HasPrefix(call, "answer") && n < 5 {
						n++
						return err, n == 3 && errors.Is(err, errLost)
					}
					return nil, false
				}
			})
			f.Ask(store.Replay, "1")
			f.pass(time.Minute)
			f.equal("dead_letters", f.deadLetters(), "1:replayed")
			log := f.line.said()
			if strings.Count(log, "sent 1") != 1 || strings.Count(log, "uncount") != 1 {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}

// Discarding or purging a dead letter releases its ordering group with on_dead_letter: block; a
// closed one blocked nothing.
func TestDiscardAndPurge(t *testing.T) {
	inBubble(t, Config{Block: true}, func(f *fixture) {
		f.start()
		f.deferRow(permanent, "1 k x/a")
		f.deferRow(nil, "2 k x/a")
		f.deferRow(permanent, "3 j x/a")
		f.deferRow(nil, "4 j x/a")
		f.settle()
		f.pass(time.Minute)
		f.equal("sent", f.line.sentIDs(), "")
		if n := f.store.count("runs"); n > 10 {
			t.Errorf("blocked ordering groups were looked at %d times", n)
		}
		f.line.said()
		f.Ask(store.Discard, "1")
		f.Ask(store.Purge, "3")
		f.pass(2 * time.Second)
		f.equal("table", f.table(), "")
		log := f.line.said()
		inOrder(t, idsSent(log), "2")
		inOrder(t, idsSent(log), "4")
		if strings.Count(log, "uncount") != 2 {
			t.Errorf("log:\n%s", log)
		}
		f.Ask(store.Purge, "1")
		f.pass(2 * time.Second)
		if log := f.line.said(); log != "" {
			t.Errorf("log:\n%s", log)
		}
	})
}

func idsSent(log string) string {
	var ids []string
	for line := range strings.Lines(log) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "sent "); ok {
			ids = append(ids, id)
		}
	}
	return strings.Join(ids, " ")
}

// Requests about deferred rows.
func TestRequestsAboutRows(t *testing.T) {
	for _, hold := range []bool{false, true} {
		t.Run(fmt.Sprint("hold=", hold), func(t *testing.T) {
			inBubble(t, Config{Block: hold, Backoff: time.Hour, MaxBackoff: time.Hour}, func(f *fixture) {
				f.start()
				for _, s := range []string{"1 k x/a", "2 j x/a", "3 i x/a"} {
					f.deferRow(transient, s)
				}
				f.deferRow(nil, "4 k x/a", "5 j x/a", "6 i x/a")
				f.settle()
				f.line.said()
				retried, deadLettered, purged := f.Ask(store.Retry, "1"), f.Ask(store.DeadLetter, "2"), f.Ask(store.Purge, "3")
				f.pass(2 * time.Second)
				f.equal("asked", f.Asked(retried)+f.Asked(deadLettered)+f.Asked(purged), "donedonedone")
				log := f.line.said()
				inOrder(t, idsSent(log), "1 4")
				inOrder(t, idsSent(log), "6")
				if hold {
					f.equal("table", f.table(), "5")
					if !strings.Contains(log, "not now j@x") || strings.Contains(log, "uncount j@x") {
						t.Errorf("log:\n%s", log)
					}
				} else {
					f.equal("table", f.table(), "")
					if !strings.Contains(log, "uncount j@x") {
						t.Errorf("log:\n%s", log)
					}
				}
				if !strings.Contains(log, "uncount i@x") {
					t.Errorf("log:\n%s", log)
				}
			})
		})
	}
}

// A row that is on its way, or is not seen to be committed, is not moved: it would be delivered, or
// written, once more.
func TestRequestWaitsForTheRow(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.line.set(func() { f.line.keep = true })
		f.deferRow(nil, "1 k x/a", "2 k x/a")
		f.settle()
		var fixed atomic.Bool
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				if !fixed.Load() && strings.HasPrefix(call, "defer 3") {
					return errLost, true
				}
				return nil, false
			}
		})
		f.deferRow(nil, "3 j x/a")
		f.settle()
		f.equal("table", f.table(), "1 2 3")
		a, b := f.Ask(store.DeadLetter, "2"), f.Ask(store.DeadLetter, "3")
		f.pass(10 * time.Second)
		f.equal("asked", f.Asked(a)+", "+f.Asked(b), "waiting, waiting")
		fixed.Store(true)
		f.line.set(func() { f.line.keep = false })
		f.line.release(0)
		f.pass(10 * time.Second)
		f.equal("table", f.table(), "")
		if n := len(f.line.sentIDs()); f.Asked(a) == "waiting" || f.Asked(b) == "waiting" || n < 3 {
			t.Errorf("asked %s %s, sent %q", f.Asked(a), f.Asked(b), f.line.sentIDs())
		}
	})
}

// A request about a row of an ordering group that is always busy is carried out between two of its
// runs.
func TestRequestIsNotStarved(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.line.shut("x")
		f.start()
		var specs []string
		for i := range 12 * maxRun {
			specs = append(specs, fmt.Sprintf("%03d k x/a", i))
		}
		f.deferRow(nil, specs...)
		f.settle()
		f.line.fix("x")
		// 12 runs take longer than it is until requests are read next
		f.line.set(func() { f.line.delay = 200 * time.Millisecond })
		for len(strings.Fields(f.table())) == len(specs) {
			f.pass(10 * time.Millisecond)
		}
		id := f.Ask(store.DeadLetter, "767")
		f.pass(10 * time.Second)
		f.equal("asked", f.Asked(id), "done")
		f.equal("dead_letters", f.deadLetters(), "767:open")
		f.equal("table", f.table(), "")
	})
}

// However many requests wait, rows are fed too.
func TestRequestsDoNotStarveFeeding(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		for i := range 2000 {
			f.deferRow(permanent, fmt.Sprintf("%04d k%d x/a", i, i))
		}
		f.pass(time.Second)
		var last int64
		for _, l := range f.db.DeadLetters(slot) {
			last = f.db.AddRequest(memorytest.Request{Slot: slot, System: "1", Kind: store.Discard, N: l.Row.N})
		}
		for f.store.count("answer") == 0 {
			f.pass(time.Millisecond)
		}
		f.deferRow(nil, "new k x/b")
		f.pass(20 * time.Millisecond)
		if state := f.Asked(last); state != "waiting" {
			t.Fatalf("the last request is %s already", state)
		}
		f.equal("sent", f.line.sentIDs(), "new")
		f.pass(2 * time.Second)
		f.equal("asked", f.Asked(last), "done")
	})
}

// None is carried out while it is not known what became of a statement.
func TestNoRequestBesideAnUnknownEnd(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.store.set(func() {
			f.store.fault = func(call string) (error, bool) {
				if strings.HasPrefix(call, "apply") {
					return errLost, true
				}
				return nil, false
			}
		})
		f.answers(map[string]*sink.Fault{"1": permanent})
		f.deferRow(nil, "1 k x/a")
		f.settle()
		f.equal("dead_letters", f.deadLetters(), "1:open")
		f.answers(nil)
		id := f.Ask(store.Replay, "1")
		f.pass(time.Minute)
		f.equal("asked", f.Asked(id), "waiting")
		f.store.set(func() { f.store.fault = nil })
		f.pass(10 * time.Second)
		f.equal("asked", f.Asked(id), "done")
		if log := f.line.said(); strings.Count(log, "uncount") != 1 {
			t.Errorf("log:\n%s", log)
		}
	})
}

// What could not be decoded cannot be sent; a row that no longer exists is reported as such.
func TestRequestsThatCannotBe(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		p := f.deferredOf("1", "-", "x/a", permanent)
		p.Event.Raw = []byte(`{"id":null}`)
		f.s.Defer([]*relay.Deferred{p})
		f.deferRow(permanent, "2 k x/a")
		f.settle()
		raw := f.Ask(store.Replay, "1")
		f.Ask(store.Discard, "2")
		f.pass(2 * time.Second)
		again := f.Ask(store.Discard, "2")
		f.pass(2 * time.Second)
		f.equal("asked", f.Asked(raw)+", "+f.Asked(again), "failed, failed")
		f.equal("dead_letters", f.deadLetters(), "1:open 2:discarded")
		f.equal("sent", f.line.sentIDs(), "")
	})
}

// A replay that is cancelled on its way is a replay when it is confirmed: what is asked for about
// its dead letter meanwhile waits.
func TestRequestWaitsForACancelledReplay(t *testing.T) {
	for kind, want := range map[store.RequestKind]string{store.Discard: "failed", store.Replay: "failed", store.Redact: "done", store.Purge: "done"} {
		t.Run(string(kind), func(t *testing.T) {
			inBubble(t, Config{Block: true}, func(f *fixture) {
				f.start()
				f.deferRow(permanent, "1 k x/a")
				f.settle()
				f.line.set(func() { f.line.keep = true })
				replay := f.Ask(store.Replay, "1")
				f.pass(2 * time.Second)
				f.db.Cancel(replay)
				second := f.Ask(kind, "1")
				f.pass(5 * time.Second)
				f.equal("meanwhile", f.Asked(replay)+", "+f.Asked(second), "cancelled, waiting")
				f.line.set(func() { f.line.keep = false })
				f.line.release(0)
				f.pass(5 * time.Second)
				f.equal("asked", f.Asked(replay)+", "+f.Asked(second), "done, "+want)
				if log := f.line.said(); strings.Count(log, "sent 1") != 1 || strings.Count(log, "uncount") != 1 {
					t.Errorf("log:\n%s", log)
				}
			})
		})
	}
}

// Replays that wait for the broker delay nothing that needs no broker.
func TestRequestsBehindManyReplays(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		for i := range requestRows + 1 {
			f.deferRow(permanent, fmt.Sprintf("%03d k%d x/a", i, i))
		}
		f.settle()
		f.line.set(func() { f.line.keep = true })
		for i := range requestRows {
			f.Ask(store.Replay, fmt.Sprintf("%03d", i))
		}
		discard := f.Ask(store.Discard, fmt.Sprint(requestRows))
		f.pass(10 * time.Second)
		f.equal("asked", f.Asked(discard), "done")
		f.line.set(func() { f.line.keep = false })
		f.line.release(0)
		f.pass(5 * time.Second)
	})
}
