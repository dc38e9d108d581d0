package pauses

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

const day = 24 * time.Hour

// destination_max_age counts continuous refusal of the destination: since its last confirm, and
// while the row waits. Time in which nobody asks or answers does not count.
func TestAge(t *testing.T) {
	for _, c := range []struct {
		name   string
		maxAge time.Duration
		told   func(s *story)
		at     sink.Place
		old    bool
	}{
		{"refused for less", 7 * time.Hour, func(s *story) { s.refuse(orders, nack, 7*time.Hour-3*time.Minute) }, orders, false},
		{"refused for longer", 7 * time.Hour, func(s *story) { s.refuse(orders, unroutable, 7*time.Hour+time.Minute) }, orders, true},
		{"no limit", 0, func(s *story) { s.refuse(orders, unroutable, day) }, orders, false},
		{"another destination", time.Hour, func(s *story) { s.refuse(orders, nack, 2*time.Hour) }, invoices, false},
		{"the whole exchange", time.Hour, func(s *story) { s.refuse(orders, noExchange, 2*time.Hour) }, invoices, true},
		{"a probe without an answer", time.Hour, func(s *story) { s.probes(orders, nack, 7*day) }, orders, false},
		{"no probe could go", time.Hour, func(s *story) {
			s.after(7 * day)
			s.probes(orders, nack, 0)
		}, orders, false},
		{"a probe that was not sent after long", time.Hour, func(s *story) {
			s.take(dest(orders))
			s.ProbeDone(dest(orders), sink.Outcome{State: sink.Unsent}, s.after(7*day).now)
			s.probes(orders, nack, 0)
		}, orders, false},
		{"outages in between", time.Hour, func(s *story) {
			s.refuse(orders, nack, 50*time.Minute)
			s.probes(orders, nack, 7*day)
			s.refuse(orders, nack, 11*time.Minute)
		}, orders, true},
		{"a row was confirmed", time.Hour, func(s *story) {
			s.refuse(orders, nack, 50*time.Minute)
			s.Confirmed(orders, true, s.now)
			s.refused(orders, nack)
			s.refuse(orders, nack, 50*time.Minute)
		}, orders, false},
		{"a new event was confirmed", time.Hour, func(s *story) {
			s.refuse(orders, nack, 50*time.Minute)
			s.Confirmed(orders, false, s.now)
			s.refuse(orders, nack, 50*time.Minute)
		}, orders, false},
		{"an operator's requests", time.Hour, func(s *story) {
			s.refuse(orders, nack, 50*time.Minute)
			s.Retry(orders, s.now)
			s.refuse(orders, nack, 11*time.Minute)
		}, orders, true},
		{"rejections at once", time.Hour, func(s *story) {
			for range 100 {
				s.refused(orders, nack)
			}
		}, orders, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tell(t, Config{MaxAge: c.maxAge})
			if c.name == "the whole exchange" {
				s.refused(orders, noExchange)
			} else {
				s.refused(orders, nack)
			}
			c.told(s)
			s.want("too old", s.TooOld(c.at, began), c.old)
			s.want("listed", len(s.Old()) > 0, c.old || c.at != orders)
		})
	}
}

// A row that was deferred later waits as long as the others: it has not been refused before.
func TestAgeOfALaterRow(t *testing.T) {
	s := tell(t, Config{MaxAge: 7 * time.Hour})
	s.refused(orders, nack)
	s.refuse(orders, nack, 5*time.Hour)
	later := s.now
	s.refuse(orders, nack, 3*time.Hour)
	s.want("the first row is too old", s.TooOld(orders, began), true)
	s.want("the later one is too old", s.TooOld(orders, later), false)
	s.refuse(orders, nack, 4*time.Hour+10*time.Minute)
	s.want("the later one is too old", s.TooOld(orders, later), true)
}
