package rabbit

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
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
		return s, confirmClock{sess: s, round: round{began: 6, ended: 7}, progress: start, timeout: 10 * time.Second, ask: func() {}}
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
	t.Run("nothing is confirmed, and the broker answers: late", func(t *testing.T) {
		s, c := fresh(t)
		asked := 0
		c.ask = func() { asked++ }
		tick(t, &c, 4, 0, false, answered)
		if asked > 0 {
			t.Error("the broker is asked early")
		}
		tick(t, &c, 5, 0, false, answered)
		tick(t, &c, 6, 0, false, answered)
		s.heard(at(6), 7)
		tick(t, &c, 7, 0, false, answered)
		tick(t, &c, 11, 0, false, answered)
		s.heard(at(11), 7)
		tick(t, &c, 16, 0, false, answered)
		s.heard(at(16), 7)
		tick(t, &c, 17, 0, false, late)
		if asked != 3 {
			t.Errorf("it is asked %d times, want 3", asked)
		}
	})
	t.Run("the broker answers once, and stands still then: dead", func(t *testing.T) {
		s, c := fresh(t)
		tick(t, &c, 5, 0, false, answered)
		s.heard(at(6), 7)
		tick(t, &c, 6, 0, false, answered)
		tick(t, &c, 15, 0, false, answered)
		tick(t, &c, 16, 0, false, dead)
	})
	t.Run("what was written after the question is not read with the answer", func(t *testing.T) {
		s, c := fresh(t)
		tick(t, &c, 5, 0, false, answered)
		s.heard(at(6), 6)
		tick(t, &c, 6, 0, false, answered)
		tick(t, &c, 16, 0, false, dead)
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
		s, c := fresh(t)
		tick(t, &c, 1, 1, true, answered)
		tick(t, &c, 10, 1, true, answered)
		s.heard(at(10), 7)
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

// slowBroker is a confirm timeout that a broker on a loaded machine keeps: it has half of it to answer a question.
const slowBroker = 4 * time.Second

// When nothing on the connection is confirmed nobody is accused: the connection is given up, and the event in doubt.
func TestNothingConfirmed(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	proxy := startProxy(t, b.real.Addr())
	cfg := b.config()
	cfg.URLs, cfg.ConfirmTimeout = []string{b.through(proxy)}, slowBroker
	s := start(t, cfg)
	wantConfirmed(t, s.send(event("k", "created")))
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
