package pauses

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The attempts of an event that is itself at fault are spent only if others pass: in its exchange
// or topic, or else after MaxAge.
func TestSpent(t *testing.T) {
	const most, wait = 20, 10 * time.Minute
	// attempts are rejected one after the other, with a wait in between
	attempts := func(s *story, n int) (spent bool) {
		for range n {
			s.Watch(orders)
			spent = s.Spent(orders, most, most, began, s.after(wait).now)
		}
		return spent
	}
	for _, c := range []struct {
		name   string
		ofDest bool
		told   func(s *story) bool
		spent  bool
	}{
		{"nothing passes", false, func(s *story) bool { return attempts(s, 100) }, false},
		{"confirmed before", false, func(s *story) bool {
			s.Confirmed(orders, false, s.now)
			return attempts(s, 100)
		}, false},
		{"confirmed at the first attempt", false, func(s *story) bool {
			s.Watch(orders)
			s.Confirmed(orders, false, s.now)
			return attempts(s, 2)
		}, false},
		{"confirmed since", false, func(s *story) bool {
			attempts(s, 1)
			s.Confirmed(orders, false, s.now)
			return attempts(s, 1)
		}, true},
		{"a row is confirmed since", false, func(s *story) bool {
			attempts(s, 1)
			s.Confirmed(orders, true, s.now)
			return attempts(s, 1)
		}, true},
		{"confirmed in its exchange", false, func(s *story) bool {
			attempts(s, 1)
			s.Confirmed(invoices, false, s.now)
			return attempts(s, 1)
		}, true},
		{"confirmed at another partition", true, func(s *story) bool {
			attempts(s, 1)
			s.Confirmed(invoices, false, s.now)
			return attempts(s, 1)
		}, false},
		{"confirmed elsewhere", false, func(s *story) bool {
			attempts(s, 1)
			s.Confirmed(stock, false, s.now)
			return attempts(s, 1)
		}, false},
		{"attempts are left", false, func(s *story) bool {
			attempts(s, 1)
			s.Confirmed(orders, false, s.now)
			return s.Spent(orders, most-1, most, began, s.now)
		}, false},
		{"nothing passes for less than the age", false, func(s *story) bool { return attempts(s, int(7*day/wait)) }, false},
		{"nothing passes for the age", false, func(s *story) bool { return attempts(s, int(7*day/wait)+2) }, true},
		{"an outage of the age between two attempts", false, func(s *story) bool {
			attempts(s, 10)
			s.after(7 * day)
			return attempts(s, 10)
		}, false},
		{"a later event of the exchange", false, func(s *story) bool {
			attempts(s, int(7*day/wait)+2)
			return s.Spent(orders, most, most, s.now, s.now)
		}, false},
		{"after a restart", false, func(s *story) bool {
			s.after(7 * day)
			return attempts(s, 1)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tell(t, Config{MaxAge: 7 * day, MaxBackoff: wait, OfDest: c.ofDest})
			s.want("spent", c.told(s), c.spent)
		})
	}
}

// A confirm costs no memory while something is watched: each event of each lane asks.
func TestConfirmsAllocateNothing(t *testing.T) {
	r := New(Config{})
	r.Watch(orders)
	now := began
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Millisecond)
		r.Confirmed(orders, false, now)
		r.Paused(sink.Place{ExchangeOrTopic: 3, Dest: 31})
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
