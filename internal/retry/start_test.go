package retry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// What the stream repeats of what is in the tables is known, and nothing else, not even another
// event at such a position; the database is asked once for many.
func TestKnown(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		var specs []string
		for i := range 2500 {
			specs = append(specs, fmt.Sprintf("%04d k%d x/a", i, i))
		}
		f.deferRows(nil, specs...)
		f.deferRows(permanent, "dead k x/a")
		f.settle()
		f.stop()
		f.succeed(Config{})
		n := 0
		f.store.fault = func(call string) (error, bool) {
			if call == "positions" {
				if n++; n >= 2 && n <= 4 {
					return errLost, false
				}
			}
			return nil, false
		}
		f.start()
		f.store.done("")
		found := 0
		eventAt := func(lsn pglogrepl.LSN) *event.Event {
			ev := &event.Event{Position: event.Position{Commit: lsn}, ID: fmt.Appendf(nil, "%04d", int(lsn-100)/16-1)}
			if lsn == 100+2501*16 {
				ev.ID = []byte("dead")
			}
			return ev
		}
		for lsn := pglogrepl.LSN(4); lsn < 100+2510*16; lsn += 8 {
			known, err := f.table.Known(f.t.Context(), eventAt(lsn))
			want := lsn > 100 && lsn <= 100+2501*16 && (lsn-100)%16 == 0
			if known {
				found++
			}
			if err != nil || known != want {
				t.Fatalf("%d: %v, %v, want %v", lsn, known, err, want)
			}
			other := eventAt(lsn)
			other.ID = append(other.ID, 'x')
			if known, err := f.table.Known(f.t.Context(), other); err != nil || known {
				t.Fatalf("%d: another event: %v, %v", lsn, known, err)
			}
		}
		if asked := f.store.count("positions"); asked != 6 || found != 2501 {
			t.Errorf("asked %d times, found %d", asked, found)
		}
		// The last transaction comes once more after the reader was past it: its session ended
		// before an event of it was admitted.
		if known, _ := f.table.Known(f.t.Context(), eventAt(100+2501*16)); !known {
			t.Error("the last is not known any more")
		}
		// So does one of which several were known: it begins again with a lower position.
		if known, _ := f.table.Known(f.t.Context(), eventAt(100+16)); !known {
			t.Error("the first is not known any more")
		}
	})
}

// It waits for the database as long as it may.
func TestKnownWaits(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		f.deferRows(nil, "1 k x/a")
		f.settle()
		f.stop()
		f.succeed(Config{})
		f.start()
		f.store.fault = func(call string) (error, bool) {
			if call == "positions" {
				return errLost, false
			}
			return nil, false
		}
		ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if _, err := f.table.Known(ctx, &event.Event{Position: event.Position{Commit: 1}}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// A new leader holds the exchanges that an earlier one has found missing, whatever has become of
// them meanwhile, until an operator's retry is sent.
func TestStartHoldsMissingExchanges(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		f.start()
		for _, exchange := range []string{"x", "y"} {
			f.deferRows(itsExchange, exchange+"1 k1 "+exchange+"/a", exchange+"2 k1 "+exchange+"/b")
		}
		f.deferRows(itsRoute, "z1 k1 z/a")
		f.pass(time.Second)
		f.stop()
		f.succeed(Config{})
		f.start()
		paused := f.line.pauses.List()
		if len(paused) != 1 || paused[0].Fix != "bind" || paused[0].Destination != "there" || paused[0].Text != "NOT_FOUND" || !f.line.pauses.Paused(placeOf("x/c")) {
			t.Errorf("paused: %+v, want the exchange x, which was missing and is not bound by the relay", paused)
		}
	})
}

// Rows that are written, their results, and what an operator's request did are counted within a
// second.
func TestStatsFollow(t *testing.T) {
	var db *fixture
	count := func(_ context.Context, _ int, paused []sink.Place) (store.Stats, error) {
		waiting := map[sink.Place]dlq.WaitingRows{}
		for _, p := range paused {
			waiting[p] = dlq.WaitingRows{Events: 7}
		}
		return store.Stats{At: time.Now(), Deferred: len(db.db.Deferred(slot)), Dead: strings.Count(db.deadLetters(), ":open"), Waiting: waiting}, nil
	}
	inBubble(t, Config{Stats: count}, func(f *fixture) {
		db = f
		wants := func(deferred, dead int) {
			t.Helper()
			f.pass(1100 * time.Millisecond)
			if now := f.table.Snapshot().Stats; now.Deferred != deferred || now.Dead != dead {
				t.Errorf("it is %+v, want %d rows and %d dead letters", now, deferred, dead)
			}
		}
		for i := range 2 * statsPaused {
			f.line.pauses.Refused(placeOf(fmt.Sprintf("y/%d", i)), itsRoute, time.Now().Add(time.Duration(i)))
		}
		f.handed("1 k x/a", "2 j x/a", "3 i x/a")
		f.pass(2 * statsFirst) // before the first probe
		if waiting := f.table.Snapshot().Stats.Waiting; len(waiting) != statsPaused || waiting[placeOf("y/0")].Events != 7 {
			t.Errorf("what waits is counted of %v, want the %d that are paused the longest", waiting, statsPaused)
		}
		wants(3, 0)
		f.line.finish("delivered", "1")
		wants(2, 0)
		f.line.finish("dead", "2")
		wants(1, 1)
		f.ask(store.Discard, "2")
		f.pass(requestsEvery)
		wants(1, 0)
	})
}

// The tables are counted while something changes and now and then; a count that takes long is made
// seldom, one that fails keeps what is known.
func TestStatsCountsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counts []time.Duration // since the beginning
		began := time.Now()
		var cost atomic.Int64
		var fails atomic.Bool
		var s Table
		var mu sync.Mutex // counts are made while the test reads this
		var limits []int
		s.cfg.Stats = func(_ context.Context, limit int, _ []sink.Place) (store.Stats, error) {
			mu.Lock()
			counts, limits = append(counts, time.Since(began).Truncate(time.Second)), append(limits, limit)
			mu.Unlock()
			time.Sleep(time.Duration(cost.Load())) //nolint:forbidigo // the bubble's time, not ours
			if fails.Load() {
				return store.Stats{}, errors.New("no answer")
			}
			return store.Stats{At: time.Now(), Deferred: min(5, limit)}, nil
		}
		s.stats.init(&s.cfg)
		s.stats.pace.log = zap.NewNop()
		run, end := context.WithCancel(t.Context())
		go s.stats.run(run, func() []sink.Place { return nil })
		pass := func(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the bubble's time, not ours
		wants := func(n int, at time.Duration) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(counts) != n || counts[n-1] != at {
				t.Fatalf("it was counted at %v, want the %dth time at %s", counts, n, at)
			}
		}
		wants(1, 0)
		pass(59 * time.Second)
		wants(1, 0)
		pass(time.Second)
		wants(2, time.Minute)
		s.stats.rowsChanged.Store(true)
		pass(time.Second)
		wants(3, 61*time.Second)
		cost.Store(int64(2 * time.Second))
		s.stats.rowsChanged.Store(true)
		pass(time.Second)
		wants(4, 62*time.Second)
		pass(time.Second)
		s.stats.rowsChanged.Store(true) // while it is counted
		pass(2 * time.Second)
		wants(5, 65*time.Second) // one that is slow for once is no pace
		pass(time.Second)
		s.stats.rowsChanged.Store(true)
		pass(100 * time.Second)
		wants(5, 65*time.Second)
		cost.Store(0)
		fails.Store(true)
		pass(time.Second)
		wants(6, 167*time.Second)
		if now := s.stats.snapshot(); now.Deferred != 5 || now.At.IsZero() {
			t.Errorf("after a count that failed it is %+v", now)
		}
		fails.Store(false)
		pass(10500 * time.Millisecond)
		s.stats.rowsChanged.Store(true)
		pass(time.Second)
		wants(8, 178*time.Second)
		if want := []int{store.StatsLimit, store.StatsLimit / 4, store.StatsLimit / 2}; !slices.Equal(limits[5:], want) {
			t.Errorf("the limits were %v, want %v: less after a count that failed", limits[5:], want)
		}
		end()
	})
}

// A count that reached its limit does not lower the numbers.
func TestStatsAtItsLimit(t *testing.T) {
	s := stats{counted: store.Stats{Deferred: 25, Dead: 12}, count: func(_ context.Context, limit int, _ []sink.Place) (store.Stats, error) {
		return store.Stats{Deferred: limit, Dead: 9}, nil
	}}
	for limit, want := range map[int]int{10: 25, 40: 40} {
		s.counted.Deferred, s.limit = 25, limit
		if err := s.countOnce(t.Context(), nil); err != nil || s.counted.Deferred != want || s.counted.Dead != 9 {
			t.Errorf("with a limit of %d it is %+v, %v", limit, s.counted, err)
		}
	}
}

// A dead letter is logged with what it takes to find it, its trace too, and the hook is called.
func TestDeadLettersAreLogged(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	var told []event.Position
	c := &Config{Log: zap.New(core), Hooks: Hooks{DeadLettered: func(ev *event.Event, reason sink.Reason, attempts int) {
		if reason != sink.TooLarge || attempts != 4 {
			t.Errorf("the hook is told of %s after %d attempts", reason, attempts)
		}
		told = append(told, ev.Position)
	}}}
	ev := event.Event{
		Position: event.Position{Commit: 7, Index: 1}, ID: []byte("e0"), Key: []byte("secret"), Payload: []byte("secret"), Headers: []byte("secret"),
		Traceparent: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"),
	}
	row := &store.Row{N: 3, Event: ev, Class: sink.Permanent, Reason: sink.TooLarge, Attempts: 4}
	c.logDeadLetter(row, writtenResult(row))

	// One that is too old is logged with its last rejection.
	c.logDeadLetter(row, store.Result{Row: row, Kind: store.Dead, Attempts: 4})

	// The message of another has a span of the relay's own: that is named.
	c.Traceparent = func(*event.Event, []byte) []byte {
		return []byte("00-11111111111111111111111111111111-2222222222222222-01")
	}
	c.logDeadLetter(row, writtenResult(row))

	if len(told) != 3 || told[0] != ev.Position {
		t.Errorf("the hook was told of %v", told)
	}
	lines := logs.All()
	for _, l := range lines {
		for name, v := range l.ContextMap() {
			if v == "secret" {
				t.Errorf("%s is personal", name)
			}
		}
	}
	first, last := lines[0].ContextMap(), lines[2].ContextMap()
	if first["event_id"] != "e0" || first["reason"] != "too_large" || first["class"] != "permanent" || first["n"] != int64(3) ||
		first["trace_id"] != "0af7651916cd43dd8448eb211c80319c" || first["span_id"] != "b7ad6b7169203331" {
		t.Errorf("the first line says %v", first)
	}
	if last["trace_id"] != "11111111111111111111111111111111" || last["span_id"] != "2222222222222222" {
		t.Errorf("the last line says %v", last)
	}
}

// pulse is what one goroutine reports of itself.
type pulse struct {
	mu     sync.Mutex
	at     time.Time     // when it began what it is at; zero: it is at rest
	most   time.Duration // it was at anything
	rounds int
}

func (p *pulse) tell(atWork bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.at.IsZero() {
		p.most = max(p.most, now.Sub(p.at))
		p.rounds++
	}
	p.at = time.Time{}
	if atWork {
		p.at = now
	}
}

// busy is for how long it has been at something, and how long it was at the most.
func (p *pulse) busy() (now, most time.Duration, rounds int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() {
		now = time.Since(p.at)
	}
	return now, max(p.most, now), p.rounds
}

// watchPulses starts the fixture's retry table with the pulses of its goroutines.
func (f *fixture) watchPulses() map[string]*pulse {
	all := map[string]*pulse{"writer": {}, "feeder": {}, "stats": {}}
	h := &f.table.cfg.Hooks
	h.Writer, h.Feeder, h.Stats = all["writer"].tell, all["feeder"].tell, all["stats"].tell
	f.start()
	return all
}

// A database that does not answer for hours, or answers only with errors, has each goroutine come
// round all the same, within what a few of the store's timeouts take.
func TestSilentDatabaseIsNotStuck(t *testing.T) {
	var silent sync.Map // "": its statements end by their timeouts
	wait := func() error {
		if _, is := silent.Load(""); !is {
			return nil
		}
		time.Sleep(20 * time.Second) //nolint:forbidigo // the bubble's time, not ours
		return context.DeadlineExceeded
	}
	count := func(context.Context, int, []sink.Place) (store.Stats, error) {
		return store.Stats{At: time.Now()}, wait()
	}
	inBubble(t, Config{Stats: count}, func(f *fixture) {
		pulses := f.watchPulses()
		f.deferRows(itsRoute, "1 k x/a", "2 j x/a")
		f.gets("k@x", "1")
		f.store.set(func() { f.store.fault = func(string) (error, bool) { return wait(), false } })
		silent.Store("", true)
		f.deferRows(transient, "3 m x/b")
		f.line.finish("delivered", "1")
		f.read("j@x")
		f.walk("x")
		f.pass(3 * time.Hour)
		for name, p := range pulses {
			if now, most, rounds := p.busy(); most > 2*time.Minute || rounds < 100 {
				t.Errorf("the %s was at one thing for %s, now for %s, in %d rounds", name, most, now, rounds)
			}
		}
		silent.Delete("")
		f.pass(time.Hour)
		for name, p := range pulses {
			if now, _, _ := p.busy(); now > time.Minute {
				t.Errorf("the %s does not rest: it is at something for %s", name, now)
			}
		}
		f.equal("rows", f.rows(), "2 3")
	})
}

// A statement that does not end although its time is over is seen, and nothing else is.
func TestStatementWithoutEndIsStuck(t *testing.T) {
	for _, c := range []struct{ call, stuck string }{{"defer 2", "writer"}, {"read", "feeder"}, {"apply", "feeder"}, {"requests", "feeder"}, {"count", "stats"}} {
		end := make(chan struct{})
		hang := func(call string) {
			if strings.HasPrefix(call, c.call) {
				<-end
			}
		}
		count := func(context.Context, int, []sink.Place) (store.Stats, error) {
			hang("count")
			return store.Stats{At: time.Now()}, nil
		}
		inBubble(t, Config{Stats: count}, func(f *fixture) {
			end = make(chan struct{}) // of the bubble
			pulses := f.watchPulses()
			f.deferRows(transient, "1 k x/a")
			f.gets("k@x", "1")
			f.store.set(func() { f.store.fault = func(call string) (error, bool) { hang(call); return nil, false } })
			f.deferRows(transient, "2 k x/a")
			f.line.finish("delivered", "1")
			f.read("k@x")
			f.pass(time.Hour)
			for name, p := range pulses {
				if now, _, _ := p.busy(); (now > 5*time.Minute) != (name == c.stuck) {
					t.Errorf("%s hangs: the %s is at something for %s", c.call, name, now)
				}
			}
			close(end)
			f.pass(time.Minute)
			for name, p := range pulses {
				if now, _, _ := p.busy(); now > time.Minute {
					t.Errorf("%s has ended: the %s is at something for %s", c.call, name, now)
				}
			}
		})
	}
}

// One that has ended is not at work: the next term has others.
func TestEndedIsAtRest(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		pulses := f.watchPulses()
		f.store.fails("", errLost, false)
		f.deferRows(transient, "1 k x/a")
		f.read("k@x")
		f.pass(time.Minute)
		f.stop()
		for name, p := range pulses {
			if now, _, _ := p.busy(); now != 0 {
				t.Errorf("the %s is at something for %s", name, now)
			}
		}
	})
}

// Slow reads of many parts are not stuck.
func TestReadInPartsIsNotStuck(t *testing.T) {
	inBubble(t, Config{}, func(f *fixture) {
		pulses := f.watchPulses()
		var specs []string
		for i := range 64 {
			specs = append(specs, fmt.Sprintf("%03d k%d x/a", i, i))
		}
		f.deferRows(nil, specs...)
		f.settle()
		f.store.set(func() {
			f.store.torn = map[string]bool{"033": true}
			f.store.fault = func(call string) (error, bool) {
				if call == "read" {
					time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time, not ours
				}
				return nil, false
			}
		})
		for i := range 64 {
			f.read(fmt.Sprintf("k%d@x", i))
		}
		f.pass(time.Hour)
		if _, most, _ := pulses["feeder"].busy(); most > 2*time.Minute || f.line.has() != 63 {
			t.Errorf("the feeder was at one thing for %s, the lanes have %d rows", most, f.line.has())
		}
		f.store.accept()
		f.pass(time.Minute)
	})
}
