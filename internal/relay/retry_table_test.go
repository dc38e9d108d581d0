package relay

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// noRetryTable is for tests in which nothing is refused.
type noRetryTable struct{}

func (noRetryTable) Defer(events []*Deferred) { panic("deferred: " + string(events[0].Event.ID)) }
func (noRetryTable) Fed([]*Fed)               { panic("fed") }
func (noRetryTable) Known(context.Context, *event.Event) (bool, error) {
	return false, nil
}

// shelf is a retry table whose rows are written and fed when the test says so.
type shelf struct {
	mu      sync.Mutex
	known   map[event.Position]bool
	waiting []*Deferred // on the way to the table
	said    []string    // since the test last took them
}

func (s *shelf) Known(_ context.Context, ev *event.Event) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[ev.Position], nil
}

func (s *shelf) Defer(events []*Deferred) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, p := range events {
		name := string(p.Event.ID)
		if p.Dead {
			name += " (dead)"
		}
		if p.Attempts > 0 {
			name += " (an attempt)"
		}
		names = append(names, name)
	}
	s.waiting = append(s.waiting, events...)
	s.said = append(s.said, "defers "+strings.Join(names, ", "))
}

func (s *shelf) Fed(rows []*Fed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range rows {
		s.said = append(s.said, string(f.Event.ID)+" comes back "+f.Outcome.State.String())
	}
}

// take takes the first n of what is on the way to the table, all when n is 0.
func (s *shelf) take(n int) []*Deferred {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = cmp.Or(n, len(s.waiting))
	deferred := s.waiting[:n]
	s.waiting = slices.Clone(s.waiting[n:])
	return deferred
}

func (s *shelf) news() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	said := s.said
	s.said = nil
	return said
}

// copied is an event with bytes of its own.
func copied(ev *event.Event) event.Event {
	var it item
	it.fill(ev, make([]byte, ev.Size()), nil)
	return it.ev
}
