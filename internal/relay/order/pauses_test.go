package order

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// pauseStory tells a registry what happens at explicit times.
type pauseStory struct {
	*Pauses
	t   *testing.T
	now time.Time
}

var (
	orders   = sink.Place{ExchangeOrTopic: 1, Dest: 11}
	invoices = sink.Place{ExchangeOrTopic: 1, Dest: 12} // of the same exchange
	stock    = sink.Place{ExchangeOrTopic: 2, Dest: 21}

	nack       = sink.Fault{Class: sink.Destination, Reason: sink.Nacked, Destination: "orders"}
	unroutable = sink.Fault{Class: sink.Destination, Reason: sink.Unroutable, Destination: "orders"}
	notAllowed = *sink.NotAllowedFault("invoices", "invoices", "allow", false)
	noExchange = sink.Fault{Class: sink.Destination, Reason: sink.NoExchange, Whole: true, Destination: "exchange"}
	heldFault  = sink.Fault{Class: sink.Destination, Reason: sink.NoExchange, Whole: true, Destination: "exchange", Held: "bind all queues"}
	poison     = sink.Fault{Class: sink.Transient, Reason: sink.BrokerException}
)

var began = time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)

func tell(t *testing.T, cfg PausesConfig) *pauseStory {
	return &pauseStory{Pauses: NewPauses(cfg), t: t, now: began}
}

func dest(p sink.Place) Target { return Target{p.ExchangeOrTopic, p.Dest} }

func whole(p sink.Place) Target { return dest(p).exchangeOrTopic() }

func (s *pauseStory) after(d time.Duration) *pauseStory {
	s.now = s.now.Add(d)
	return s
}

func (s *pauseStory) refused(p sink.Place, f sink.Fault) bool { return s.Refused(p, &f, s.now) }

// probes lets the next probe go when it is due, which the broker answers after a time. It returns
// the wait for that probe.
func (s *pauseStory) probes(p sink.Place, f sink.Fault, answered time.Duration) time.Duration {
	s.t.Helper()
	t, _ := s.Target(p)
	waited := s.take(t)
	s.after(answered)
	if f.Class == sink.Destination {
		s.refused(p, f)
	}
	s.ProbeDone(t, sink.Outcome{State: sink.Rejected, Fault: &f}, s.now)
	return waited
}

// take takes the next probe when it is due, and not earlier.
func (s *pauseStory) take(t Target) time.Duration {
	s.t.Helper()
	at := s.ProbeAt(t)
	waited := at.Sub(s.now)
	if at.IsZero() || s.TakeProbe(t, at.Add(-time.Nanosecond)) || !s.TakeProbe(t, at) {
		s.t.Fatalf("the probe of %v is not due at %v", t, at)
	}
	if at.After(s.now) {
		s.now = at
	}
	return waited
}

// refuse lets probes be refused for a time.
func (s *pauseStory) refuse(p sink.Place, f sink.Fault, d time.Duration) {
	s.t.Helper()
	for end := s.now.Add(d); s.now.Before(end); {
		s.probes(p, f, 0)
	}
}

func (s *pauseStory) want(what string, got, want bool) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Only the confirm of a row ends a pause: a new event may have been on the wire before the
// destination broke.
func TestEndOfAPause(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault sink.Fault
		then  func(s *pauseStory) bool
		ends  bool
	}{
		{"row confirmed", nack, func(s *pauseStory) bool { return s.Confirmed(orders, true, s.now) }, true},
		{"new event confirmed", nack, func(s *pauseStory) bool { return s.Confirmed(orders, false, s.now) }, false},
		{"row confirmed at another pair", nack, func(s *pauseStory) bool { return s.Confirmed(invoices, true, s.now) }, false},
		{"row of the exchange confirmed", noExchange, func(s *pauseStory) bool { return s.Confirmed(invoices, true, s.now) }, true},
		{"row of another exchange confirmed", noExchange, func(s *pauseStory) bool { return s.Confirmed(stock, true, s.now) }, false},
		{"another pair at fault", nack, func(s *pauseStory) bool { return s.refused(invoices, nack) }, false},
		{"one pair of the exchange at fault", noExchange, func(s *pauseStory) bool { return s.refused(invoices, nack) }, true},
		{"rejected again", nack, func(s *pauseStory) bool { return s.refused(orders, unroutable) }, false},
		{"nothing left to probe with", nack, func(s *pauseStory) bool { s.Forget(dest(orders), s.now); return true }, true},
		{"nothing left of the exchange", noExchange, func(s *pauseStory) bool { s.Forget(whole(orders), s.now); return true }, true},
		{"nothing left of another pair", nack, func(s *pauseStory) bool { s.Forget(dest(invoices), s.now); return false }, false},
		{"nothing left, but a pair is paused", nack, func(s *pauseStory) bool { s.Forget(whole(orders), s.now); return false }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log []string
			s := tell(t, PausesConfig{
				Began: func(p sink.Paused) { log = append(log, p.Destination+" paused") },
				Ended: func(p sink.Paused, _ bool, _ time.Time) { log = append(log, p.Destination+" accepts") },
			})
			s.want("paused before", s.Paused(orders), false)
			s.refused(orders, c.fault)
			version := s.Version()
			s.want("ended", c.then(s.after(time.Second)), c.ends)
			s.want("paused", s.Paused(orders), !c.ends)
			s.want("version changed", s.Version() != version, c.ends)
			s.want("an end is logged", len(log) > 1 && log[1] == c.fault.Destination+" accepts", c.ends)
		})
	}
}

// A held pause ends by what was sent since an operator's request, and by nothing else; a refusal
// holds it again. What an operator does first is told each time.
func TestHeldPause(t *testing.T) {
	var told []string
	s := tell(t, PausesConfig{MaxAge: time.Hour, Began: func(p sink.Paused) { told = append(told, p.Fix) }})
	forbidden := sink.Fault{Class: sink.Destination, Reason: sink.NotPermitted, Whole: true, Destination: "exchange"}
	s.refused(orders, forbidden)
	s.refused(orders, heldFault) // it is held from now on
	for what, ended := range map[string]bool{
		"a row of before, or a replay, is confirmed": s.Confirmed(orders, true, s.now),
		"another pair is unroutable":                 s.refused(invoices, unroutable),
		"another refusal":                            s.refused(orders, forbidden),
		"a probe":                                    s.TakeProbe(whole(orders), s.after(time.Minute).now),
	} {
		s.want(what+" ends it, or goes", ended || !s.IsPaused(whole(orders)), false)
	}
	if p := s.List(); p[0].Reason != sink.NoExchange || p[0].Fix != heldFault.Held {
		t.Errorf("paused: %+v", p)
	}
	for range 400 { // the time in which nobody decides counts as refusal
		s.TakeProbe(whole(orders), s.after(maxProbe).now)
	}
	s.want("a row is too old", s.TooOld(orders, began), true)
	s.Retry(orders, s.now)
	s.want("the retry goes", s.TakeProbe(whole(orders), s.now), true)
	s.ProbeDone(whole(orders), sink.Outcome{State: sink.Unsent}, s.now)
	s.want("again, as it was not sent", s.TakeProbe(whole(orders), s.after(maxProbe).now), true)
	s.refused(orders, heldFault)
	s.ProbeDone(whole(orders), sink.Outcome{State: sink.Rejected, Fault: &heldFault}, s.now)
	s.want("another probe", s.TakeProbe(whole(orders), s.after(time.Hour).now), false)
	s.Retry(orders, s.now)
	s.want("the row of the retry ends it", s.TakeProbe(whole(orders), s.now) && s.Confirmed(orders, true, s.now) && !s.IsPaused(whole(orders)), true)
	if len(told) != 4 || told[0] != "" || told[1] != heldFault.Held || told[2] != "" || told[3] != heldFault.Held {
		t.Errorf("told: %q, want the pause, that it is held, the pair's, and that it is held again", told)
	}
	s.want("nothing is left of it", s.bytes == len("orders")+len(unroutable.Text), true)
}

// A pause of the whole exchange hides that of a pair, which goes on when the exchange answers
// again.
func TestWholeExchangeAndPair(t *testing.T) {
	s := tell(t, PausesConfig{})
	s.refused(orders, nack)
	s.after(time.Second).refused(invoices, noExchange)
	target, _ := s.Target(orders)
	s.want("the exchange is paused", target == whole(orders) && s.Fault(orders).Reason == sink.NoExchange, true)
	s.want("probe of the pair", s.TakeProbe(dest(orders), s.after(time.Minute).now) || !s.ProbeAt(dest(orders)).IsZero(), false)
	if lonely := s.TargetsWithoutRows(s.now); len(lonely) != 1 || lonely[0] != whole(orders) {
		t.Errorf("without a row to probe with: %v, want the exchange alone", lonely)
	}
	s.want("the exchange answers", s.Confirmed(invoices, true, s.now), true)
	target, is := s.Target(orders)
	s.want("the pair is paused", is && target == dest(orders), true)
	s.want("probe of the pair", s.TakeProbe(dest(orders), s.ProbeAt(dest(orders))), true)
}

// The relay's own verdict on a routing key says nothing of the exchange, which it did not ask.
func TestNotAllowedEndsNoPause(t *testing.T) {
	s := tell(t, PausesConfig{})
	s.refused(orders, noExchange)
	s.want("ended", s.after(23*time.Hour).refused(invoices, notAllowed), false)
	target, _ := s.Target(orders)
	s.want("the exchange is paused since then", target == whole(orders) && s.List()[0].Since.Equal(began), true)
}

// Names may be made from data, so there is a bound to what is noted as paused, or watched. Beyond
// it nothing is paused: an event is sent, refused and deferred.
func TestPausesAreBounded(t *testing.T) {
	s := tell(t, PausesConfig{})
	place := func(n int) sink.Place { return sink.Place{ExchangeOrTopic: uint64(n/5 + 1), Dest: uint64(n + 1)} }
	for n := range maxPauses + 10 {
		s.refused(place(n), nack)
		s.Watch(place(n))
	}
	if n := len(s.List()); n != maxPauses {
		t.Errorf("%d destinations are paused, want %d", n, maxPauses)
	}
	if n := len(*s.watched.of.Load()); n > maxWatched {
		t.Errorf("%d exchanges are watched, want %d at most", n, maxWatched)
	}
	s.want("the first ones are paused", s.Paused(place(maxPauses-1)) && !s.Paused(place(maxPauses)), true)
	s.Confirmed(place(0), true, s.now)
	s.refused(place(maxPauses), nack)
	s.want("the room is taken again", !s.Paused(place(0)) && s.Paused(place(maxPauses)), true)
}

// Long names are bounded by their bytes, however few they are.
func TestPausesAreBoundedByBytes(t *testing.T) {
	s := tell(t, PausesConfig{})
	long := nack
	long.Destination, long.Text = strings.Repeat("d", 3000), strings.Repeat("t", 3000)
	for n := range maxPauses {
		s.refused(sink.Place{ExchangeOrTopic: 2, Dest: uint64(n + 1)}, long)
	}
	if n := len(s.List()); n == 0 || n > maxPauseBytes/6000+1 {
		t.Errorf("%d destinations are paused", n)
	}
	s.refused(sink.Place{ExchangeOrTopic: 2, Dest: 1}, nack) // whose text is short
	for n := range maxPauses {
		s.Confirmed(sink.Place{ExchangeOrTopic: 2, Dest: uint64(n + 1)}, true, s.now)
	}
	if s.bytes != 0 {
		t.Errorf("%d bytes are counted when nothing is paused", s.bytes)
	}
}

// Names that are not allowed leave half of the room to what brokers refuse.
func TestForgedNamesLeaveRoom(t *testing.T) {
	s := tell(t, PausesConfig{})
	for n := range maxPauses {
		s.refused(sink.Place{ExchangeOrTopic: 2, Dest: uint64(n + 1)}, notAllowed)
	}
	s.want("half of the room is taken", len(s.List()) == maxPauses/2, true)
	s.refused(orders, nack)
	s.want("a destination that nacks is paused", s.Paused(orders), true)
}

// The lanes, the retry table and the status use the registry at once. At no time are two probes of
// a target out, and what rests is counted to the end.
func TestConcurrentUse(t *testing.T) {
	r := NewPauses(PausesConfig{MaxAge: time.Minute, MaxBackoff: time.Second})
	places := []sink.Place{orders, invoices, stock}
	var lanes sync.WaitGroup
	for lane := range 4 {
		lanes.Go(func() {
			dice := rand.New(rand.NewPCG(1, uint64(lane)))
			for n := range 2000 {
				p, now := places[dice.IntN(len(places))], began.Add(time.Duration(n)*time.Second)
				r.AddResting(dest(p), 1)
				r.Refused(p, []*sink.Fault{&nack, &noExchange}[dice.IntN(2)], now)
				r.Watch(p)
				r.Confirmed(p, dice.IntN(4) == 0, now)
				if target, is := r.Target(p); is && r.TakeProbe(target, now) {
					r.ProbeDone(target, sink.Outcome{State: sink.Rejected, Fault: &nack}, now)
				}
				r.AttemptsSpent(p, n, 20, began, now)
				r.TooOld(p, began)
				r.Retry(p, now)
				r.ProbeAt(dest(p))
				r.TargetsWithoutRows(now)
				r.OldTargets()
				r.List()
				r.AddResting(dest(p), -1)
			}
		})
	}
	lanes.Wait()
	if len(r.resting) > 0 {
		t.Errorf("ordering groups at rest: %v, want none", r.resting)
	}
	for _, p := range places {
		r.Confirmed(p, true, began)
	}
	if r.AnyPaused() || len(r.List()) > 0 {
		t.Errorf("paused: %v, want none", r.List())
	}
}

const day = 24 * time.Hour

// destination_max_age counts continuous refusal of the destination: since its last confirm, and
// while the row waits. Time in which nobody asks or answers does not count.
func TestAge(t *testing.T) {
	for _, c := range []struct {
		name   string
		maxAge time.Duration
		told   func(s *pauseStory)
		at     sink.Place
		old    bool
	}{
		{"refused for less", 7 * time.Hour, func(s *pauseStory) { s.refuse(orders, nack, 7*time.Hour-3*time.Minute) }, orders, false},
		{"refused for longer", 7 * time.Hour, func(s *pauseStory) { s.refuse(orders, unroutable, 7*time.Hour+time.Minute) }, orders, true},
		{"no limit", 0, func(s *pauseStory) { s.refuse(orders, unroutable, day) }, orders, false},
		{"another destination", time.Hour, func(s *pauseStory) { s.refuse(orders, nack, 2*time.Hour) }, invoices, false},
		{"the whole exchange", time.Hour, func(s *pauseStory) { s.refuse(orders, noExchange, 2*time.Hour) }, invoices, true},
		{"a probe without an answer", time.Hour, func(s *pauseStory) { s.probes(orders, nack, 7*day) }, orders, false},
		{"no probe could go", time.Hour, func(s *pauseStory) {
			s.after(7 * day)
			s.probes(orders, nack, 0)
		}, orders, false},
		{"a probe that was not sent after long", time.Hour, func(s *pauseStory) {
			s.take(dest(orders))
			s.ProbeDone(dest(orders), sink.Outcome{State: sink.Unsent}, s.after(7*day).now)
			s.probes(orders, nack, 0)
		}, orders, false},
		{"outages in between", time.Hour, func(s *pauseStory) {
			s.refuse(orders, nack, 50*time.Minute)
			s.probes(orders, nack, 7*day)
			s.refuse(orders, nack, 11*time.Minute)
		}, orders, true},
		{"a row was confirmed", time.Hour, func(s *pauseStory) {
			s.refuse(orders, nack, 50*time.Minute)
			s.Confirmed(orders, true, s.now)
			s.refused(orders, nack)
			s.refuse(orders, nack, 50*time.Minute)
		}, orders, false},
		{"a new event was confirmed", time.Hour, func(s *pauseStory) {
			s.refuse(orders, nack, 50*time.Minute)
			s.Confirmed(orders, false, s.now)
			s.refuse(orders, nack, 50*time.Minute)
		}, orders, false},
		{"an operator's requests", time.Hour, func(s *pauseStory) {
			s.refuse(orders, nack, 50*time.Minute)
			s.Retry(orders, s.now)
			s.refuse(orders, nack, 11*time.Minute)
		}, orders, true},
		{"rejections at once", time.Hour, func(s *pauseStory) {
			for range 100 {
				s.refused(orders, nack)
			}
		}, orders, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tell(t, PausesConfig{MaxAge: c.maxAge})
			if c.name == "the whole exchange" {
				s.refused(orders, noExchange)
			} else {
				s.refused(orders, nack)
			}
			c.told(s)
			s.want("too old", s.TooOld(c.at, began), c.old)
			s.want("listed", len(s.OldTargets()) > 0, c.old || c.at != orders)
		})
	}
}

// A row that was deferred later waits as long as the others: it has not been refused before.
func TestAgeOfALaterRow(t *testing.T) {
	s := tell(t, PausesConfig{MaxAge: 7 * time.Hour})
	s.refused(orders, nack)
	s.refuse(orders, nack, 5*time.Hour)
	later := s.now
	s.refuse(orders, nack, 3*time.Hour)
	s.want("the first row is too old", s.TooOld(orders, began), true)
	s.want("the later one is too old", s.TooOld(orders, later), false)
	s.refuse(orders, nack, 4*time.Hour+10*time.Minute)
	s.want("the later one is too old", s.TooOld(orders, later), true)
}
