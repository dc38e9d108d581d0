// The last hour of a relay, kept in memory for the console: a point each ten seconds, and a
// timeline of what happened.

package ops

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// The bounds of a History.
const (
	PointEvery = 10 * time.Second
	maxPoints  = 360 // the points of an hour
	maxMarks   = 200
	maxMark    = 500 // bytes of a sentence
)

// series names the values of a Point, in their order.
var series = [...]string{
	"published_per_second", "latency_p50_seconds", "latency_p99_seconds", "lag_bytes", "lag_seconds",
	"deferred", "dead_letters", "in_flight", "retained_bytes", "limit_bytes",
}

// Point is some numbers of a Status. A value that is not known is nil.
type Point struct {
	At     int64 // Unix time, a multiple of PointEvery
	values [len(series)]*float64
}

// MarshalJSON implements json.Marshaler.
func (p *Point) MarshalJSON() ([]byte, error) {
	out := map[string]any{"at": p.At}
	for i, name := range series {
		out[name] = p.values[i]
	}
	return json.Marshal(out)
}

// Mark is an entry of the timeline: something that changed between two statuses.
type Mark struct {
	At time.Time `json:"at"`
	// start, leader, postgres, broker, reconnect, destination, finding
	Kind  string `json:"kind"`
	Level string `json:"level"` // ok, info, bad
	Text  string `json:"text"`  // a sentence, with the error texts of others
}

// The levels of marks.
const (
	good = "ok"
	info = "info"
	bad  = "bad"
)

// History keeps the points and marks of the last statuses. The zero value is ready. It is safe for
// concurrent use, and its size is bounded.
type History struct {
	mu     sync.Mutex
	points [maxPoints]Point
	taken  int // points taken since the start; the newest is at (taken-1) % maxPoints
	marks  []Mark
	last   *Status // the former status: marks are the changes since it
}

// Look takes a status, once a second, and returns what it adds: a point, or nil when none is due
// yet, and marks.
func (h *History) Look(s *Status) (*Point, []Mark) {
	h.mu.Lock()
	defer h.mu.Unlock()
	marks := marksOf(h.last, s)
	h.last = s
	if s.Role == RoleStandby {
		h.forget() // the leader carries out redacts, and does not tell
	}
	h.marks = append(h.marks, marks...)
	h.drop()
	at := s.Now.Truncate(PointEvery).Unix()
	if h.taken > 0 {
		switch ahead := h.points[(h.taken-1)%maxPoints].At - at; {
		case ahead > 60:
			h.taken = 0 // the clock was set back, and times must rise
		case ahead >= 0:
			return nil, marks
		}
	}
	point := &h.points[h.taken%maxPoints]
	*point = pointOf(s)
	point.At = at
	h.taken++
	taken := *point
	return &taken, marks
}

// drop keeps the marks few. The oldest of the most frequent kind goes: what flaps pushes nothing
// else out.
func (h *History) drop() {
	for len(h.marks) > maxMarks {
		count := map[string]int{}
		for _, m := range h.marks {
			count[m.Kind]++
		}
		oldest := slices.MaxFunc(h.marks, func(a, b Mark) int { return cmp.Compare(count[a.Kind], count[b.Kind]) })
		at := slices.IndexFunc(h.marks, func(m Mark) bool { return m.Kind == oldest.Kind })
		h.marks = slices.Delete(h.marks, at, at+1)
	}
}

// Forget takes the names of destinations, and what brokers said there, out of the timeline: the
// contents of an event were removed, and they may quote it.
func (h *History) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget()
}

func (h *History) forget() {
	for i := range h.marks {
		if m := &h.marks[i]; m.Kind == "destination" {
			m.Text = map[string]string{bad: "A destination is paused.", good: "A destination is no longer paused."}[m.Level]
		}
	}
}

// pointOf takes the values of a point from a status.
func pointOf(s *Status) (p Point) {
	var lag, retained, limit, deferred, dead *float64
	if s.Slot.IsFresh(s.Now) {
		lag, retained = new(float64(s.Slot.LagBytes)), new(float64(s.Slot.RetainedBytes))
		if s.Slot.SafeWALBytes != nil {
			limit = new(*retained + float64(*s.Slot.SafeWALBytes))
		}
	}
	if !s.Deferred.CountedAt.IsZero() {
		deferred, dead = new(float64(s.Deferred.Events)), new(float64(s.DeadLetters.Open))
	}
	p.values = [len(series)]*float64{
		new(s.Rates.PublishedPerSecond), s.Rates.LatencyP50Seconds, s.Rates.LatencyP99Seconds, lag, s.Slot.LagSeconds,
		deferred, dead, new(float64(s.InFlight.Events)), retained, limit,
	}
	return p
}

// MarshalJSON implements json.Marshaler: the points by columns, the oldest first, and the marks.
func (h *History) MarshalJSON() ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := min(h.taken, maxPoints)
	at, columns := make([]int64, n), map[string]any{}
	values := make([][]*float64, len(series))
	for s, name := range series {
		values[s] = make([]*float64, n)
		columns[name] = values[s]
	}
	columns["at"] = at
	for i := range n {
		p := &h.points[(h.taken-n+i)%maxPoints]
		at[i] = p.At
		for s := range series {
			values[s][i] = p.values[s]
		}
	}
	return json.Marshal(map[string]any{"every_seconds": int(PointEvery / time.Second), "points": columns, "marks": orEmpty(h.marks)})
}

// marksOf returns what changed between two statuses. was is nil for the first status.
func marksOf(was, is *Status) (marks []Mark) {
	mark := func(kind, level, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if len(text) > maxMark {
			text = strings.ToValidUTF8(text[:maxMark], "") + " …"
		}
		marks = append(marks, Mark{At: is.Now, Kind: kind, Level: level, Text: text})
	}
	if was == nil {
		mark("start", info, "The relay started, version %s.", is.Version)
		marks[0].At = is.StartedAt
		was = &Status{Broker: BrokerStatus{Up: true}, Totals: TotalsStatus{StreamReconnects: is.Totals.StreamReconnects, BrokerReconnects: is.Totals.BrokerReconnects}}
	}
	markRole(was, is, mark)
	switch {
	case was.Broker.Up && !is.Broker.Up:
		mark("broker", bad, "The broker is down: %s", is.Broker.Why)
	case !was.Broker.Up && is.Broker.Up && was.Broker.DownSince != nil:
		mark("broker", good, "The broker is up again after %s.", is.Now.Sub(*was.Broker.DownSince).Round(time.Second))
	case !was.Broker.Up && is.Broker.Up:
		mark("broker", good, "The broker is up.")
	case is.Totals.BrokerReconnects > was.Totals.BrokerReconnects:
		mark("reconnect", info, "A lost connection to the broker was replaced.")
	}
	markPaused(&was.Broker, &is.Broker, is.Role == RoleLeader, mark)
	return marks
}

// markRole marks a change of who leads, a wait for PostgreSQL, and a stop.
func markRole(was, is *Status, mark func(kind, level, format string, args ...any)) {
	before, now := "", ""
	if was.Leader != nil {
		before = was.Leader.Name
	}
	if is.Leader != nil {
		now = is.Leader.Name
	}
	switch {
	case is.State == StateStopped && (was.State != StateStopped || was.Finding != is.Finding):
		mark("finding", bad, "Relaying has stopped: %s", is.Why)
	case was.State == StateStopped && is.State != StateStopped:
		mark("finding", good, "An operator has decided: relaying begins again.")
	case is.State == StateWaiting && was.State != StateWaiting:
		mark("postgres", bad, "Waiting for PostgreSQL: %s", is.Why)
	case is.Role == RoleLeader && was.Role != RoleLeader:
		mark("leader", good, "This relay leads.")
	case is.Role == RoleStandby && (was.Role != RoleStandby || before != now):
		mark("leader", info, "This relay stands by: %s", is.Why)
	case is.State == StateStopping && was.State != StateStopping:
		mark("leader", info, "The relay is stopping.")
	case is.Totals.StreamReconnects > was.Totals.StreamReconnects:
		mark("reconnect", info, "The replication session was started again.")
	}
}

// markPaused marks the destinations that are paused now, and those that were. A relay that does not
// lead any more has forgotten them. A status names only the longest pauses: while there were
// others, one that comes into its list is not new.
func markPaused(was, is *BrokerStatus, leads bool, mark func(kind, level, format string, args ...any)) {
	more := func(b *BrokerStatus) bool { return b.PausedTotal > len(b.Paused) }
	if more(is) && !more(was) {
		mark("destination", bad, "More than %d destinations are paused: the newest are not named.", len(is.Paused))
	}
	lacks := func(list []Paused, destination string) bool {
		return !slices.ContainsFunc(list, func(p Paused) bool { return p.Destination == destination })
	}
	for _, p := range is.Paused {
		if !more(was) && lacks(was.Paused, p.Destination) {
			mark("destination", bad, "%s is paused (%s): %s", p.Destination, p.Reason, p.Error)
		}
	}
	for _, p := range was.Paused {
		if leads && lacks(is.Paused, p.Destination) {
			mark("destination", good, "%s is no longer paused.", p.Destination)
		}
	}
}
