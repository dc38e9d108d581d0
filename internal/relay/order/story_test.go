// What happens in a story.

package order

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// TestStories tells what a machine does: a command is what happens to it, its output what it wants
// then. The first letter of an event is its key, u has none; the number is its position. As in a
// lane, what happens during a call reaches the machine with the call's answer.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := &story{t: t}
			datadriven.RunTest(t, path, s.command)
		})
	})
}

type story struct {
	t       *testing.T
	m       *Machine
	in      Input
	now     time.Time
	stop    bool
	guarded bool
	out     strings.Builder
	call    []*event.Event
	events  map[string]*inflight.Event // that were deferred, by id
	rows    map[string]*store.Row      // of these
	apart   map[string]*inflight.Event
	results []Result
}

func (s *story) command(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	switch d.Cmd {
	case "machine":
		s.machine(d)
		return ""
	case "events":
		s.arrive(d)
	case "answer":
		s.answer(d)
	case "probed":
		id := d.CmdArgs[0].Key
		s.in.Probed = append(s.in.Probed, Probed{s.apart[id], outcomes[strings.TrimSpace(d.Input)]})
	case "written":
		s.written(d)
	case "found":
		s.found(d)
	case "unsure":
		s.in.Found = append(s.in.Found, Found{ExchangeOrTopic: theExchange, Unsure: true, Repeated: event.Position{Commit: 100, Index: uint32(number(d, "repeated"))}})
	case "walk":
		s.in.Found = append(s.in.Found, Found{ExchangeOrTopic: theExchange, WalkBegins: d.HasArg("begins"), WalkEnds: d.HasArg("ends")})
	case "changed":
		s.in.Found = append(s.in.Found, Found{Group: groupOf(d.CmdArgs[0].Key), ExchangeOrTopic: theExchange, Changed: true})
	case "request", "replay":
		s.request(d)
	case "finished":
		s.in.Finished, s.results = append(s.in.Finished, s.results...), nil
	case "pass":
		dur, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(dur)
	case "stop":
		s.stop = true
	case "guard":
		s.guarded = d.HasArg("on")
	case "state":
		fmt.Fprintf(&s.out, "%d groups are known, %d have rows\n", len(s.m.groups), s.m.known.room.Waiting())
		return s.out.String()
	default:
		d.Fatalf(t, "unknown command")
	}
	if s.call != nil {
		return "the call is out\n"
	}
	s.step()
	return s.out.String()
}

func (s *story) machine(d *datadriven.TestData) {
	*s = story{t: s.t, now: time.Unix(1000, 0), events: map[string]*inflight.Event{}, rows: map[string]*store.Row{}, apart: map[string]*inflight.Event{}}
	room := number(d, "room")
	if room == 0 {
		room = 1000
	}
	s.m = New(Config{
		OneByOne: !d.HasArg("pipelined"), Apart: d.HasArg("apart"), Block: d.HasArg("block"), MaxAttempts: 3, Room: NewGroupRoom(room), Pauses: NewPauses(PausesConfig{MaxAge: 5 * time.Second}),
		Spin:     func(int) time.Duration { return 50 * time.Millisecond },
		Backoff:  func(attempt int) time.Duration { return time.Duration(attempt) * time.Second },
		Patience: func(time.Duration) time.Duration { return 4 * time.Second }, AfterStep: failOnFaults(),
	})
}

func number(d *datadriven.TestData, name string) (n int) {
	if a, ok := d.Arg(name); ok {
		fmt.Sscan(a.Vals[0], &n)
	}
	return n
}

func groupOf(id string) uint64 { return uint64(id[0]-'a') + 1 }

// event makes the event of an id: its number is its position.
func (s *story) event(id string, to string) *inflight.Event {
	var n uint32
	fmt.Sscan(id[1:], &n)
	e := &inflight.Event{Place: sink.Place{ExchangeOrTopic: theExchange, Dest: uint64(max(1, len(to)))}}
	if to != "" {
		e.Place.Dest = uint64(to[0])
	}
	ev := event.Event{ID: []byte(id), Position: event.Position{Commit: 100, Index: n}, Ordered: id[0] != 'u'}
	if ev.Ordered {
		e.Group = groupOf(id)
	}
	e.Event = ev
	return e
}

func (s *story) arrive(d *datadriven.TestData) {
	to := ""
	if a, ok := d.Arg("to"); ok {
		to = a.Vals[0]
	}
	for _, a := range d.CmdArgs {
		if a.Key == "to" || a.Key == "fault" || a.Key == "size" {
			continue
		}
		e := s.event(a.Key, to)
		ev := e.Event
		if d.HasArg("fault") {
			ev.Fault, ev.Ordered, e.Group = errors.New("the id is NULL"), false, 0
		}
		e.Fill(&ev, make([]byte, ev.Size()), commit)
		e.Size = max(ev.Size(), number(d, "size"))
		s.in.Arrived.Push(e)
	}
}

// outcomes are the broker's answers by their names; an event that is not named is confirmed.
var outcomes = map[string]sink.Outcome{
	"": {State: sink.Confirmed}, "confirmed": {State: sink.Confirmed}, "unsent": {State: sink.Unsent}, "unknown": {},
	"refused":     {State: sink.Rejected, Fault: &sink.Fault{Reason: sink.Unroutable}},
	"no exchange": {State: sink.Rejected, Fault: &sink.Fault{Reason: sink.NoExchange, Whole: true}},
	"not allowed": {State: sink.Rejected, Fault: &sink.Fault{Reason: sink.NotAllowed}},
	"transient":   {State: sink.Rejected, Fault: &sink.Fault{Class: sink.Transient, Reason: sink.BrokerException}},
	"permanent":   {State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}},
}

func (s *story) answer(d *datadriven.TestData) {
	said := map[string]string{}
	for line := range strings.Lines(d.Input) {
		id, what, _ := strings.Cut(strings.TrimSpace(line), ": ")
		said[id] = what
	}
	s.in.Outcomes = make([]sink.Outcome, len(s.call))
	for i, ev := range s.call {
		s.in.Outcomes[i] = outcomes[said[string(ev.ID)]]
		delete(said, string(ev.ID))
	}
	for id := range said {
		fmt.Fprintf(&s.out, "%s is not in the call\n", id)
	}
	if d.HasArg("err") {
		s.in.Err = errors.New("connection lost")
	}
	s.call = nil
}

func (s *story) written(d *datadriven.TestData) {
	for _, a := range d.CmdArgs {
		e := s.events[a.Key]
		if e == nil {
			d.Fatalf(s.t, "%s was not deferred", a.Key)
		}
		s.in.Written = append(s.in.Written, Written{RowGroup: s.rows[a.Key].Group, Position: e.Position, Ordered: e.Ordered, Place: e.Place, Dead: e.Dead, DueIn: e.DueIn})
	}
}

// row makes the row of an event; one that was not deferred here is an earlier leader's.
func (s *story) row(id string) *inflight.Event {
	e := s.events[id]
	if e == nil {
		e = s.event(id, "")
		s.note(e)
	}
	row := s.rows[id]
	return &inflight.Event{Event: row.Event, Place: e.Place, Group: e.Group, Size: e.Size, Row: row, Attempts: row.Attempts}
}

// note remembers an event as a row.
func (s *story) note(e *inflight.Event) {
	id := string(e.ID)
	group := e.Group
	if group == 0 {
		group = 1000 + uint64(e.Position.Index)
	}
	s.events[id] = e
	s.rows[id] = &store.Row{
		Incarnation: 1, Event: e.Event, Group: group, Ordered: e.Ordered, ExchangeOrTopic: theExchange, Dest: e.Place.Dest,
		Attempts: e.Attempts, DeferredAt: s.now,
	}
	if e.DueIn > 0 {
		s.rows[id].NextAttempt = s.now.Add(e.DueIn)
	}
}

func (s *story) found(d *datadriven.TestData) {
	f := Found{
		ExchangeOrTopic: theExchange, More: d.HasArg("more"), Blocked: d.HasArg("blocked"), Failed: d.HasArg("failed"), Walk: d.HasArg("walk"),
	}
	if f.Walk && !d.HasArg("early") {
		f.ReadAt = s.now.Add(1)
	}
	for _, a := range d.CmdArgs {
		if len(a.Key) == 1 { // a group of which no row was found
			f.Group = groupOf(a.Key)
		} else if a.Key[1] >= '0' && a.Key[1] <= '9' {
			f.Rows = append(f.Rows, s.row(a.Key))
			f.Group = s.rows[a.Key].Group
		}
	}
	if d.HasArg("none") { // of the row's group
		f.Rows = nil
	}
	s.in.Found = append(s.in.Found, f)
}

func (s *story) request(d *datadriven.TestData) {
	id := d.CmdArgs[0].Key
	e := s.row(id)
	q := &store.Request{Kind: store.Retry, Row: e.Row}
	if d.HasArg("discard") {
		q.Kind = store.Discard
	}
	if d.Cmd == "replay" {
		q.Kind, e.Request, e.State = store.Replay, q, sink.Unsent
		s.in.Found = append(s.in.Found, Found{Replay: e})
		return
	}
	s.in.Found = append(s.in.Found, Found{Group: e.Row.Group, ExchangeOrTopic: theExchange, Request: q})
}
