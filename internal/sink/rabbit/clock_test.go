package rabbit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The clock by itself, on times of the test's own.
func TestConfirmClock(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	fresh := func(t *testing.T) (*session, confirmClock) {
		w, _, _ := pipe(t)
		go w.run()
		s := &session{wire: w}
		s.writes.Store(7)
		return s, confirmClock{sess: s, round: round{began: 6, ended: 7}, progress: start, timeout: 10 * time.Second}
	}
	tick := func(t *testing.T, c *confirmClock, seconds, answers int, last bool, want end) {
		t.Helper()
		if got := c.tick(at(seconds), answers, last); got != want {
			t.Fatalf("after %d s: %d, want %d", seconds, got, want)
		}
	}
	t.Run("nothing is confirmed: dead", func(t *testing.T) {
		s, c := fresh(t)
		tick(t, &c, 9, 0, false, answered)
		tick(t, &c, 10, 0, false, dead)
		if s.wire.cause() == nil {
			t.Error("the connection stays")
		}
	})
	t.Run("confirms of what is in front: on its way still", func(t *testing.T) {
		s, c := fresh(t)
		for i := 1; i < 100; i++ {
			s.confirmed(at(i), round{began: 3, ended: 6})
			tick(t, &c, i, 0, false, answered)
		}
		tick(t, &c, 109, 0, false, dead)
	})
	t.Run("confirms of what is behind: late", func(t *testing.T) {
		s, c := fresh(t)
		tick(t, &c, 5, 0, false, answered)
		s.confirmed(at(6), round{began: 7, ended: 8})
		tick(t, &c, 6, 0, false, answered)
		tick(t, &c, 15, 0, false, answered)
		s.confirmed(at(15), round{began: 8, ended: 9})
		tick(t, &c, 16, 0, false, late)
	})
	t.Run("the last of the round is answered, another not: late", func(t *testing.T) {
		_, c := fresh(t)
		tick(t, &c, 1, 1, true, answered)
		tick(t, &c, 10, 1, true, answered)
		tick(t, &c, 11, 1, true, late)
	})
	t.Run("answers come in: no hurry", func(t *testing.T) {
		_, c := fresh(t)
		for i := range 20 {
			tick(t, &c, 9*i, i, true, answered)
		}
	})
	t.Run("blocked: it stands still, and starts again", func(t *testing.T) {
		s, c := fresh(t)
		s.setBlocked(true)
		tick(t, &c, 3600, 0, true, answered)
		s.setBlocked(false)
		s.lastUnblock.Store(at(3600).UnixNano())
		tick(t, &c, 3609, 0, true, answered)
		s.lastConfirm.Store(at(3605).UnixNano())
		tick(t, &c, 3610, 0, true, late)
	})
}

// A queue that confirms nothing, beside one that does, stands for a quorum queue without a majority: its process is
// suspended. Once is in doubt, twice in a row is its destination's fault, and the first confirm ends that.
func TestUnconfirmedTwice(t *testing.T) {
	b := ownBroker(t)
	b.exchange("events", nil)
	b.exchange("stuck", nil)
	cfg := byKey(b)
	cfg.ConfirmTimeout = 500 * time.Millisecond
	s := start(t, cfg)
	wantConfirmed(t, s.send(event("events", "created"), event("stuck", "created")))
	process := func(do string) {
		b.ctl("eval", fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"stuck">>)), sys:%s(amqqueue:get_pid(Q)).`, b.vhost(), do))
	}
	process("suspend")

	stuck := event("stuck", "created")
	outcomes, err := s.try(event("events", "created"), stuck, event("events", "created"))
	if err == nil || !strings.Contains(err.Error(), "while others are confirmed") {
		t.Errorf("first time: error %v", err)
	}
	wantConfirmed(t, outcomes, 1)
	if outcomes[1].State != sink.Unknown {
		t.Errorf("first time: %s", outcomes[1].State)
	}
	for range 2 {
		outcomes, err = s.try(stuck, event("events", "created"))
		if err != nil {
			t.Errorf("again: error %v", err)
		}
		wantRejected(t, outcomes[0], sink.Destination, sink.Unconfirmed)
		wantConfirmed(t, outcomes, 0)
	}
	if d := outcomes[0].Fault.Destination; d != `exchange "stuck", routing key "created"` {
		t.Errorf("accused %s", d)
	}
	process("resume")
	wantConfirmed(t, s.send(stuck))
	if len(s.lanes[0].late) != 0 {
		t.Error("a confirmed destination is remembered as late")
	}
}

// When nothing on the connection is confirmed nobody is accused: the connection is given up, and the event in doubt.
func TestNothingConfirmed(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	proxy := startProxy(t, b.real.Addr())
	cfg := b.config()
	cfg.URLs, cfg.ConfirmTimeout = []string{b.through(proxy)}, 300*time.Millisecond
	s := start(t, cfg)
	wantConfirmed(t, s.send(event("k", "created")))
	for range 3 {
		proxy.Hold(devenv.Down)
		outcomes, err := s.try(events(5, "created")...)
		if err == nil {
			t.Fatal("no error")
		}
		for _, o := range outcomes {
			if o.State != sink.Unknown {
				t.Errorf("%s %v", o.State, o.Fault)
			}
		}
		proxy.Release(devenv.Down)
		wantConfirmed(t, s.send(event("k", "created")))
	}
}

// While the broker blocks, the confirm clock stands still and nothing is sent again.
func TestBlockedPastTheConfirmTimeout(t *testing.T) {
	b := ownBroker(t)
	b.exchange("events", nil)
	cfg := b.config()
	cfg.ConfirmTimeout = 200 * time.Millisecond
	again := make(chan int, 10)
	cfg.Hooks.Connected = func(n int, reconnected bool) {
		if reconnected {
			again <- n
		}
	}
	s := start(t, cfg)
	wantConfirmed(t, s.send(event("k", "created")))
	b.must(b.real.Alarm(b.ctx, true))
	t.Cleanup(func() { b.must(b.real.Alarm(b.ctx, false)) })

	var large []*outbox.Event // more than the sockets between hold
	for range 256 {
		ev := event("k", "created")
		ev.Payload = make([]byte, 64<<10)
		large = append(large, ev)
	}
	done := make(chan []sink.Outcome, 1)
	go func() { done <- s.send(large...) }()
	until(t, "blocked", func() bool { up, why := s.Up(); return !up && strings.Contains(why, "blocked") })
	select { // ten timeouts long
	case <-done:
		t.Fatal("published to a broker that takes nothing")
	case <-again:
		t.Fatal("a blocked connection was given up")
	case <-time.After(10 * cfg.ConfirmTimeout):
	}
	b.must(b.real.Alarm(b.ctx, false))
	wantConfirmed(t, <-done)
	if len(again) > 0 {
		t.Error("a blocked connection was given up")
	}
	if n := b.depth("events"); n != 257 {
		t.Errorf("%d messages for 257 events", n)
	}
	if up, why := s.Up(); !up {
		t.Error(why)
	}
}
