package sim

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

var errConnection = errors.New("the connection to the broker was lost")

// broker is the sink of a term: its connections to the broker, one for each lane, on which what is
// sent arrives in order.
type broker struct {
	t     *term
	lanes int
	dice  []*dice // of each lane

	mu sync.Mutex // guards what the lanes learn about destinations
	// shut is when the broker was heard to refuse an exchange or topic or pair, while no row was
	// confirmed there since and the retry table still had a row to probe with (nil: never).
	shut    map[sink.Place]time.Time
	offered map[int]bool // events that were in a call
	doubt   []bool       // of each lane: its last call moved nothing
}

var _ sink.Prober = (*broker)(nil)

func (t *term) newBroker() *broker {
	b := &broker{t: t, lanes: t.w.lanes[t.n], shut: map[sink.Place]time.Time{}, offered: map[int]bool{}}
	most := b.lanes
	if t.w.atomic {
		most = places * dests
	}
	for lane := range most {
		b.dice = append(b.dice, newDice(t.dice.next(), 10+lane))
		b.doubt = append(b.doubt, false)
	}
	return b
}

// where is the destination of an event: where it was going when it was deferred, or what its type
// says. The partition is its key's.
func (b *broker) where(ev *event.Event) (exchangeOrTopic, dest int) {
	if b.t.w.atomic {
		dest = int(ev.Hash % dests)
	}
	if r := ev.Route; r != nil {
		if !b.t.w.atomic {
			dest = int(r.RoutingKey[1] - '0')
		}
		return int(r.Name[1] - '0'), dest
	}
	if !b.t.w.atomic {
		dest = int(ev.Type[1] - '0')
	}
	return int(ev.Type[0] - '0'), dest
}

func (b *broker) Place(ev *event.Event) (sink.Place, bool) {
	exchangeOrTopic, dest := b.where(ev)
	p := sink.Place{ExchangeOrTopic: exchangeOrTopicDigest[exchangeOrTopic]}
	if !b.t.w.atomic {
		p.Lane, p.Dest = int(ev.Hash%uint64(b.lanes)), destDigest[0][exchangeOrTopic][dest]
		return p, true
	}
	p.Dest = destDigest[1][exchangeOrTopic][dest]
	if p.Lane = exchangeOrTopic*dests + dest; b.t.w.ordering == relay.Commit {
		p.Lane = 0
	}
	return p, !time.Now().Before(b.t.known[exchangeOrTopic])
}

func (b *broker) Route(ev *event.Event) event.Route {
	if ev.Route != nil {
		return *ev.Route
	}
	exchangeOrTopic, dest := b.where(ev)
	if b.t.w.atomic {
		return event.Route{Name: unitName(exchangeOrTopic)}
	}
	return event.Route{Name: unitName(exchangeOrTopic), RoutingKey: keyName(dest)}
}

func (b *broker) Changed() <-chan struct{} { return b.t.changed }

func (b *broker) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// message is an event in a call.
type message struct {
	e                     *simEvent
	hash                  uint64
	exchangeOrTopic, dest int
	from                  source
	out                   sink.Outcome
}

func (b *broker) Publish(ctx context.Context, lane int, events []*event.Event, outcomes []sink.Outcome) error {
	return b.send(ctx, lane, b.dice[lane], events, outcomes)
}

// apart is the lane of probes in learn.
const apart = -1

// Probe has a connection of its own.
func (b *broker) Probe(ctx context.Context, ev *event.Event, _ bool) (sink.Outcome, error) {
	outcomes := make([]sink.Outcome, 1)
	d := newDice(uint64(ev.Position.Commit), int(ev.Position.Index), int(time.Since(b.t.w.began)))
	err := b.send(ctx, apart, d, []*event.Event{ev}, outcomes)
	return outcomes[0], err
}

func (b *broker) send(ctx context.Context, lane int, d *dice, events []*event.Event, outcomes []sink.Outcome) error {
	w := b.t.w
	w.step()
	b.inspect(lane, events)
	if !b.t.waitWhilePaused(ctx) {
		return ctx.Err()
	}
	call := make([]message, len(events))
	for i, ev := range events {
		exchangeOrTopic, dest := b.where(ev)
		call[i] = message{e: w.eventAt[ev.Position], hash: ev.Hash, exchangeOrTopic: exchangeOrTopic, dest: dest, from: sourceOf(ev)}
	}
	w.company(call)
	var err error
	if w.atomic {
		err = b.produce(ctx, d, call)
	} else {
		err = b.publish(ctx, d, call)
	}
	if ctx.Err() != nil || !b.t.waitWhilePaused(ctx) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range call { // in doubt, for the disk guard: the term goes on
			b.t.doubt(&call[i])
		}
		return ctx.Err()
	}
	b.inspectBytes(events)
	moved := false
	w.mu.Lock()
	for i := range call {
		m := &call[i]
		outcomes[i] = m.out
		w.noteLocked(b.t.name, m.e, "%s: %s in a call of lane %d, %d of %d %s", m.from, m.out.State, lane, i+1, len(call), why(m.out.Fault))
		switch m.out.State {
		case sink.Unknown:
			b.t.doubt(m)
		case sink.Rejected:
			moved = true
		case sink.Confirmed:
			moved = true
		case sink.Unsent:
		}
	}
	w.mu.Unlock()
	b.learn(lane, call, moved)
	b.t.inspect()
	return err
}

func why(f *sink.Fault) string {
	if f == nil {
		return ""
	}
	return string(f.Reason)
}

// company notes which events were with each other in a call whose events may overtake one that is
// refused: all but those of its key, if calls are appended as a whole.
func (w *world) company(call []message) {
	if w.ordering == relay.Key || w.ordering == relay.None {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range call {
		for _, later := range call[i+1:] {
			if call[i].from == fromMirror || later.from == fromMirror {
				continue
			}
			if !w.atomic || later.e.key != call[i].e.key || later.e.key == 0 {
				call[i].e.company = append(call[i].e.company, later.e)
			}
		}
	}
}

// order is what the events of a call that are kept in order have in common.
func (b *broker) order(m *message) uint64 {
	if b.t.w.ordering == relay.Commit {
		return exchangeOrTopicDigest[m.exchangeOrTopic]
	}
	return m.hash
}

// wait is a while in which the broker is at work; false when it, or the connection, is gone, or ctx
// is done.
func (b *broker) wait(ctx context.Context, d time.Duration) bool {
	if !slept(ctx, d) {
		return false
	}
	b.t.w.mu.Lock()
	defer b.t.w.mu.Unlock()
	return b.t.w.brokerUp
}

// reached waits until the broker can be reached; false when ctx is done before.
func (b *broker) reached(ctx context.Context) bool {
	w := b.t.w
	for {
		w.mu.Lock()
		up, changed := w.brokerUp, w.changed
		w.mu.Unlock()
		if up {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// pace is how fast the broker is now, and how often it loses connections.
func (b *broker) pace() (usual time.Duration, cut, spared int) {
	w := b.t.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.still {
		return min(w.speed[theBroker], 20*time.Millisecond), 0, w.spared
	}
	return w.speed[theBroker], w.cut, w.spared
}

// publish is RabbitMQ's way: each event arrives and is answered by itself, and nobody knows a
// repeat.
func (b *broker) publish(ctx context.Context, d *dice, call []message) error {
	w := b.t.w
	if !b.reached(ctx) {
		return ctx.Err()
	}
	usual, odds, spared := b.pace()
	cut, written := len(call), len(call)
	if d.in(odds) { // the connection is lost before the cut-th arrived, and after some were written
		cut = d.n(len(call) + 1)
		written = cut + d.n(len(call)-cut+1)
	}
	refused := map[uint64]bool{} // keys: what was on its way then may arrive all the same
	held := map[uint64]bool{}    // what is kept in order: nothing more of it is sent
	lost := false
	for i := range call {
		m := &call[i]
		m.out.State = sink.Unknown
		switch {
		case lost:
			if i >= written || held[b.order(m)] {
				m.out.State = sink.Unsent
			}
			continue
		case held[b.order(m)], refused[m.hash] && (w.ordering == relay.Key || d.in(500)), d.in(spared):
			m.out.State = sink.Unsent
			held[b.order(m)] = true
			continue
		}
		if i == cut || !b.wait(ctx, d.about(usual)) {
			lost = true
			b.strand(d, slices.DeleteFunc(slices.Clone(call[i:max(written, i)]), func(m message) bool { return held[b.order(&m)] }))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if i >= written {
				m.out.State = sink.Unsent
			}
			continue
		}
		w.mu.Lock()
		fault := w.answer(b.t.name, b.t, m.e, m.exchangeOrTopic, m.dest, m.from)
		w.mu.Unlock()
		switch {
		case cut < len(call) && d.in(500): // the answer is lost with the connection
		case fault != nil:
			m.out = sink.Outcome{State: sink.Rejected, Fault: fault}
			refused[m.hash] = true
		default:
			m.out.State = sink.Confirmed
		}
	}
	if !slept(ctx, d.about(usual/2)) {
		return ctx.Err()
	}
	if lost || cut < len(call) {
		return errConnection
	}
	return nil
}

// strand leaves messages in the pipe of a connection that nobody listens to any more: the first of
// them may arrive yet.
func (b *broker) strand(d *dice, rest []message) {
	w := b.t.w
	arrive := slices.Clone(rest[:d.n(len(rest)+1)])
	in := d.about(4 * w.speed[theBroker])
	for _, m := range arrive {
		in += d.about(w.speed[theBroker] / 4)
		time.AfterFunc(in, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.answer("stale "+b.t.name, nil, m.e, m.exchangeOrTopic, m.dest, m.from)
		})
	}
}

// produce is Kafka's way: what is for a partition is appended as a whole, but for what is refused;
// a call whose answer was lost is made again inside, and known.
func (b *broker) produce(ctx context.Context, d *dice, call []message) error {
	w := b.t.w
	usual, odds, spared := b.pace()
	for d.in(odds) { // the request, or the answer to it, is lost
		if !slept(ctx, d.about(2*usual)) {
			b.strandBatch(d, call)
			return ctx.Err()
		}
	}
	if !b.reached(ctx) || !slept(ctx, d.about(usual)) {
		b.strandBatch(d, call)
		return ctx.Err()
	}
	w.mu.Lock()
	refused, held := map[uint64]bool{}, map[uint64]bool{}
	for i := range call {
		m := &call[i]
		if refused[m.hash] || held[b.order(m)] || d.in(spared) {
			m.out.State = sink.Unsent
			if refused[m.hash] {
				// those of other keys behind it go
				m.e.excused = m.e.excused || m.from != fromMirror
			} else {
				held[b.order(m)] = true
			}
			continue
		}
		if fault := w.answer(b.t.name, b.t, m.e, m.exchangeOrTopic, m.dest, m.from); fault != nil {
			m.out = sink.Outcome{State: sink.Rejected, Fault: fault}
			refused[m.hash] = true
			continue
		}
		m.out.State = sink.Confirmed
	}
	w.mu.Unlock()
	if d.in(odds / 4) { // the producer's id was lost: the next one is a repeat that nobody knows
		for i := range call {
			if call[i].out.State == sink.Confirmed {
				call[i].out.State = sink.Unknown
			}
		}
		if !slept(ctx, d.about(usual)) {
			return ctx.Err()
		}
		return errConnection
	}
	if !slept(ctx, d.about(usual/2)) {
		return ctx.Err()
	}
	return nil
}

// strandBatch leaves a request in the pipe of a dead process: it is appended as a whole later, or
// not at all.
func (b *broker) strandBatch(d *dice, call []message) {
	if d.in(500) {
		return
	}
	w := b.t.w
	call = slices.Clone(call)
	time.AfterFunc(d.about(4*w.speed[theBroker]), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, m := range call {
			if w.exchangeOrTopicBroken[m.exchangeOrTopic] || w.destBroken[m.exchangeOrTopic][m.dest] || m.poisonous() {
				return
			}
		}
		for _, m := range call {
			if w.answer("stale "+b.t.name, nil, m.e, m.exchangeOrTopic, m.dest, m.from) != nil {
				return // a full queue: nothing behind it is appended
			}
		}
	})
}

// inspect checks what a call carries.
func (b *broker) inspect(lane int, events []*event.Event) {
	w := b.t.w
	b.inspectBytes(events)
	groups := map[uint64]bool{}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ev := range events {
		e := w.eventAt[ev.Position]
		p, ok := b.Place(ev)
		if lane != apart && (!ok || p.Lane != lane) {
			w.fail(e, "%s sends %s in lane %d, it belongs to %d", b.t.name, e, lane, p.Lane)
		}
		if ev.Fault != nil {
			w.fail(e, "%s sends %s, which is undecodable", b.t.name, e)
		}
		if group := b.t.line.Group(ev, p.ExchangeOrTopic); group != 0 && w.ordering == relay.Key {
			if groups[group] {
				w.fail(e, "I3: %s sends two events of an ordering group in one call", b.t.name)
			}
			groups[group] = true
		}
		if w.ordering == relay.Key && sourceOf(ev) == fromStream && !b.offered[e.n] && !b.doubt[max(lane, 0)] {
			for _, at := range []sink.Place{{ExchangeOrTopic: p.ExchangeOrTopic}, {ExchangeOrTopic: p.ExchangeOrTopic, Dest: p.Dest}} {
				if since, shut := b.shut[at]; shut && since.Before(now) && b.t.line.Pauses().Paused(at) {
					w.fail(e, "step 9: %s sends %s to a destination that is paused, and no row of it was confirmed since %s", b.t.name, e, since.Sub(w.began))
				}
			}
		}
		b.offered[e.n] = b.offered[e.n] || !isCopy(ev)
	}
}

// learn keeps what the answers said about destinations, as the line's pauses have to.
func (b *broker) learn(lane int, call []message, moved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if lane != apart {
		b.doubt[lane] = !moved
	}
	kind := 0
	if b.t.w.atomic {
		kind = 1
	}
	for _, m := range call {
		exchangeOrTopic := sink.Place{ExchangeOrTopic: exchangeOrTopicDigest[m.exchangeOrTopic]}
		pair := sink.Place{ExchangeOrTopic: exchangeOrTopicDigest[m.exchangeOrTopic], Dest: destDigest[kind][m.exchangeOrTopic][m.dest]}
		switch f := m.out.Fault; {
		case m.from == fromDeadLetter: // it goes where an operator said, and pauses nothing
		case f != nil && f.Class == sink.Destination && f.Whole:
			b.refused(lane, exchangeOrTopic)
		case f != nil && f.Class == sink.Destination:
			b.refused(lane, pair)
			delete(b.shut, exchangeOrTopic)
		}
	}
	for _, m := range call {
		if m.out.State == sink.Confirmed && m.from != fromStream {
			delete(b.shut, sink.Place{ExchangeOrTopic: exchangeOrTopicDigest[m.exchangeOrTopic]})
			delete(b.shut, sink.Place{ExchangeOrTopic: exchangeOrTopicDigest[m.exchangeOrTopic], Dest: destDigest[kind][m.exchangeOrTopic][m.dest]})
		}
	}
}

// refused notes that a destination refuses. Of a probe the line hears when its lane does, which may
// be in a call.
func (b *broker) refused(lane int, at sink.Place) {
	if lane != apart {
		b.shut[at] = time.Now()
	}
}

// inspectBytes checks that the events of a call carry their own bytes.
func (b *broker) inspectBytes(events []*event.Event) {
	for _, ev := range events {
		if e := b.t.w.eventAt[ev.Position]; !e.is(ev) {
			b.t.w.fail(e, "I5: %s sends %s with the bytes of another event", b.t.name, e)
		}
	}
}

// is reports whether an event carries its own bytes, wherever they are now.
func (e *simEvent) is(ev *event.Event) bool {
	payload := e.made.Payload
	if isCopy(ev) && e.fault {
		payload = e.made.Raw
	}
	return bytes.Equal(ev.ID, e.made.ID) && bytes.Equal(ev.Payload, payload) && bytes.Equal(ev.Key, e.made.Key) && bytes.Equal(ev.Type, e.made.Type)
}
