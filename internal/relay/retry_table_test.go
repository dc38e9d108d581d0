package relay

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

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

// table is a retry table for the quickcheck: it writes rows and feeds them by itself, in the
// simplest way that is right.
type table struct {
	line *Line
	note func(ev *event.Event, format string, args ...any)

	mu      sync.Mutex
	rand    *rand.Rand
	queue   []*Deferred
	rows    map[uint64][]*tableRow // of each ordering group, in order
	dead    map[event.Position]bool
	written map[event.Position]bool
	loose   uint64 // the next ordering group of an event that is in no order
}

type tableRow struct {
	fed *Fed
	out bool // in a lane
	due time.Time
}

func newTable(seed uint64) *table {
	return &table{
		rand: rand.New(rand.NewPCG(seed, 99)), rows: map[uint64][]*tableRow{}, loose: 1 << 40,
		dead: map[event.Position]bool{}, written: map[event.Position]bool{},
	}
}

func (s *table) Known(context.Context, *event.Event) (bool, error) { return false, nil }

func (s *table) Defer(events []*Deferred) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, events...)
	for _, p := range events {
		s.note(p.Event, "is deferred, dead %t", p.Dead)
	}
}

// run writes and feeds until ctx is done.
func (s *table) run(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(s.rand.IntN(4)) * time.Millisecond) //nolint:forbidigo // the bubble's time, not ours
		s.write()
		time.Sleep(time.Millisecond) //nolint:forbidigo // likewise
		s.feed()
	}
}

// write commits some of the queue.
func (s *table) write() {
	s.mu.Lock()
	n := len(s.queue)
	if n > 0 {
		n = 1 + s.rand.IntN(n)
	}
	batch := s.queue[:n]
	s.queue = slices.Clone(s.queue[n:])
	for _, p := range batch {
		s.written[p.Event.Position] = true
		s.note(p.Event, "is written")
		if p.Dead {
			s.dead[p.Event.Position] = true
			continue
		}
		row := &tableRow{fed: &Fed{Event: copied(p.Event), Place: p.Place, Group: p.Group}}
		group := p.Group
		if group == 0 {
			s.loose++
			group = s.loose
		}
		s.rows[group] = append(s.rows[group], row)
	}
	s.mu.Unlock()
	if n > 0 {
		s.line.Settled(batch)
	}
}

// feed offers the first rows of some ordering groups.
func (s *table) feed() {
	s.mu.Lock()
	var offers []*Fed
	var stuck []*Fed
	for _, group := range slices.Sorted(maps.Keys(s.rows)) {
		rows := s.rows[group]
		if rows[0].out || rows[0].due.After(time.Now()) || s.rand.IntN(3) == 0 {
			continue
		}
		limit := 1 + s.rand.IntN(3)
		for i, row := range rows {
			if i == limit || s.line.Paused(row.fed.Place) && (i > 0 || s.rand.IntN(20) > 0) {
				break
			}
			row.out = true
			s.note(&row.fed.Event, "is offered")
			offers = append(offers, row.fed)
			if s.line.Paused(row.fed.Place) {
				break
			}
		}
		if !rows[0].out {
			stuck = append(stuck, rows[0].fed)
		}
	}
	s.mu.Unlock()
	s.line.Offer(offers)
	for _, f := range stuck {
		if f.Group != 0 {
			s.line.NotNow(f.Place.Lane, f.Group, f.Place.ExchangeOrTopic)
		}
	}
}

func (s *table) Fed(fed []*Fed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range fed {
		s.note(&f.Event, "comes back %s, %d left", f.Outcome.State, f.Left)
		for group, rows := range s.rows {
			i := slices.IndexFunc(rows, func(r *tableRow) bool { return r.fed == f })
			if i < 0 {
				continue
			}
			switch {
			case f.Outcome.Fault == nil && f.Outcome.State == 2: // confirmed
				if rows = slices.Delete(rows, i, i+1); len(rows) == 0 {
					delete(s.rows, group)
				} else {
					s.rows[group] = rows
				}
			default:
				rows[i].out = false
				rows[i].due = time.Now().Add(5 * time.Millisecond)
			}
			break
		}
	}
}

func (s *table) has(pos event.Position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written[pos]
}

// left is how many events are not delivered yet.
func (s *table) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.queue)
	for _, rows := range s.rows {
		n += len(rows)
	}
	return n
}

// copied is an event with bytes of its own.
func copied(ev *event.Event) event.Event {
	var it item
	it.fill(ev, make([]byte, ev.Size()), nil)
	return it.ev
}
