// What a story prints.

package order

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

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
	} else if !a.Wake.IsZero() && s.m.fails < 2 { // the wait after failures has a jitter
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
