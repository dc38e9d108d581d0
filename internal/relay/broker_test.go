package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// plan is one run of the quickcheck: what is committed, how the stream is cut, how the broker
// behaves.
type plan struct {
	ordering Ordering
	lanes    int
	budget   int
	bytes    int64
	txs      []planTx
	cuts     []planCut
	seed     uint64 // of the broker
	broken   int    // calls of a hundred that fail
	refused  int    // events of a hundred that are rejected in a call
	waiting  int    // MaxWaiting
	patience time.Duration
}

type planTx struct {
	commit, end pglogrepl.LSN
	rows        []planRow
	keepalive   pglogrepl.LSN // after it; 0: none
}

type planRow struct {
	key  int // 0: unordered
	size int
}

// planCut ends a session after so many events and commits of it; the next begins with the
// transactions whose end is behind the watermark of lag earlier observations.
type planCut struct{ after, lag int }

func (p *plan) event(tx, row int) *event.Event {
	r, pos := p.txs[tx].rows[row], p.position(tx, row)
	ev := &event.Event{Position: pos, CommitTime: time.Now(), ID: []byte(pos.String()), Type: []byte{"xy"[row%3%2]}, Payload: fillBytes(pos, r.size), Columns: [][]byte{nil, {}, []byte("x")}}
	if r.key > 0 {
		ev.Ordered, ev.Key, ev.Hash = true, []byte{byte(r.key)}, uint64(r.key)*7919
	} else {
		ev.Hash = uint64(pos.Commit)*31 + uint64(pos.Index)
	}
	return ev
}

func (p *plan) position(tx, row int) event.Position {
	// every other frame is foreign
	return event.Position{Commit: p.txs[tx].commit, Index: uint32(2 * row)}
}

// fillBytes makes bytes that tell which event they belong to.
func fillBytes(pos event.Position, n int) []byte {
	return bytes.Repeat([]byte{byte(pos.Commit)*31 + byte(pos.Index)}, n)
}

// broker is a sink that delivers, rejects and breaks at random, and remembers: the dumb side of the
// quickcheck.
type broker struct {
	plan *plan

	mu        sync.Mutex
	rand      []*rand.Rand // of each lane
	delivered map[event.Position]int
	confirmed map[event.Position]bool
	unknown   map[event.Position]int
	// of each ordering group, the newest delivered for the first time
	last    map[uint64]event.Position
	table   *table
	failure string

	historyMu sync.Mutex
	history   map[uint64][]string // of each ordering group
}

// note adds to the history of an event's ordering group, which a failure prints.
func (b *broker) note(ev *event.Event, format string, args ...any) {
	if ev.Ordered {
		b.historyMu.Lock()
		defer b.historyMu.Unlock()
		group := ev.Hash ^ uint64(ev.Type[0])<<32
		b.history[group] = append(b.history[group], time.Now().Format("05.000 ")+ev.Position.String()+" "+fmt.Sprintf(format, args...))
	}
}

func newBroker(p *plan) *broker {
	b := &broker{
		plan:      p,
		delivered: make(map[event.Position]int), confirmed: make(map[event.Position]bool),
		history: make(map[uint64][]string),
		unknown: make(map[event.Position]int), last: make(map[uint64]event.Position),
	}
	for lane := range p.lanes {
		b.rand = append(b.rand, rand.New(rand.NewPCG(p.seed, uint64(lane))))
	}
	return b
}

func (b *broker) fail(format string, args ...any) {
	if b.failure == "" {
		b.failure = fmt.Sprintf(format, args...)
	}
}

func (b *broker) Place(ev *event.Event) (sink.Place, bool) {
	exchangeOrTopic := uint64(ev.Type[0]) << 32
	return sink.Place{Lane: int(ev.Hash % uint64(b.plan.lanes)), ExchangeOrTopic: exchangeOrTopic, Dest: exchangeOrTopic + uint64(len(ev.Payload)%2)}, true
}
func (b *broker) Route(ev *event.Event) event.Route { return event.Route{Name: ev.Type} }
func (b *broker) Changed() <-chan struct{}          { return nil }
func (b *broker) Run(ctx context.Context) error     { <-ctx.Done(); return nil }

// refusal is a rejection of one sort or another.
func refusal(rnd *rand.Rand) sink.Outcome {
	f := &sink.Fault{Class: sink.Class(rnd.IntN(3)), Reason: sink.Nacked}
	f.Whole = f.Class == sink.Destination && rnd.IntN(2) == 0
	return sink.Outcome{State: sink.Rejected, Fault: f}
}

func (b *broker) Publish(ctx context.Context, lane int, events []*event.Event, outcomes []sink.Outcome) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inspect(lane, events)
	rnd := b.rand[lane]
	// broken before the cut-th arrived, after the reached-th was written
	cut, reached := len(events), len(events)
	if rnd.IntN(100) < b.plan.broken {
		cut = rnd.IntN(len(events))
		reached = cut + rnd.IntN(len(events)-cut+1)
	}
	// keys with a rejected or spared event in this call, with a rejected one
	var spared, rejected []uint64
	for i, ev := range events {
		switch {
		case i >= reached:
			outcomes[i].State = sink.Unsent
		case ev.Ordered && slices.Contains(spared, ev.Hash):
			// rejected in flight with the earlier one
			if outcomes[i].State = sink.Unsent; rnd.IntN(4) == 0 {
				outcomes[i] = refusal(rnd)
			} else if cut < len(events) && slices.Contains(rejected, ev.Hash) && rnd.IntN(3) == 0 {
				// in flight with it, and never answered
				outcomes[i].State = sink.Unknown
			}
		case ev.Ordered && rnd.IntN(200) < b.plan.refused:
			// spared, though nothing of its key is rejected
			outcomes[i].State = sink.Unsent
			spared = append(spared, ev.Hash)
		case i >= cut:
			outcomes[i].State = sink.Unknown
		case rnd.IntN(100) < b.plan.refused:
			outcomes[i] = refusal(rnd)
			spared, rejected = append(spared, ev.Hash), append(rejected, ev.Hash)
		default:
			b.deliver(ev)
			if outcomes[i].State = sink.Confirmed; cut < len(events) && rnd.IntN(2) == 0 {
				outcomes[i].State = sink.Unknown // its confirm was lost
			}
		}
		b.note(ev, "%s in a call of lane %d, %d of %d", outcomes[i].State, lane, cut, len(events))
		switch outcomes[i].State {
		case sink.Confirmed:
			b.confirmed[ev.Position] = true
		case sink.Unknown:
			b.unknown[ev.Position]++
		case sink.Unsent, sink.Rejected:
		}
	}
	latency := time.Duration(rnd.IntN(5)) * time.Millisecond
	b.mu.Unlock()
	time.Sleep(latency) //nolint:forbidigo // the bubble's time, not ours
	b.mu.Lock()
	b.inspect(lane, events) // the bytes are the sink's until it returns
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if cut < len(events) {
		return errors.New("broken")
	}
	return nil
}

// deliver notes that the broker has the event, and checks order and duplicates.
func (b *broker) deliver(ev *event.Event) {
	pos := ev.Position
	b.delivered[pos]++
	if n := b.delivered[pos]; n > 1+b.unknown[pos] {
		b.fail("%s delivered %d times, %d outcomes of it were unknown", pos, n, b.unknown[pos])
	}
	if ev.Ordered && b.delivered[pos] == 1 {
		group := ev.Hash ^ uint64(ev.Type[0])<<32
		if last, ok := b.last[group]; ok && !last.Less(pos) {
			b.fail("%s of key %d came after %s:\n%s", pos, ev.Key[0], last, strings.Join(b.history[group], "\n"))
		}
		b.last[group] = pos
	}
}

// inspect checks a call: its size, one event of a key (Key), the right bytes.
func (b *broker) inspect(lane int, events []*event.Event) {
	if len(events) == 0 || len(events) > sink.MaxCallEvents {
		b.fail("a call with %d events", len(events))
	}
	size, keys := 0, make(map[uint64]bool)
	for _, ev := range events {
		size += ev.Size()
		if p, _ := b.Place(ev); p.Lane != lane {
			b.fail("%s in lane %d, belongs to %d", ev.Position, lane, p.Lane)
		}
		group := ev.Hash ^ uint64(ev.Type[0])<<32
		if ev.Ordered && keys[group] && b.plan.ordering == Key {
			b.fail("a call with two events of key %d", ev.Key[0])
		}
		keys[group] = true
		if string(ev.ID) != ev.Position.String() || !bytes.Equal(ev.Payload, fillBytes(ev.Position, len(ev.Payload))) {
			b.fail("%s carries the bytes of another event", ev.Position)
		}
		if c := ev.Columns; len(c) != 3 || c[0] != nil || c[1] == nil || len(c[1]) != 0 || string(c[2]) != "x" || ev.Headers != nil {
			b.fail("%s: NULL and empty are not kept apart", ev.Position)
		}
	}
	if size > sink.MaxCallBytes && len(events) > 1 {
		b.fail("a call with %d events of %d bytes", len(events), size)
	}
}

// charged is the memory that is in use for the events' bytes.
func charged(l *Line) int64 {
	_, _, n := l.budget.size()
	return n
}

// check compares what the line says with what the broker had. It is called at any moment.
func (b *broker) check(l *Line) {
	w, events, held := l.Watermark(), l.Unsettled(), charged(l)
	b.mu.Lock()
	defer b.mu.Unlock()
	known := w.LSN == 0
	var own pglogrepl.LSN
	for i, tx := range b.plan.txs {
		known = known || w.LSN == tx.end || w.LSN == tx.keepalive
		if tx.end > w.LSN {
			continue
		}
		if len(tx.rows) > 0 {
			own = tx.end
		}
		for row := range tx.rows {
			if pos := b.plan.position(i, row); !b.confirmed[pos] && !b.table.has(pos) {
				b.fail("watermark %s passed %s, which is neither confirmed nor in a table", w.LSN, pos)
			}
		}
	}
	if !known {
		b.fail("watermark %s is no position of the stream", w.LSN)
	}
	if w.Own != own {
		b.fail("watermark %s has own %s, want %s", w.LSN, w.Own, own)
	}
	if events > b.plan.budget {
		b.fail("%d events in an in-flight budget of %d", events, b.plan.budget)
	}
	if held > b.plan.bytes {
		b.fail("%d bytes charged in an in-flight budget of %d", held, b.plan.bytes)
	}
}
