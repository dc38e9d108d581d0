// A dumb retry table, broker and reader around one machine, for the tests of the machine.

package order

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// world is what surrounds a machine. Everything that takes time in the relay is a queue here, and
// the seed says which of them moves next.
type world struct {
	*rand.Rand
	groups, dests, room int
	oneByOne, apart     bool

	m       *Machine
	in      Input // what arrives with the next Step
	call    []*event.Event
	now     time.Time
	stop    bool
	guarded bool // the disk guard
	said    []string
	events  []*fact // all, in the order of the stream

	table        map[uint64][]*trow // the rows of a group, in order
	n, acked     int64
	writing      []*inflight.Event // given to the retry table, not committed
	written      []Written         // committed, the machine has not heard of it
	wants        []Want
	results      []Result // to be committed
	news         []func() // what the feeder has done and the machine has not heard of, in order
	walks        []*walk
	asks         map[uint64]bool   // requests that no walk has begun to answer
	broken       map[uint64]bool   // dests
	cut          bool              // the connection
	held         map[int64]bool    // rows that a request is about
	committed    int               // of writing: the line has not heard of it
	apartNow     []*inflight.Event // sent apart
	mostInMemory int
	trouble      bool // reads may fail
	owed         map[uint64]owed
}

// owed is how much of an ordering group the machine was not told of yet: answers to its wants,
// commits of its events' rows, and of its rows' results.
type owed struct{ reads, rows, results int }

func (w *world) owe(group uint64, more owed) {
	o := w.owed[group]
	w.owed[group] = owed{o.reads + more.reads, o.rows + more.rows, o.results + more.results}
}

func (r *Result) rowGroup() uint64 {
	if r.Request != nil {
		return r.Request.Row.Group
	}
	return r.Event.Row.Group
}

// fact is what is true of an event, whoever knows.
type fact struct {
	id              string
	group           uint64 // 0: none
	pos             event.Position
	place           sink.Place
	poison          int  // how often it is rejected for itself; below 0: always
	delivered, gone bool // at the broker; or dead
	settled         bool // confirmed to the machine, or its row committed
	lane            bool // it is in the machine or the writer
}

type trow struct {
	f        *fact
	n        int64
	attempts int
	next     time.Time
}

type walk struct {
	exchange          uint64
	dest              uint64 // of a lonely target; 0: all
	left              []uint64
	begun             bool
	found, incomplete bool
}

const theExchange = 7

func newWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 18))
	w := &world{
		Rand: r, groups: 1 + r.IntN(6), dests: 1 + r.IntN(3), room: []int{1, 2, 1000}[r.IntN(3)], oneByOne: r.IntN(2) == 0, apart: r.IntN(2) == 0,
		now: time.Unix(1000, 0), table: map[uint64][]*trow{}, broken: map[uint64]bool{}, held: map[int64]bool{},
	}
	w.start()
	return w
}

// start begins a term: a new leader knows nothing of the rows, and the stream repeats what was not
// settled.
func (w *world) start() {
	w.say("start: one by one %t, apart %t, room %d", w.oneByOne, w.apart, w.room)
	repeated := event.Position{}
	for _, rows := range w.table {
		if last := rows[len(rows)-1].f.pos; last.Compare(repeated) > 0 {
			repeated = last
		}
	}
	w.m = New(Config{
		Apart:    w.apart,
		OneByOne: w.oneByOne, MaxAttempts: 2, Room: NewGroupRoom(w.room), Pauses: NewPauses(PausesConfig{}),
		Spin:     func(int) time.Duration { return 50 * time.Millisecond },
		Backoff:  func(int) time.Duration { return time.Duration(1+w.IntN(3000)) * time.Millisecond },
		Patience: func(time.Duration) time.Duration { return time.Duration(1+w.IntN(3000)) * time.Millisecond },
		AfterStep: func(m *Machine) {
			if faults := m.Faults(); faults != "" {
				w.fail("%s", faults)
			}
		},
	})
	w.in, w.call, w.stop = Input{}, nil, false
	w.writing, w.written, w.wants, w.results, w.news, w.walks = nil, nil, nil, nil, nil, nil
	w.committed, w.trouble, w.mostInMemory, w.apartNow = 0, true, 0, nil
	w.asks, w.held, w.owed = map[uint64]bool{}, map[int64]bool{}, map[uint64]owed{}
	w.acked = w.n
	if len(w.table) > 0 {
		w.in.Found = append(w.in.Found, Found{ExchangeOrTopic: theExchange, Unsure: true, Repeated: repeated})
		w.walks = append(w.walks, &walk{exchange: theExchange})
	}
	from := slices.IndexFunc(w.events, func(f *fact) bool { return !f.settled })
	if from < 0 {
		return
	}
	for _, f := range w.events[from:] {
		if !f.gone && w.row(f) == nil { // else the retry table knows it
			f.settled = false
			w.arrive(f)
		}
	}
}

func (w *world) say(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf("%s %s", w.now.Format("05.000"), fmt.Sprintf(format, args...)))
}

func (w *world) fail(format string, args ...any) {
	panic(broken(fmt.Sprintf(format, args...) + "\n" + strings.Join(w.said, "\n")))
}

// broken is the panic of a world in which a promise was not kept.
type broken string

func (w *world) row(f *fact) *trow {
	for _, r := range w.table[f.rowGroup()] {
		if r.f == f {
			return r
		}
	}
	return nil
}

func (f *fact) rowGroup() uint64 {
	if f.group != 0 {
		return f.group
	}
	return 1000 + uint64(f.pos.Index) // a group of its own
}

// happen lets the stream bring a new event.
func (w *world) happen() {
	n := len(w.events)
	f := &fact{pos: event.Position{Commit: 100, Index: uint32(n)}, place: sink.Place{ExchangeOrTopic: theExchange, Dest: 1 + w.Uint64N(uint64(w.dests))}}
	if g := w.Uint64N(uint64(w.groups) + 1); g > 0 {
		f.group = g
	}
	if w.IntN(12) == 0 {
		f.poison = []int{-1, 1, 2}[w.IntN(3)]
	}
	f.id = fmt.Sprintf("%c%d", 'a'+byte(f.group)-1, n)
	if f.group == 0 {
		f.id = fmt.Sprintf("free%d", n)
	}
	w.events = append(w.events, f)
	w.say("%s to %d arrives, poison %d", f.id, f.place.Dest, f.poison)
	w.arrive(f)
}

func (w *world) arrive(f *fact) {
	f.lane = true
	e := &inflight.Event{Place: f.place, Group: f.group}
	ev := event.Event{ID: []byte(f.id), Position: f.pos, Ordered: f.group != 0}
	e.Fill(&ev, make([]byte, ev.Size()), commit)
	e.Size = ev.Size()
	w.in.Arrived.Push(e)
}

// commit makes an event a new one: a row has none.
var commit = inflight.NewTracker(0).Open(1, time.Time{})

func (w *world) fact(ev *event.Event) *fact { return w.events[ev.Position.Index] }

// step lets the machine work, and takes what it wants.
func (w *world) step() {
	w.in.Now, w.in.Stopping, w.in.Guarded = w.now, w.stop, w.guarded
	a := w.m.Step(&w.in)
	w.checkOwed(a)
	w.in = Input{}
	if w.guarded && len(a.Send)+len(a.Probe)+len(a.Read)+len(a.Walk) > 0 {
		w.fail("the guard is on, and something is sent or read: %+v", a)
	}
	if w.guarded && !w.stop && w.m.ready.First != nil {
		w.fail("the guard is on, and an event is neither deferred nor behind another")
	}
	for _, e := range a.Confirmed {
		w.fact(&e.Event).settled, w.fact(&e.Event).lane = true, false
	}
	for _, e := range a.Defer {
		w.say("%s is deferred, dead %t", e.ID, e.Dead)
		w.writing = append(w.writing, e)
	}
	for _, want := range a.Read {
		w.say("group %d is wanted behind %d, probe %t", want.Group, want.After.Position.Index, want.Probe)
		if want.Group == 0 {
			w.fail("a group without a name is wanted")
		}
		w.wants = append(w.wants, want)
	}
	for _, p := range a.Probe {
		w.say("%s is sent apart", p.Event.ID)
		w.apartNow = append(w.apartNow, p.Event)
	}
	for _, r := range a.Finish {
		switch {
		case r.Request != nil && r.Returned:
			delete(w.held, r.Request.ID)
		case r.Returned:
			w.say("%s is given back", r.Event.ID)
		default:
			w.results = append(w.results, r)
		}
	}
	for _, exchange := range a.Walk {
		w.say("a walk is wanted")
		w.asks[exchange] = true
	}
	if w.call = nil; len(a.Send) > 0 {
		w.call = slices.Clone(a.Send)
		var ids []string
		for _, ev := range w.call {
			ids = append(ids, string(ev.ID))
		}
		w.say("sends %s", strings.Join(ids, " "))
		w.checkCall()
	}
}

// checkOwed checks that the machine counts of each group what is owed to it after a Step.
func (w *world) checkOwed(a *Actions) {
	for _, f := range w.in.Found {
		if f.Group != 0 && !f.Walk && f.Request == nil {
			w.owe(f.Group, owed{reads: -1})
		}
	}
	for _, r := range w.in.Written {
		if r.Ordered && !r.Dead {
			w.owe(r.RowGroup, owed{rows: -1})
		}
	}
	for _, r := range w.in.Finished {
		w.owe(r.rowGroup(), owed{results: -1})
	}
	for _, want := range a.Read {
		w.owe(want.Group, owed{reads: 1})
	}
	for _, e := range a.Defer {
		if e.Group != 0 && !e.Dead {
			w.owe(e.Group, owed{rows: 1})
		}
	}
	for _, r := range a.Finish {
		if !r.Returned {
			w.owe(r.rowGroup(), owed{results: 1})
		}
	}
	for id, o := range w.owed {
		counted := owed{}
		if g := w.m.groups[id]; g != nil {
			counted = owed{countIf(g.readIsOut()), g.deferred, g.pendingResults}
		}
		if counted != o {
			w.fail("group %d is owed %+v, and counts %+v", id, o, counted)
		}
	}
}

// checkCall checks that a call has one event of a group at most where it should.
func (w *world) checkCall() {
	seen := map[uint64]bool{}
	for _, ev := range w.call {
		if f := w.fact(ev); w.oneByOne && f.group != 0 {
			if seen[f.group] {
				w.fail("two events of group %d in a call", f.group)
			}
			seen[f.group] = true
		}
	}
}

// deliver is the broker's moment: an event is at the broker. Its earlier ones must have been there
// first, unless one is dead.
func (w *world) deliver(f *fact) {
	if f.delivered || f.group == 0 {
		f.delivered = true
		return
	}
	for _, earlier := range w.events[:f.pos.Index] {
		if earlier.group == f.group && !earlier.delivered && !earlier.gone {
			w.fail("I3: %s is delivered before %s", f.id, earlier.id)
		}
	}
	f.delivered = true
}

// answer answers the call.
func (w *world) answer() {
	outcomes := make([]sink.Outcome, len(w.call))
	stopped := map[uint64]bool{} // groups of which nothing is sent any more in this call
	lost := w.cut
	for i, ev := range w.call {
		f := w.fact(ev)
		o := &outcomes[i]
		switch {
		case f.group != 0 && stopped[f.group]:
			o.State = sink.Unsent
		case lost && w.IntN(3) == 0: // the broker may have it
			o.State = sink.Unknown
			if stopped[f.group] = true; w.IntN(2) == 0 && !w.broken[f.place.Dest] && f.poison == 0 {
				w.deliver(f)
				stopped[f.group] = false
			}
		case lost && w.IntN(2) == 0:
			o.State, stopped[f.group] = sink.Unsent, true
		default:
			*o = w.judge(f)
			if stopped[f.group] = o.State == sink.Rejected; o.State == sink.Confirmed {
				w.deliver(f)
			}
		}
		w.say("%s: %s", f.id, o.State)
	}
	w.in.Outcomes, w.call = outcomes, nil
	if slices.ContainsFunc(outcomes, func(o sink.Outcome) bool { return o.State == sink.Unknown }) {
		w.in.Err = fmt.Errorf("cut")
	}
}

// answerApart answers the first event that was sent apart.
func (w *world) answerApart() {
	if len(w.apartNow) == 0 {
		return
	}
	e := w.apartNow[0]
	f, o := w.fact(&e.Event), sink.Outcome{}
	w.apartNow = w.apartNow[1:]
	if !w.cut || w.IntN(2) == 0 {
		if o = w.judge(f); o.State == sink.Confirmed {
			w.deliver(f)
		}
	}
	w.say("%s, apart: %s", f.id, o.State)
	w.in.Probed = append(w.in.Probed, Probed{e, o})
}

func (w *world) judge(f *fact) sink.Outcome {
	switch {
	case w.broken[f.place.Dest]:
		faults := []sink.Fault{{Reason: sink.Unroutable}, {Reason: sink.NoExchange, Whole: true}}
		fault := faults[w.IntN(len(faults))]
		fault.Class = sink.Destination
		return sink.Outcome{State: sink.Rejected, Fault: &fault}
	case f.poison < 0:
		return sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}}
	case f.poison > 0:
		f.poison--
		return sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Transient, Reason: sink.BrokerException}}
	}
	return sink.Outcome{State: sink.Confirmed}
}

// hearAll moves all that the feeder has done.
func (w *world) hearAll() {
	for _, tell := range w.news {
		tell()
	}
	w.news = nil
}
