// A line that remembers what it is told, and does what the test says.

package retry

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// digest of a name.
func digest(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// fakeSink knows where events belong: by their Route, or their type "exchange/key". The lane is the
// last digit of the key.
type fakeSink struct {
	mu      sync.Mutex
	unknown string // the exchange of which nothing is known now
}

func (*fakeSink) Route(ev *event.Event) event.Route {
	name, key, _ := strings.Cut(string(ev.Type), "/")
	return event.Route{Name: []byte(name), RoutingKey: []byte(key)}
}

func (s *fakeSink) Place(ev *event.Event) (sink.Place, bool) {
	to := s.Route(ev)
	if ev.Route != nil {
		to = *ev.Route
	}
	p := placeOf(string(to.Name) + "/" + string(to.RoutingKey))
	p.Lane = laneOf(string(ev.Key))
	s.mu.Lock()
	defer s.mu.Unlock()
	return p, s.unknown == "" || s.unknown != string(to.Name)
}

// Held is what an operator does about a missing exchange; y has none who must.
func (*fakeSink) Held(exchangeOrTopic uint64) string {
	if exchangeOrTopic == placeOf("y/").ExchangeOrTopic {
		return ""
	}
	return "bind"
}

func (s *fakeSink) forget(exchange string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unknown = exchange
}

func laneOf(key string) int {
	if key != "" {
		if last := key[len(key)-1]; last >= '0' && last <= '9' {
			return int(last - '0')
		}
	}
	return 0
}

// placeOf is the place of "exchange/key".
func placeOf(to string) sink.Place {
	name, _, _ := strings.Cut(to, "/")
	return sink.Place{ExchangeOrTopic: digest(name), Dest: digest(to)}
}

// fakeLine is the line. Its lanes ask for nothing and give nothing back by themselves.
type fakeLine struct {
	t      *testing.T
	table  *Table
	pauses *order.Pauses

	mu    sync.Mutex
	log   []string
	rows  map[string]*inflight.Event // what the lanes have, by id
	lanes map[string]int             // where that is
	most  int                        // rows that the lanes had at one time
	held  *store.Request             // the last request about a row
	// a lane gives back at once what a walk finds, as for a group that it knows; keep: it does not
	keep bool
}

func newFakeLine(cfg order.PausesConfig) *fakeLine {
	return &fakeLine{pauses: order.NewPauses(cfg), rows: map[string]*inflight.Event{}, lanes: map[string]int{}}
}

func (l *fakeLine) Pauses() *order.Pauses { return l.pauses }

func (l *fakeLine) Committed(events []*inflight.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		l.say("committed %s", e.ID)
		*e = inflight.Event{Event: event.Event{ID: []byte("reused")}} // as the budget does
	}
}

func (l *fakeLine) Found(lane int, found []order.Found) {
	l.mu.Lock()
	var back []order.Result
	for _, f := range found {
		l.say("%s", l.describe(&f))
		for _, e := range f.Rows {
			if f.Walk && !l.keep {
				back = append(back, order.Result{Event: e, Returned: true})
				continue
			}
			l.rows[string(e.ID)], l.lanes[string(e.ID)] = e, lane
		}
		if f.Replay != nil {
			l.rows[string(f.Replay.ID)], l.lanes[string(f.Replay.ID)] = f.Replay, lane
		}
		if f.Request != nil {
			l.held = f.Request
		}
	}
	l.most = max(l.most, len(l.rows))
	l.mu.Unlock()
	if len(back) > 0 {
		go l.table.Finish(back)
	}
}

// describe is what was found, in the words of the tests.
func (l *fakeLine) describe(f *order.Found) string {
	var s strings.Builder
	switch {
	case f.Unsure:
		return "unsure " + nameOf(f.ExchangeOrTopic)
	case f.WalkBegins:
		return "begins " + nameOf(f.ExchangeOrTopic)
	case f.WalkEnds:
		return "ends " + nameOf(f.ExchangeOrTopic)
	case f.Changed:
		return "changed " + nameOf(f.Group)
	case f.Request != nil:
		return fmt.Sprintf("asked to %s %s", f.Request.Kind, nameOf(f.Group))
	case f.Replay != nil:
		return fmt.Sprintf("replay %s to %s/%s", f.Replay.ID, f.Replay.Event.Route.Name, f.Replay.Event.Route.RoutingKey)
	case f.Walk:
		s.WriteString("walk ")
	default:
		s.WriteString("found ")
	}
	s.WriteString(nameOf(f.Group))
	for _, e := range f.Rows {
		fmt.Fprintf(&s, " %s", e.ID)
	}
	switch {
	case f.Blocked:
		s.WriteString(" blocked")
	case f.Failed:
		s.WriteString(" failed")
	case f.More:
		s.WriteString(" more")
	}
	return s.String()
}

func (l *fakeLine) Finished(_ int, results []order.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range results {
		if r.Request != nil {
			l.say("answered %s", r.Request.Kind)
			continue
		}
		l.say("finished %s", r.Event.ID)
	}
}

func (l *fakeLine) say(format string, args ...any) {
	l.log = append(l.log, fmt.Sprintf(format, args...))
}

// said takes what happened since the last call.
func (l *fakeLine) said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.log
	l.log = nil
	return strings.Join(log, "\n")
}

// was reports whether this has happened since the last call of said.
func (l *fakeLine) was(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.log, what)
}

// has is how many rows the lanes have.
func (l *fakeLine) has() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.rows)
}

// ids are those of the rows that the lanes have.
func (l *fakeLine) ids() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.rows {
		ids = append(ids, id)
	}
	return ids
}

// take takes a row from its lane.
func (l *fakeLine) take(id string) *inflight.Event {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.rows[id]
	if e == nil {
		l.t.Fatalf("no lane has %s", id)
	}
	delete(l.rows, id)
	return e
}

// finish gives rows back: "delivered", "backoff", "dead", or "returned", which writes nothing.
func (l *fakeLine) finish(what string, ids ...string) {
	l.t.Helper()
	for _, id := range ids {
		e := l.take(id)
		r := order.Result{Event: e, Returned: what == "returned", Request: e.Request}
		if !r.Returned && r.Request == nil {
			r.Result = store.Result{Row: e.Row, Kind: kinds[what]}
		}
		l.table.Finish([]order.Result{r})
	}
}

var kinds = map[string]store.ResultKind{"delivered": store.Delivered, "backoff": store.Backoff, "dead": store.Dead}

// outcome is the broker's answer to a replay.
func (l *fakeLine) outcome(id string, out sink.Outcome) {
	l.t.Helper()
	e := l.take(id)
	e.State, e.Refusal = out.State, out.Fault
	l.table.Finish([]order.Result{{Event: e, Request: e.Request}})
}

// rest has the group of the request that was held come to rest; returned: it does not now.
func (l *fakeLine) rest(returned bool) {
	l.mu.Lock()
	q := l.held
	l.held = nil
	l.mu.Unlock()
	l.table.Finish([]order.Result{{Request: q, Returned: returned}})
}

// names of digests, for the log.
var names sync.Map

func nameOf(digest uint64) string {
	if n, ok := names.Load(digest); ok {
		return n.(string)
	}
	return fmt.Sprint(digest)
}

// The faults of the tests.
var (
	itsRoute    = &sink.Fault{Class: sink.Destination, Reason: sink.Unroutable, Text: "NO_ROUTE", Destination: "there"}
	itsExchange = &sink.Fault{Class: sink.Destination, Reason: sink.NoExchange, Text: "NOT_FOUND", Destination: "there", Whole: true}
	transient   = &sink.Fault{Class: sink.Transient, Reason: sink.BrokerException, Text: "541"}
	permanent   = &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge, Text: "too large"}
)

func rejected(f *sink.Fault) sink.Outcome { return sink.Outcome{State: sink.Rejected, Fault: f} }
