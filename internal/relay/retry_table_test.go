package relay

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
)

// noRetryTable is for tests in which nothing is refused.
type noRetryTable struct{}

func (noRetryTable) Defer(events []*inflight.Event)   { panic("deferred: " + string(events[0].ID)) }
func (noRetryTable) Read(int, []order.Want, []uint64) { panic("read") }
func (noRetryTable) Finish([]order.Result)            { panic("finished") }
func (noRetryTable) Known(context.Context, *event.Event) (bool, error) {
	return false, nil
}

// shelf is a retry table whose rows are written when the test says so, and never read.
type shelf struct {
	mu      sync.Mutex
	known   map[event.Position]bool
	waiting []*inflight.Event // on the way to the table
	said    []string          // since the test last took them
}

func (s *shelf) Known(_ context.Context, ev *event.Event) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[ev.Position], nil
}

func (s *shelf) Defer(events []*inflight.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, e := range events {
		name := string(e.ID)
		if e.Dead {
			name += " (dead)"
		}
		names = append(names, name)
	}
	s.waiting = append(s.waiting, events...)
	s.said = append(s.said, "defers "+strings.Join(names, ", "))
}

func (s *shelf) Read(_ int, wants []order.Want, _ []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range wants {
		s.said = append(s.said, "reads")
	}
}

func (s *shelf) Finish(results []order.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range results {
		s.said = append(s.said, string(r.Event.ID)+" comes back "+r.Event.State.String())
	}
}

// take takes the first n of what is on the way to the table, all when n is 0.
func (s *shelf) take(n int) []*inflight.Event {
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
