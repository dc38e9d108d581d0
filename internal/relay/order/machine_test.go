package order

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A few groups that cannot be forgotten, because the database refuses their results, do not keep
// all later ones in memory (I5).
func TestGroupsThatStayDoNotKeepTheOthers(t *testing.T) {
	const stay, pass = 100, 1000
	place := sink.Place{ExchangeOrTopic: theExchange, Dest: 1}
	m := New(Config{
		OneByOne: true, MaxAttempts: 3, Room: NewGroupRoom(1), Pauses: NewPauses(PausesConfig{}),
		Spin:     func(int) time.Duration { return 50 * time.Millisecond },
		Backoff:  func(int) time.Duration { return time.Second },
		Patience: func(time.Duration) time.Duration { return time.Second }, AfterStep: failOnFaults(),
	})
	in := &Input{Now: time.Unix(1000, 0)}
	for id := range uint64(stay) {
		ev := event.Event{Position: event.Position{Commit: 100, Index: uint32(id)}, Ordered: true}
		row := &inflight.Event{Event: ev, Place: place, Group: id + 1, Row: &store.Row{Group: id + 1, Event: ev, Ordered: true}}
		in.Found = append(in.Found, Found{Group: id + 1, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{row}, Walk: true})
	}
	in.Outcomes = make([]sink.Outcome, len(m.Step(in).Send))
	for i := range in.Outcomes {
		in.Outcomes[i].State = sink.Confirmed
	}
	in.Found = nil
	m.Step(in) // the results are never committed
	in.Outcomes = nil
	for id := range uint64(pass) {
		in.Written = append(in.Written[:0], Written{RowGroup: stay + 1 + id, Place: place, DueIn: time.Hour})
		m.Step(in)
	}
	if n := len(m.groups); n > stay+2 {
		t.Errorf("%d groups are known: %d stay, there is room for 1", n, stay)
	}
}

// Suspects go one after another, however many there were.
func TestSuspectsGiveTheirPlacesBack(t *testing.T) {
	m := newTestMachine(Config{OneByOne: true, Apart: true})
	in := Input{Now: time.Unix(1000, 0)}
	for g := range uint64(maxApart + 1) {
		row := newTestRow(g+1, uint32(g), 1)
		row.Row.Attempts = 1
		in.Found = []Found{{Group: g + 1, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{row}, Walk: true}}
		a := m.Step(&in)
		if len(a.Probe) != 1 {
			t.Fatalf("suspect %d is not sent", g)
		}
		in = Input{Now: in.Now, Probed: []Probed{{Event: row, Outcome: sink.Outcome{State: sink.Confirmed}}}}
		m.Step(&in)
		in = Input{Now: in.Now}
	}
}

// step prints what the machine wants.
func (s *story) step() {
	s.in.Now, s.in.Stopping, s.in.Guarded = s.now, s.stop, s.guarded
	a := s.m.Step(&s.in)
	s.in = Input{}
	s.list("confirmed", a.Confirmed)
	s.list("delivered", a.Delivered)
	for _, r := range a.Rejected {
		fmt.Fprintf(&s.out, "%s is rejected (%s), attempt %d\n", r.Event.ID, r.Fault.Reason, r.Attempt)
	}
	if a.NoRow > 0 {
		fmt.Fprintf(&s.out, "no row is written of %d\n", a.NoRow)
	}
	s.list("defers", a.Defer)
	for _, e := range a.Defer {
		s.note(e)
	}
	for _, r := range a.Finish {
		s.finish(r)
	}
	for _, w := range a.Read {
		fmt.Fprintf(&s.out, "reads %s behind %d", groupName(w.Group), w.After.Position.Index)
		if w.Probe {
			s.out.WriteString(", a probe")
		}
		s.out.WriteByte('\n')
	}
	for _, p := range a.Probe {
		s.apart[string(p.Event.ID)] = p.Event
		fmt.Fprintf(&s.out, "sends %s apart\n", p.Event.ID)
	}
	for range a.Walk {
		s.out.WriteString("wants a walk\n")
	}
	if a.Ended {
		s.out.WriteString("a pause ended\n")
	}
	if len(a.Send) > 0 {
		s.call = append(s.call, a.Send...)
		s.out.WriteString("sends")
		for _, ev := range a.Send {
			fmt.Fprintf(&s.out, " %s", ev.ID)
		}
		s.out.WriteByte('\n')
	} else if !a.Wake.IsZero() && s.m.failedCalls < 2 { // the wait after failures has a jitter
		fmt.Fprintf(&s.out, "wakes in %s\n", a.Wake.Sub(s.now))
	}
}

func groupName(id uint64) string {
	if id > 1000 {
		return fmt.Sprintf("the row u%d", id-1000)
	}
	return string(rune('a' + id - 1))
}

func (s *story) list(what string, events []*inflight.Event) {
	if len(events) == 0 {
		return
	}
	s.out.WriteString(what)
	for _, e := range events {
		fmt.Fprintf(&s.out, " %s", e.ID)
		if e.Dead {
			s.out.WriteString(" (dead)")
		}
		if e.Attempts > 0 && e.Row == nil {
			fmt.Fprintf(&s.out, " (attempt %d, due in %s)", e.Attempts, e.DueIn)
		}
	}
	s.out.WriteByte('\n')
}

func (s *story) finish(r Result) {
	switch {
	case r.Request != nil && r.Returned:
		fmt.Fprintf(&s.out, "returns the request about %s\n", r.Request.Row.Event.ID)
	case r.Request != nil && r.Event != nil:
		fmt.Fprintf(&s.out, "the replay of %s is %s\n", r.Event.ID, r.Event.State)
	case r.Request != nil:
		fmt.Fprintf(&s.out, "the request about %s may be carried out\n", r.Request.Row.Event.ID)
		s.results = append(s.results, r)
	case r.Returned:
		fmt.Fprintf(&s.out, "returns %s\n", r.Event.ID)
	default:
		row := s.rows[string(r.Event.ID)]
		switch row.Attempts = r.Attempts; r.Kind {
		case store.Backoff:
			fmt.Fprintf(&s.out, "%s backs off for %s\n", r.Event.ID, r.After)
			row.NextAttempt = s.now.Add(r.After)
		case store.Dead:
			fmt.Fprintf(&s.out, "%s dies\n", r.Event.ID)
		default:
			fmt.Fprintf(&s.out, "%s leaves the table\n", r.Event.ID)
		}
		s.results = append(s.results, r)
	}
}
