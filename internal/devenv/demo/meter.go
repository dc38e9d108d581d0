// The meter: rates, counts and latencies of the last seconds.

package main

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
)

// meter measures from just before COMMIT is sent to the event's first arrival at the consumer. It
// learns of both ends in any order. Events committed during an outage, which lasts until everything
// is caught up, are counted apart: their latency is the outage's length, not the relay's work.
type meter struct {
	mu     sync.Mutex
	events map[string]*span
	recent *hdrhistogram.WindowedHistogram
	up     *hdrhistogram.Histogram // committed while the broker was up, µs

	outages []*absence
}

// absence is a time in which some events, or all, could not be delivered.
type absence struct {
	away, caughtUp int64                   // Unix nanoseconds; 0: not yet
	events         *hdrhistogram.Histogram // committed in it, µs
}

// span has the times at which an event was committed and arrived, Unix nanoseconds; 0: not known
// yet.
type span struct{ committed, arrived int64 }

const recentWindows = 4 // of half a second each

const longest, digits = int64(10 * time.Minute / time.Microsecond), 2

// newMeter makes a meter that has measured nothing.
func newMeter() *meter {
	return &meter{
		events: map[string]*span{},
		recent: hdrhistogram.NewWindowed(recentWindows, 1, longest, digits),
		up:     hdrhistogram.New(1, longest, digits),
	}
}

// commit takes the rows of a transaction whose COMMIT was sent at the time and has succeeded.
func (m *meter) commit(rows []checker.Row, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, row := range rows {
		s := m.span(row.ID)
		s.committed = at.UnixNano()
		m.measure(s)
	}
}

// arrive takes what the consumer has received. Only the first arrival of an event counts.
func (m *meter) arrive(deliveries []checker.Delivery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range deliveries {
		if s := m.span(d.ID); s.arrived == 0 {
			s.arrived = d.At
			m.measure(s)
		}
	}
}

func (m *meter) span(id string) *span {
	s := m.events[id]
	if s == nil {
		s = &span{}
		m.events[id] = s
	}
	return s
}

// measure records an event of which both ends are known; m.mu is locked.
func (m *meter) measure(s *span) {
	if s.committed == 0 || s.arrived == 0 {
		return
	}
	h := m.up
	for _, o := range m.outages {
		if s.committed >= o.away && (o.caughtUp == 0 || s.committed <= o.caughtUp) {
			h = o.events
		}
	}
	took := min(max(1, (s.arrived-s.committed)/int64(time.Microsecond)), h.HighestTrackableValue())
	h.RecordValue(took)                //nolint:errcheck // it is within the bounds
	m.recent.Current.RecordValue(took) //nolint:errcheck // which are the same
}

// goAway begins an outage and returns which of total's it is; comeBack ends it.
func (m *meter) goAway(at time.Time) (outage int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outages = append(m.outages, &absence{away: at.UnixNano(), events: hdrhistogram.New(1, longest, digits)})
	return len(m.outages) - 1
}

// comeBack ends the last outage: at that time everything was caught up. One must have begun.
func (m *meter) comeBack(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outages[len(m.outages)-1].caughtUp = at.UnixNano()
}

// waiting returns how many events that were committed before that time have not arrived.
func (m *meter) waiting(before time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, s := range m.events {
		if s.arrived == 0 && s.committed < before.UnixNano() {
			n++
		}
	}
	return n
}

// latency is what is known of many events.
type latency struct {
	count         int64
	p50, p99, max time.Duration
}

func summarize(h *hdrhistogram.Histogram) latency {
	at := func(q float64) time.Duration { return time.Duration(h.ValueAtQuantile(q)) * time.Microsecond }
	return latency{h.TotalCount(), at(50), at(99), time.Duration(h.Max()) * time.Microsecond}
}

// last returns the latency of the events that arrived in the last two seconds.
func (m *meter) last() latency {
	m.mu.Lock()
	defer m.mu.Unlock()
	return summarize(m.recent.Merge())
}

// rotate begins a new half second of what last returns.
func (m *meter) rotate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recent.Rotate()
}

// total is everything so far: committed with the broker up, and committed during each of the
// outages.
func (m *meter) total() (up latency, outages []latency) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.outages {
		outages = append(outages, summarize(o.events))
	}
	return summarize(m.up), outages
}
