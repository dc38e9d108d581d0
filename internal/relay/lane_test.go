package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// bench is a line under test, with its Run running.
type bench struct {
	*Line
	sink   *scriptSink
	lsn    pglogrepl.LSN
	cancel context.CancelFunc
	ended  chan error
}

// start runs a line with a scripted sink of so many lanes until the test ends.
func start(t *testing.T, lanes int, cfg Config) *bench {
	b := &bench{sink: newScriptSink(lanes), lsn: 1000, ended: make(chan error, 1)}
	cfg.Sink = b.sink
	if cfg.RetryTable == nil {
		cfg.RetryTable = noRetryTable{}
	}
	b.Line = New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.laneOf(lanes - 1) // all of them are asleep before the first event
	go func() {
		b.ended <- b.Run(ctx)
		close(b.ended)
	}()
	t.Cleanup(func() {
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return b
}

// stop ends Run and returns what it returned, the first time.
func (b *bench) stop() error {
	b.cancel()
	select {
	case err := <-b.ended:
		return err
	case <-time.After(time.Minute):
		return errors.New("Run does not return")
	}
}

// commitEvents sends one transaction with an event of each key, and nothing comes after it; the id
// is the key and the transaction's LSN.
func (b *bench) commitEvents(t *testing.T, keys ...string) {
	t.Helper()
	b.commitMore(t, keys...)
	b.Line.Wake(true)
}

// commitMore is commitEvents with more to come.
func (b *bench) commitMore(t *testing.T, keys ...string) {
	t.Helper()
	b.lsn += 100
	if err := b.Begin(b.lsn, uint32(b.lsn)); err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		ev := event.Event{
			Position: event.Position{Commit: b.lsn, Index: uint32(i)}, CommitTime: time.Unix(int64(b.lsn), 0),
			ID: fmt.Appendf(nil, "%s-%d", key, i), Key: []byte(key), Ordered: true, Hash: uint64(key[0] - 'a'),
		}
		if err := b.Event(t.Context(), &ev); err != nil {
			t.Fatal(err)
		}
	}
	b.Line.Commit(b.lsn + 10)
}

// TestTransactionsThatComeTogetherGoTogether: no lane is woken for each of many transactions in one
// read.
func TestTransactionsThatComeTogetherGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 1, Config{})
		for range 10 {
			b.commitMore(t, "a", "b")
			synctest.Wait()
		}
		if calls := b.sink.arrived(); len(calls) > 0 {
			t.Errorf("before the reader waits: %v", calls)
		}
		b.commitEvents(t, "c")
		synctest.Wait()
		if calls := b.sink.arrived(); len(calls) != 1 || len(calls[0].ids) != 3 {
			t.Errorf("calls %v, want one of 3 events, one of each key", calls)
		}
	})
}

// TestWholeTransactionDoesNotWaitForTheNext: the next one may be long in coming, once it has begun.
func TestWholeTransactionDoesNotWaitForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 1, Config{})
		b.commitMore(t, "a")
		if err := b.Line.Begin(b.lsn+100, 1); err != nil {
			t.Fatal(err)
		}
		b.Line.Wake(false)
		synctest.Wait()
		if calls := b.sink.arrived(); len(calls) != 1 {
			t.Errorf("calls %v, want one", calls)
		}
	})
}

// TestHotKeyDelaysNobody: a thousand events of one key wait in their lane; an event of another key
// goes with the very next call, each time, and the hot key has one event in every call.
func TestHotKeyDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 1, Config{})
		b.commitEvents(t, slices.Repeat([]string{"hot"}, 1000)...)
		synctest.Wait()
		for i := range 1000 {
			calls := b.sink.arrived()
			if len(calls) != 1 || !slices.Contains(calls[0].ids, fmt.Sprintf("hot-%d", i)) {
				t.Fatalf("call %d does not carry the next hot event: %v", i, calls)
			}
			if want := min(i, 1); len(calls[0].ids) != 1+want {
				t.Fatalf("call %d carries %v", i, calls[0].ids)
			}
			b.commitEvents(t, "cold")
			b.sink.reply(0, nil, nil)
			synctest.Wait()
		}
		b.sink.reply(0, nil, nil) // the last cold one
		if err := b.WaitSettled(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// wait advances the bubble's time until the lane has a call.
func (s *scriptSink) wait(t *testing.T, lane int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { //nolint:forbidigo // the bubble's time, not ours
		synctest.Wait()
		if s.waiting(lane) != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("lane %d makes no call", lane)
		}
	}
}

// brokenSink fails at once, always.
type brokenSink struct {
	nullSink
	calls int
}

func (s *brokenSink) Publish(context.Context, int, []*event.Event, []sink.Outcome) error {
	s.calls++
	return errors.New("broken")
}

// TestNoBusyLoop: a sink that fails at once instead of waiting is asked about once a second.
func TestNoBusyLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &brokenSink{nullSink: nullSink{lanes: 1}}
		l := New(Config{Sink: s, RetryTable: noRetryTable{}})
		if err := l.Begin(100, 1); err != nil {
			t.Fatal(err)
		}
		if err := l.Event(t.Context(), &event.Event{Position: event.Position{Commit: 100}}); err != nil {
			t.Fatal(err)
		}
		l.Commit(110)
		l.Wake(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if s.calls < 50 || s.calls > 90 {
			t.Fatalf("%d calls in a minute", s.calls)
		}
		if w := l.Watermark(); w != (event.Watermark{}) {
			t.Fatalf("watermark %+v, nothing was confirmed", w)
		}
	})
}

// TestStopInsidePublish: when ctx ends, Run returns as soon as the calls do; what they had
// confirmed is settled, nothing else.
func TestStopInsidePublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 2, Config{})
		b.commitEvents(t, "a")
		b.commitEvents(t, "b", "d")
		synctest.Wait()
		if n := len(b.sink.arrived()); n != 2 {
			t.Fatalf("%d calls, want one of each lane", n)
		}
		b.sink.mu.Lock()
		b.sink.calls[0].outcomes[0].State = sink.Confirmed
		b.sink.calls[1].outcomes[1].State = sink.Confirmed
		b.sink.mu.Unlock()
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if got, want := b.Watermark().LSN, pglogrepl.LSN(1110); got != want {
			t.Fatalf("watermark %s, want %s", got, want)
		}
		s := b.Snapshot()
		if s.Events != 1 || s.ConfirmedAbove != 1 || !s.OldestCommit.Equal(time.Unix(1200, 0)) {
			t.Fatalf("after the stop: %+v", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.WaitSettled(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("WaitSettled with an unsettled event: %v", err)
		}
	})
}

// TestReaderGoneWithoutGoodbye: events whose lane was not woken yet do not stay behind when the
// reader stops in the middle of a transaction without Wake.
func TestReaderGoneWithoutGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 1, Config{})
		b.commitEvents(t, "a")
		synctest.Wait()
		b.sink.reply(0, nil, nil)
		synctest.Wait()
		if err := b.Begin(5000, 2); err != nil {
			t.Fatal(err)
		}
		if err := b.Event(t.Context(), &event.Event{Position: event.Position{Commit: 5000}, ID: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		settled := make(chan error, 1)
		go func() { settled <- b.WaitSettled(t.Context()) }()
		synctest.Wait()
		b.sink.reply(0, nil, nil)
		if err := <-settled; err != nil {
			t.Fatal(err)
		}
		if got, want := b.Watermark().LSN, pglogrepl.LSN(1110); got != want {
			t.Fatalf("watermark %s, want %s: the transaction did not end", got, want)
		}
	})
}

// A lane that comes later must ask about ordering groups as long as the walk is not complete.
func TestLaterLaneIsUnsureToo(t *testing.T) {
	l := New(Config{Sink: nullSink{lanes: 1}, RetryTable: noRetryTable{}})
	unsure := func(n int) bool {
		return slices.ContainsFunc(l.laneOf(n).inbox.Found, func(f order.Found) bool { return f.Unsure })
	}
	for n, c := range []struct {
		told order.Found
		want bool
	}{
		{order.Found{ExchangeOrTopic: 1, Unsure: true}, true},
		{order.Found{ExchangeOrTopic: 1, WalkBegins: true}, true},
		{order.Found{ExchangeOrTopic: 2, WalkEnds: true}, true},
		{order.Found{ExchangeOrTopic: 1, WalkEnds: true}, false},
	} {
		l.Found(order.AllLanes, []order.Found{c.told})
		if got := unsure(n + 1); got != c.want {
			t.Errorf("after %+v: unsure %v", c.told, got)
		}
	}
}
