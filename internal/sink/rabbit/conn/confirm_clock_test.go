package conn

import (
	"testing"
	"time"
)

// The clock by itself, on times of the test's own.
func TestConfirmClock(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	fresh := func(t *testing.T) (*Session, ConfirmClock) {
		w, _, _ := pipe(t)
		go w.runFlusher()
		s := &Session{Wire: w}
		s.Writes.Store(7)
		return s, ConfirmClock{Sess: s, Round: Round{Began: 6, Ended: 7}, Progress: start, Timeout: 10 * time.Second, Ping: func() {}}
	}
	tick := func(t *testing.T, c *ConfirmClock, seconds, answers int, last bool, want RoundEnd) {
		t.Helper()
		if got := c.Tick(at(seconds), answers, last); got != want {
			t.Fatalf("after %d s: %d, want %d", seconds, got, want)
		}
	}
	t.Run("nothing is confirmed: dead", func(t *testing.T) {
		s, c := fresh(t)
		tick(t, &c, 9, 0, false, Answered)
		tick(t, &c, 10, 0, false, Dead)
		if s.Wire.failure() == nil {
			t.Error("the connection stays")
		}
	})
	t.Run("nothing is confirmed, and the broker answers: late", func(t *testing.T) {
		s, c := fresh(t)
		asked := 0
		c.Ping = func() { asked++ }
		tick(t, &c, 4, 0, false, Answered)
		if asked > 0 {
			t.Error("the broker is asked early")
		}
		tick(t, &c, 5, 0, false, Answered)
		tick(t, &c, 6, 0, false, Answered)
		s.Confirmed(at(6), Round{Began: 7})
		tick(t, &c, 7, 0, false, Answered)
		tick(t, &c, 11, 0, false, Answered)
		s.Confirmed(at(11), Round{Began: 7})
		tick(t, &c, 16, 0, false, Answered)
		s.Confirmed(at(16), Round{Began: 7})
		for i := 17; i < 27; i++ {
			tick(t, &c, i, 0, false, Answered)
			s.Confirmed(at(i), Round{Began: 7})
		}
		tick(t, &c, 27, 0, false, Late)
		if asked != 3 {
			t.Errorf("it is asked %d times, want 3", asked)
		}
	})
	t.Run("the broker answers once, and then no more: dead", func(t *testing.T) {
		s, c := fresh(t)
		tick(t, &c, 5, 0, false, Answered)
		s.Confirmed(at(6), Round{Began: 7})
		tick(t, &c, 6, 0, false, Answered)
		tick(t, &c, 15, 0, false, Answered)
		tick(t, &c, 16, 0, false, Dead)
	})
	t.Run("what was written after the question is not read with the answer", func(t *testing.T) {
		s, c := fresh(t)
		tick(t, &c, 5, 0, false, Answered)
		s.Confirmed(at(6), Round{Began: 6})
		tick(t, &c, 6, 0, false, Answered)
		tick(t, &c, 16, 0, false, Dead)
	})
	t.Run("confirms of what is in front: on its way still", func(t *testing.T) {
		s, c := fresh(t)
		for i := 1; i < 100; i++ {
			s.Confirmed(at(i), Round{Began: 3, Ended: 6})
			tick(t, &c, i, 0, false, Answered)
		}
		tick(t, &c, 109, 0, false, Dead)
	})
	t.Run("confirms of what is behind: late", func(t *testing.T) {
		s, c := fresh(t)
		tick(t, &c, 5, 0, false, Answered)
		s.Confirmed(at(6), Round{Began: 7, Ended: 8})
		tick(t, &c, 6, 0, false, Answered)
		tick(t, &c, 15, 0, false, Answered)
		s.Confirmed(at(15), Round{Began: 8, Ended: 9})
		tick(t, &c, 16, 0, false, Answered)
		s.Confirmed(at(25), Round{Began: 9, Ended: 10})
		tick(t, &c, 26, 0, false, Late)
	})
	t.Run("the last of the round is answered, another not: late", func(t *testing.T) {
		s, c := fresh(t)
		tick(t, &c, 1, 1, true, Answered)
		tick(t, &c, 10, 1, true, Answered)
		s.Confirmed(at(10), Round{Began: 7})
		tick(t, &c, 19, 1, true, Answered)
		s.Confirmed(at(20), Round{Began: 7})
		tick(t, &c, 21, 1, true, Late)
	})
	t.Run("answers come in: no hurry", func(t *testing.T) {
		_, c := fresh(t)
		for i := range 20 {
			tick(t, &c, 9*i, i, true, Answered)
		}
	})
	t.Run("blocked: it stops, and starts again", func(t *testing.T) {
		s, c := fresh(t)
		s.setBlocked(true)
		tick(t, &c, 3600, 0, true, Answered)
		s.setBlocked(false)
		s.lastUnblock.Store(at(3600).UnixNano())
		tick(t, &c, 3609, 0, true, Answered)
		s.lastConfirm.Store(at(3619).UnixNano())
		tick(t, &c, 3619, 0, true, Answered)
		tick(t, &c, 3620, 0, true, Late)
	})
}
