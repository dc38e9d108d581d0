// What would stand still, or grow, for ever.

package order

import (
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

func newTestMachine(c Config) *Machine {
	c.MaxAttempts = 3
	if c.Room == nil {
		c.Room = NewGroupRoom(100000)
	}
	if c.Pauses == nil {
		c.Pauses = NewPauses(PausesConfig{})
	}
	c.Backoff = func(int) time.Duration { return time.Second }
	c.Patience = func(time.Duration) time.Duration { return time.Second }
	c.AfterStep = failOnFaults()
	return New(c)
}

func newTestRow(group uint64, n uint32, dest uint64) *inflight.Event {
	ev := event.Event{ID: []byte{byte(n)}, Position: event.Position{Commit: 100, Index: n}, Ordered: true}
	return &inflight.Event{Event: ev, Place: sink.Place{ExchangeOrTopic: theExchange, Dest: dest}, Group: group, Row: &store.Row{Incarnation: 1, N: int64(n), Group: group, Event: ev, Ordered: true}}
}

// A dead letter blocks its group; it is discarded before the lane hears of its own result.
func TestChangedAndFinishedTogether(t *testing.T) {
	m := newTestMachine(Config{OneByOne: true, Block: true})
	now := time.Unix(1000, 0)
	a := m.Step(&Input{Now: now, Found: []Found{{Group: 1, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{newTestRow(1, 1, 1)}, Walk: true}}})
	if len(a.Send) != 1 {
		t.Fatal("not sent")
	}
	a = m.Step(&Input{Now: now, Outcomes: []sink.Outcome{{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}}}})
	if len(a.Finish) != 1 || a.Finish[0].Kind != store.Dead {
		t.Fatalf("%+v", a.Finish)
	}
	dead := a.Finish
	// while the lane is in a call: it becomes a dead letter, an operator discards it, the feeder
	// tells
	a = m.Step(&Input{Now: now, Finished: dead, Found: []Found{{Group: 1, ExchangeOrTopic: theExchange, Changed: true}}})
	if g := m.groups[1]; g != nil && g.rows == blocked && len(a.Read) == 0 {
		t.Errorf("the group is blocked for ever: nothing blocks it in the table, reads %v, wake %v", a.Read, a.Wake)
	}
}

// the row in front of rows that cannot be read never dies and never backs off.
func TestRejectedWhileBehindCannotBeRead(t *testing.T) {
	for _, f := range []Found{{Failed: true, More: true}, {More: true}} {
		m := newTestMachine(Config{OneByOne: true})
		now := time.Unix(1000, 0)
		f.Group, f.ExchangeOrTopic = 1, theExchange
		m.Step(&Input{Now: now, Found: []Found{{Group: 1, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{newTestRow(1, 1, 1)}, More: true, Walk: true}}})
		if !m.groups[1].readIsOut() {
			t.Fatal("not read ahead")
		}
		a := m.Step(&Input{
			Now: now, Outcomes: []sink.Outcome{{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}}},
		})
		_ = a
		// the answer of the read ahead comes first
		m = newTestMachine(Config{OneByOne: true, Apart: true})
		row := newTestRow(1, 1, 1)
		row.Row.Attempts = 1
		a = m.Step(&Input{Now: now, Found: []Found{{Group: 1, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{row}, More: true, Walk: true}}})
		if len(a.Probe) != 1 || len(a.Read) != 1 {
			t.Fatalf("%+v", a)
		}
		m.Step(&Input{Now: now, Found: []Found{f}})
		a = m.Step(&Input{Now: now, Probed: []Probed{{row, sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}}}}})
		if len(a.Finish) != 1 || a.Finish[0].Returned || a.Finish[0].Kind != store.Dead {
			t.Errorf("failed %t: the event that the broker will never accept is given back, nothing is counted: %+v", f.Failed, a.Finish)
		}
	}
}

// A probe is given to a group that cannot be read now (the database refuses a result of it): the
// target is not probed by any other group, and stays paused.
func TestProbeOfAGroupThatCannotBeRead(t *testing.T) {
	p := NewPauses(PausesConfig{})
	m := newTestMachine(Config{Pauses: p})
	now := time.Unix(1000, 0)
	a := m.Step(&Input{Now: now, Found: []Found{
		{Group: 1, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{newTestRow(1, 1, 1), newTestRow(1, 2, 2)}, Walk: true},
		{Group: 2, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{newTestRow(2, 3, 2)}, Walk: true},
	}})
	send := slices.Clone(a.Send)
	if len(send) != 3 {
		t.Fatal(len(a.Send))
	}
	refused := sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Destination, Reason: sink.Unroutable}}
	out := make([]sink.Outcome, 3)
	for i, ev := range send {
		if out[i] = refused; ev.Position.Index == 1 {
			out[i] = sink.Outcome{State: sink.Confirmed}
		}
	}
	// what was read ahead
	m.Step(&Input{Now: now, Found: []Found{{Group: 1, ExchangeOrTopic: theExchange}, {Group: 2, ExchangeOrTopic: theExchange}}})
	// the result of row 1 is refused by the database, again and again
	m.Step(&Input{Now: now, Outcomes: out})
	for range 100 {
		now = now.Add(time.Second)
		a = m.Step(&Input{Now: now})
		for _, w := range a.Read {
			t.Logf("group %d is read", w.Group)
			if w.Group == 2 {
				return
			}
		}
	}
	t.Error("destination 2 is never probed with the row of group 2")
}

// groups that wait for a time and are forgotten leave their entry in due.
func TestDueGrows(t *testing.T) {
	m := newTestMachine(Config{OneByOne: true, Room: NewGroupRoom(10)})
	now := time.Unix(1000, 0)
	for i := range uint32(100000) {
		row := newTestRow(1+uint64(i%1000), i%1000, 1)
		row.Row.NextAttempt = now.Add(time.Hour)
		m.Step(&Input{Now: now, Found: []Found{{Group: row.Group, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{row}, Walk: true}}})
	}
	if len(m.due) > 2000 {
		t.Errorf("%d groups are known, %d times are kept", len(m.groups), len(m.due))
	}
}

// each walk that finds the resting groups of a target once more adds them to its order.
func TestRestingGrows(t *testing.T) {
	p := NewPauses(PausesConfig{})
	m := newTestMachine(Config{OneByOne: true, Pauses: p})
	now := time.Unix(1000, 0)
	p.Refused(sink.Place{ExchangeOrTopic: theExchange, Dest: 1}, &sink.Fault{Class: sink.Destination, Reason: sink.Unroutable}, now)
	for range 1000 { // 10 s each: less than three hours
		for g := range uint64(500) {
			m.Step(&Input{Now: now, Found: []Found{{Group: g + 1, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{newTestRow(g+1, uint32(g), 1)}, Walk: true}}})
		}
	}
	for tgt, r := range m.resting {
		if len(r.order) > 2000 {
			t.Errorf("target %v: %d groups rest, order has %d", tgt, r.groups, len(r.order))
		}
	}
}

// Each look at the probes costs by the number of paused targets, so of 10,000 there are few looks.
func TestProbesOfManyTargets(t *testing.T) {
	seed := uint64(1)
	p := NewPauses(PausesConfig{Jitter: func(d time.Duration) time.Duration {
		seed = seed*6364136223846793005 + 1442695040888963407
		return time.Duration(seed>>1) % (d + 1)
	}})
	m := newTestMachine(Config{OneByOne: true, Pauses: p})
	now := time.Unix(1000, 0)
	refused := &sink.Fault{Class: sink.Destination, Reason: sink.Unroutable}
	const n = 10000
	for i := range uint64(n) {
		p.Refused(sink.Place{ExchangeOrTopic: theExchange, Dest: i + 1}, refused, now)
		m.Step(&Input{Now: now, Found: []Found{{Group: i + 1, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{newTestRow(i+1, uint32(i), i+1)}, Walk: true}}})
	}
	if len(m.resting) != n {
		t.Fatal(len(m.resting))
	}
	began := now
	steps, probes := 0, 0
	var in Input
	for now.Sub(began) < 60*time.Second {
		in.Now = now
		a := m.Step(&in)
		in = Input{}
		steps++
		for _, w := range a.Read {
			in.Found = append(in.Found, Found{Group: w.Group, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{newTestRow(w.Group, uint32(w.Group-1), w.Group)}})
		}
		if len(a.Send) > 0 {
			probes += len(a.Send)
			in.Outcomes = make([]sink.Outcome, len(a.Send))
			for i := range in.Outcomes {
				in.Outcomes[i] = sink.Outcome{State: sink.Rejected, Fault: refused}
			}
		}
		if in.Outcomes == nil && in.Found == nil {
			now = a.Wake
			if !now.After(in.Now) && now.IsZero() {
				t.Fatal("sleeps for ever")
			}
		} else {
			now = now.Add(time.Millisecond)
		}
	}
	// a look a second, and two steps for what it finds; a hundred probes a second
	if steps > 60*3 || probes < 80*60 || probes > 101*60 {
		t.Errorf("%d steps and %d probes in a minute", steps, probes)
	}
}

// Suspects wait for the few private connections; the probe of another destination does not wait
// with them.
func TestSuspectsKeepProbesOut(t *testing.T) {
	p := NewPauses(PausesConfig{})
	m := newTestMachine(Config{OneByOne: true, Apart: true, Pauses: p})
	now := time.Unix(1000, 0)
	p.Refused(sink.Place{ExchangeOrTopic: theExchange, Dest: 2}, &sink.Fault{Class: sink.Destination, Reason: sink.Unroutable}, now)
	var in Input
	in.Now = now
	for i := range uint64(150) {
		row := newTestRow(i+1, uint32(i), 1)
		row.Row.Attempts = 1
		in.Found = append(in.Found, Found{Group: i + 1, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{row}, Walk: true})
	}
	in.Found = append(in.Found, Found{Group: 1000, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{newTestRow(1000, 1000, 2)}, Walk: true})
	a := m.Step(&in)
	if len(a.Probe) != maxApart {
		t.Fatal(len(a.Probe))
	}
	for range 100 {
		now = now.Add(time.Second)
		a = m.Step(&Input{Now: now})
		in = Input{Now: now}
		for _, w := range a.Read {
			if w.Group == 1000 {
				in.Found = append(in.Found, Found{Group: 1000, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{newTestRow(1000, 1000, 2)}})
			}
		}
		for _, pr := range append(slices.Clone(a.Probe), m.Step(&in).Probe...) {
			if pr.Event.Row.Group == 1000 {
				return
			}
		}
	}
	t.Error("destination 2 is not probed, and no other lane may probe it")
}

// Three events of a group come for each that goes to the broker, as far as the in-flight budget has
// room, and each row is committed at once: a read never sees the end while it is asked for. The
// group must reach direct delivery all the same, after a third more than its first rows at most.
func TestBusyGroupLeavesTheTable(t *testing.T) {
	const before, budget = 100, 50
	for _, oneByOne := range []bool{true, false} {
		m := newTestMachine(Config{OneByOne: oneByOne})
		in := Input{Now: time.Unix(1000, 0)}
		var table []*inflight.Event
		next, rows, waiting, direct := uint32(0), 0, 0, 0
		addRow := func(n uint32) { table = append(table, newTestRow(1, n, 1)) }
		for ; next < before; next++ {
			addRow(next)
		}
		in.Found = []Found{{Group: 1, ExchangeOrTopic: theExchange, Rows: slices.Clone(table[:10]), More: true, Walk: true}}
		for rounds := 0; direct == 0; rounds++ {
			if rounds == 10*before {
				t.Fatalf("one by one %t: %d rows were delivered, %d are in the table, %d events wait", oneByOne, rows, len(table), waiting)
			}
			for range 3 {
				if waiting == budget {
					break
				}
				ev := event.Event{ID: []byte{byte(next)}, Position: event.Position{Commit: 100, Index: next}, Ordered: true}
				e := &inflight.Event{Group: 1, Place: sink.Place{ExchangeOrTopic: theExchange, Dest: 1}}
				e.Fill(&ev, make([]byte, ev.Size()), commit)
				in.Arrived.Push(e)
				next++
				waiting++
			}
			a := m.Step(&in)
			in = Input{Now: in.Now.Add(time.Millisecond)}
			if n := min(1, len(a.Send)); n > 0 {
				in.Outcomes = make([]sink.Outcome, len(a.Send))
				in.Outcomes[0].State = sink.Confirmed
				for i := range in.Outcomes[n:] {
					in.Outcomes[n+i].State = sink.Unsent
				}
			}
			rows += len(a.Delivered)
			direct += len(a.Confirmed)
			for _, r := range a.Finish {
				if !r.Returned {
					table = slices.DeleteFunc(table, func(e *inflight.Event) bool { return e.Position == r.Event.Position })
					in.Finished = append(in.Finished, r)
				}
			}
			for _, w := range a.Read { // as it was before what is deferred now
				f := Found{Group: 1, ExchangeOrTopic: theExchange}
				for _, e := range table {
					if w.After.Position.Less(e.Position) || w.After.Incarnation == 0 {
						f.More = len(f.Rows) == 10
						if f.More {
							break
						}
						f.Rows = append(f.Rows, e)
					}
				}
				in.Found = append(in.Found, f)
			}
			for _, e := range a.Defer {
				waiting--
				addRow(e.Position.Index)
				in.Written = append(in.Written, Written{RowGroup: 1, Position: e.Position, Ordered: true, Place: e.Place})
			}
		}
		if most := before * rowsForOne / (rowsForOne - 1); rows > most {
			t.Errorf("one by one %t: %d rows were delivered, want %d at most", oneByOne, rows, most)
		}
	}
}

// arriving is a new event of a group.
func arriving(group uint64, n uint32) *inflight.Event {
	ev := event.Event{ID: []byte{byte(n)}, Position: event.Position{Commit: 200, Index: n}, Ordered: true}
	e := &inflight.Event{Group: group, Place: sink.Place{ExchangeOrTopic: theExchange, Dest: 1}}
	e.Fill(&ev, make([]byte, ev.Size()), commit)
	return e
}

// New events wait behind rows that go. They do not for long while none goes: the reader would wait
// with them.
func TestNothingWaitsBehindRowsThatStandStill(t *testing.T) {
	const suspects = maxApart + 1
	for _, c := range []struct {
		name  string
		group uint64
		more  bool
		rows  []*inflight.Event
	}{
		{"a read that is not answered", 1, true, []*inflight.Event{newTestRow(1, 0, 1)}},
		{"a row that waits for its turn to be sent apart", suspects, false, func() (rows []*inflight.Event) {
			for i := range uint64(suspects) {
				row := newTestRow(i+1, uint32(i), 1)
				row.Row.Attempts = 1
				rows = append(rows, row)
			}
			return rows
		}()},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newTestMachine(Config{OneByOne: true, Apart: true})
			in := Input{Now: time.Unix(1000, 0)}
			for _, row := range c.rows {
				in.Found = append(in.Found, Found{Group: row.Group, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{row}, More: c.more, Walk: true})
			}
			outcomes := make([]sink.Outcome, len(m.Step(&in).Send))
			for i := range outcomes {
				outcomes[i].State = sink.Confirmed
			}
			in = Input{Now: in.Now, Outcomes: outcomes}
			in.Arrived.Push(arriving(c.group, 0))
			in.Arrived.Push(arriving(c.group, 1))
			a := m.Step(&in)
			if len(a.Defer) > 0 || a.Wake.IsZero() {
				t.Fatalf("deferred at once: %d, wake %v", len(a.Defer), a.Wake)
			}
			if a = m.Step(&Input{Now: a.Wake}); len(a.Defer) != 2 {
				t.Errorf("%d events are deferred when it wakes, want 2", len(a.Defer))
			}
		})
	}
}

// Probes of destinations that do not answer are out for long, also those whose row was rejected for
// a fault of its own before. A row that was rejected before, of another destination, goes all the
// same.
func TestProbesKeepNoSuspectsOut(t *testing.T) {
	m := newTestMachine(Config{OneByOne: true, Apart: true})
	in := Input{Now: time.Unix(1000, 0)}
	for d := range uint64(maxApart) {
		m.cfg.Pauses.Refused(sink.Place{ExchangeOrTopic: theExchange, Dest: d + 10}, &sink.Fault{Class: sink.Destination, Reason: sink.Unconfirmed}, in.Now)
		in.Found = append(in.Found, Found{Group: d + 10, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{newTestRow(d+10, uint32(d), d+10)}, Walk: true})
	}
	m.Step(&in)
	probes := 0
	in = Input{Now: in.Now.Add(5 * time.Second)}
	for range 5 {
		a := m.Step(&in)
		probes += len(a.Probe)
		in = Input{Now: in.Now.Add(time.Second)}
		for _, w := range a.Read {
			row := newTestRow(w.Group, uint32(w.Group-10), w.Group)
			row.Row.Attempts = 1
			in.Found = append(in.Found, Found{Group: w.Group, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{row}})
		}
	}
	row := newTestRow(1, 5000, 1)
	row.Row.Attempts = 1
	in.Found = append(in.Found, Found{Group: 1, ExchangeOrTopic: theExchange, Rows: []*inflight.Event{row}, Walk: true})
	if a := m.Step(&in); probes != maxApart || len(a.Probe) != 1 {
		t.Errorf("%d probes are out, and %d suspects go, want %d and 1", probes, len(a.Probe), maxApart)
	}
}
