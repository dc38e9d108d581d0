package order

import (
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// However many destinations refuse, there are a hundred probes a second, and each has its turn.
func TestProbesOverAll(t *testing.T) {
	s := tell(t, PausesConfig{Jitter: func(most time.Duration) time.Duration { return most / 2 }})
	const n = 5000
	probed := map[Target]int{}
	for i := range n {
		s.refused(sink.Place{ExchangeOrTopic: 1, Dest: uint64(i + 1)}, unroutable)
	}
	const seconds = 120
	for range seconds {
		s.after(time.Second)
		for i := range n {
			at := Target{1, uint64(i + 1)}
			if !s.TakeProbe(at, s.now) {
				continue
			}
			probed[at]++
			s.refused(sink.Place{ExchangeOrTopic: 1, Dest: at.Dest}, unroutable)
			s.ProbeDone(at, sink.Outcome{State: sink.Rejected, Fault: &unroutable}, s.now)
		}
	}
	total := 0
	for _, n := range probed {
		total += n
	}
	if total > 101*seconds || len(probed) < n {
		t.Errorf("%d probes in %d s, of %d destinations", total, seconds, len(probed))
	}
}

// Rows that no pause stands for take turns, a hundred a second, too.
func TestTurn(t *testing.T) {
	s := tell(t, PausesConfig{})
	for range 500 {
		s.NextTurn(s.now)
	}
	if wait := s.NextTurn(s.now); wait != 501*probeSpacing {
		t.Errorf("the 501st waits for %s", wait)
	}
	for range 1_000_000 {
		s.NextTurn(s.now)
	}
	if wait := s.NextTurn(s.now); wait != maxTurn {
		t.Errorf("behind a million it waits for %s", wait)
	}
	if wait := s.NextTurn(s.after(time.Hour).now); wait != probeSpacing {
		t.Errorf("the only one waits for %s", wait)
	}
}

// The wait between probes grows to 10 s, and beyond that, up to 2 min, only while a destination
// does nothing but nack for 10 min: it is perhaps one full queue of several, and the others take
// each probe.
func TestProbeInterval(t *testing.T) {
	const ten = 10 * time.Minute
	first := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, maxProbe, maxProbe}
	after := func(d ...time.Duration) []time.Duration { return d }
	for _, c := range []struct {
		name string
		told func(s *pauseStory)
		want []time.Duration // the next waits
	}{
		{"paused just now", func(*pauseStory) {}, first},
		{"nacks for less than ten minutes", func(s *pauseStory) { s.refuse(orders, nack, ten-30*time.Second) }, after(maxProbe, maxProbe)},
		{"nacks for ten minutes", func(s *pauseStory) { s.refuse(orders, nack, ten) }, after(20*time.Second, 40*time.Second, 80*time.Second, maxNackedProbe, maxNackedProbe)},
		{"unroutable for an hour", func(s *pauseStory) { s.refuse(orders, unroutable, time.Hour) }, after(maxProbe, maxProbe)},
		{"not allowed for a minute", func(s *pauseStory) {
			s.refuse(orders, notAllowed, time.Minute)
			s.probes(orders, notAllowed, 0)
			s.probes(orders, notAllowed, 0)
		}, after(maxNackedProbe, maxProbe)},
		{"another reason among the nacks", func(s *pauseStory) {
			s.refuse(orders, nack, time.Hour)
			s.probes(orders, unroutable, 0)
		}, after(maxProbe, maxProbe)},
		{"ten minutes without an answer between two nacks", func(s *pauseStory) {
			s.refuse(orders, nack, 5*time.Minute)
			s.probes(orders, nack, ten)
		}, after(maxProbe, maxProbe)},
		{"an operator's request", func(s *pauseStory) {
			s.refuse(orders, nack, time.Hour)
			s.Retry(orders, s.now)
		}, slices.Concat(after(0), first[1:])},
		{"a confirm, of a new event", func(s *pauseStory) {
			s.refuse(orders, nack, time.Hour)
			s.Confirmed(orders, false, s.now)
			s.probes(orders, nack, 0)
		}, first[1:]},
		{"a confirm, of a row", func(s *pauseStory) {
			s.refuse(orders, nack, time.Hour)
			s.Confirmed(orders, true, s.now)
			s.refused(orders, nack)
		}, first},
		{"a row at fault itself", func(s *pauseStory) {
			s.refuse(orders, nack, time.Minute)
			s.probes(orders, poison, 0)
		}, after(maxProbe)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tell(t, PausesConfig{})
			s.refused(orders, nack)
			c.told(s)
			for i, want := range c.want {
				if got := s.probes(orders, nack, 0); got != want {
					t.Fatalf("wait %d is %v, want %v", i, got, want)
				}
			}
		})
	}
}

// Targets that were paused together are not probed together: a fifth of the wait is drawn on top.
func TestProbesAreSpread(t *testing.T) {
	s := tell(t, PausesConfig{Jitter: func(most time.Duration) time.Duration { return most }})
	s.refused(orders, nack)
	if got := s.probes(orders, nack, 0); got != 1200*time.Millisecond {
		t.Errorf("the first probe is sent after %v, want 1.2s", got)
	}
}

// A target has one probe at a time, and one that was not sent is repeated soon.
func TestOneProbe(t *testing.T) {
	s := tell(t, PausesConfig{})
	s.refused(orders, nack)
	s.refuse(orders, nack, time.Hour)
	s.take(dest(orders))
	s.want("a second probe", s.TakeProbe(dest(orders), s.after(time.Hour).now), false)
	s.want("a probe is due", s.ProbeAt(dest(orders)).IsZero(), true)
	s.ProbeDone(dest(orders), sink.Outcome{State: sink.Unsent}, s.now)
	if got := s.ProbeAt(dest(orders)).Sub(s.now); got != maxProbe {
		t.Errorf("next probe after %v, want %v: the last one was not sent", got, maxProbe)
	}
	s.Confirmed(orders, true, s.now)
	s.want("probe of what is not paused", s.TakeProbe(dest(orders), s.after(time.Hour).now), false)
}

// What rests behind a pause is there also behind the next one, which may begin before a lane has
// noticed the end.
func TestRestOutlivesAPause(t *testing.T) {
	s := tell(t, PausesConfig{})
	s.refused(orders, nack)
	s.AddResting(dest(orders), 1)
	s.Confirmed(orders, true, s.now)
	s.refused(orders, nack)
	s.want("nothing rests there", len(s.TargetsWithoutRows(s.after(minProbe).now)) > 0, false)
	s.AddResting(dest(orders), -1)
	s.want("nothing rests there", len(s.TargetsWithoutRows(s.now)) > 0, true)
}

// A search for a row to probe with begins when a probe is due and nothing rests there, and goes on
// slowly. A row that comes meanwhile does not wait for it.
func TestLonely(t *testing.T) {
	s := tell(t, PausesConfig{})
	lonely := func() bool { return slices.Contains(s.TargetsWithoutRows(s.now), dest(orders)) }
	s.want("nothing is paused", lonely(), false)
	s.refused(orders, nack)
	s.want("before a probe is due", lonely(), false)
	s.want("a probe is due", lonely() || s.after(minProbe) == nil || lonely(), true)
	s.want("again at once", lonely() || s.after(maxProbe-1) == nil || lonely(), false)
	s.want("again later", s.after(1) != nil && lonely(), true)
	s.AddResting(dest(orders), 1)
	s.want("probed at once", s.TakeProbe(dest(orders), s.now), true)
	s.AddResting(dest(orders), -1)
	s.want("a probe is out", s.after(time.Hour) != nil && lonely(), false)
}

// The attempts of an event that is itself at fault are spent only if others pass: in its exchange
// or topic, or else after MaxAge.
func TestSpent(t *testing.T) {
	const most, wait = 20, 10 * time.Minute
	// attempts are rejected one after the other, with a wait in between
	attempts := func(s *pauseStory, n int) (spent bool) {
		for range n {
			s.Watch(orders)
			spent = s.AttemptsSpent(orders, most, most, began, s.after(wait).now)
		}
		return spent
	}
	for _, c := range []struct {
		name   string
		ofDest bool
		told   func(s *pauseStory) bool
		spent  bool
	}{
		{"nothing passes", false, func(s *pauseStory) bool { return attempts(s, 100) }, false},
		{"confirmed before", false, func(s *pauseStory) bool {
			s.Confirmed(orders, false, s.now)
			return attempts(s, 100)
		}, false},
		{"confirmed at the first attempt", false, func(s *pauseStory) bool {
			s.Watch(orders)
			s.Confirmed(orders, false, s.now)
			return attempts(s, 2)
		}, false},
		{"confirmed since", false, func(s *pauseStory) bool {
			attempts(s, 1)
			s.Confirmed(orders, false, s.now)
			return attempts(s, 1)
		}, true},
		{"a row is confirmed since", false, func(s *pauseStory) bool {
			attempts(s, 1)
			s.Confirmed(orders, true, s.now)
			return attempts(s, 1)
		}, true},
		{"confirmed in its exchange", false, func(s *pauseStory) bool {
			attempts(s, 1)
			s.Confirmed(invoices, false, s.now)
			return attempts(s, 1)
		}, true},
		{"confirmed at another partition", true, func(s *pauseStory) bool {
			attempts(s, 1)
			s.Confirmed(invoices, false, s.now)
			return attempts(s, 1)
		}, false},
		{"confirmed elsewhere", false, func(s *pauseStory) bool {
			attempts(s, 1)
			s.Confirmed(stock, false, s.now)
			return attempts(s, 1)
		}, false},
		{"attempts are left", false, func(s *pauseStory) bool {
			attempts(s, 1)
			s.Confirmed(orders, false, s.now)
			return s.AttemptsSpent(orders, most-1, most, began, s.now)
		}, false},
		{"nothing passes for less than the age", false, func(s *pauseStory) bool { return attempts(s, int(7*day/wait)) }, false},
		{"nothing passes for the age", false, func(s *pauseStory) bool { return attempts(s, int(7*day/wait)+2) }, true},
		{"an outage of the age between two attempts", false, func(s *pauseStory) bool {
			attempts(s, 10)
			s.after(7 * day)
			return attempts(s, 10)
		}, false},
		{"a later event of the exchange", false, func(s *pauseStory) bool {
			attempts(s, int(7*day/wait)+2)
			return s.AttemptsSpent(orders, most, most, s.now, s.now)
		}, false},
		{"after a restart", false, func(s *pauseStory) bool {
			s.after(7 * day)
			return attempts(s, 1)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tell(t, PausesConfig{MaxAge: 7 * day, MaxBackoff: wait, OfDest: c.ofDest})
			s.want("spent", c.told(s), c.spent)
		})
	}
}

// A confirm costs no memory while something is watched: each event of each lane asks.
func TestConfirmsAllocateNothing(t *testing.T) {
	r := NewPauses(PausesConfig{})
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
