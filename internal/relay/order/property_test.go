// A machine against a dumb world, by seed.

package order

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// TestOrderIsKeptWhateverComesLate: whatever of the retry table, the broker and the operators comes
// when, a group's events reach the broker in their order, and no row is sent that has left the
// table. Once everything answers, nothing stays, and the machine has forgotten everything.
func TestOrderIsKeptWhateverComesLate(t *testing.T) {
	for seed := range uint64(seeds) {
		if why := tryWorld(seed); why != "" {
			t.Fatalf("seed %d: %s", seed, why)
		}
	}
}

const seeds = 1500

func tryWorld(seed uint64) (why string) {
	w := newWorld(seed)
	defer func() {
		switch p := recover().(type) {
		case nil:
		case broken:
			why = string(p)
		default:
			why = fmt.Sprintf("%v\n%s", p, strings.Join(w.said, "\n"))
			panic(why)
		}
	}()
	for range 100 + w.IntN(400) {
		w.act()
		w.check()
	}
	w.end()
	return ""
}

// act lets one thing happen.
func (w *world) act() {
	switch n := w.IntN(100); {
	case n < 25 && len(w.events) < 80 && !w.stop:
		w.happen()
	case n < 45 && w.call != nil:
		w.answer()
		w.step()
	case n < 50:
		w.commitRows()
	case n < 55:
		w.ack()
	case n < 65:
		w.readSome()
	case n < 75:
		w.apply()
	case n < 80:
		w.walkOn()
	case n < 82:
		w.broken[1+w.Uint64N(uint64(w.dests))] = w.IntN(2) == 0
		w.say("broken: %v", w.broken)
	case n < 83:
		w.cut = !w.cut
	case n < 84:
		w.request()
	case n < 88:
		w.pass(time.Duration(w.IntN(4000)) * time.Millisecond)
	case n < 91:
		w.answerApart()
	case n < 92 && w.IntN(8) == 0:
		w.say("stop")
		w.stop = true
	case n < 92 && w.IntN(4) == 0:
		w.guarded = !w.guarded
		w.say("the guard is on: %t", w.guarded)
	case n < 93 && (w.stop && w.IntN(3) == 0 || w.IntN(20) == 0):
		w.start()
	default:
		w.hear()
	}
	if w.call == nil && w.IntN(3) > 0 {
		w.step()
	}
}

// hear moves what the writer or the feeder has done to the machine's inbox.
func (w *world) hear() {
	if n := len(w.written); n > 0 && w.IntN(2) == 0 {
		n = 1 + w.IntN(n)
		w.in.Written = append(w.in.Written, w.written[:n]...)
		w.written = w.written[n:]
	}
	for n := w.IntN(len(w.news) + 1); n > 0; n-- {
		w.news[0]()
		w.news = w.news[1:]
	}
}

func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for _, t := range w.m.cfg.Pauses.TargetsWithoutRows(w.now) {
		w.walks = append(w.walks, &walk{exchange: t.ExchangeOrTopic, dest: t.Dest})
	}
}

// commitRows commits the first rows that are to be written.
func (w *world) commitRows() {
	if len(w.writing) == 0 {
		return
	}
	for _, e := range w.writing[w.committed : w.committed+w.IntN(len(w.writing)-w.committed+1)] {
		f := w.fact(&e.Event)
		w.committed++
		w.n++
		w.say("the row of %s is committed, dead %t", f.id, e.Dead)
		if e.Dead {
			f.gone = true
			continue
		}
		r := &trow{f: f, n: w.n}
		if e.DueIn > 0 {
			r.attempts, r.next = e.Attempts, w.now.Add(e.DueIn)
		}
		rows := append(w.table[f.rowGroup()], r)
		slices.SortFunc(rows, func(a, b *trow) int { return a.f.pos.Compare(b.f.pos) })
		w.table[f.rowGroup()] = rows
	}
}

// ack tells the line that rows are committed.
func (w *world) ack() {
	for _, e := range w.writing[:w.committed] {
		f := w.fact(&e.Event)
		f.settled, f.lane = true, false
		w.written = append(w.written, Written{RowGroup: f.rowGroup(), Position: f.pos, Ordered: f.group != 0, Place: e.Place, Dead: e.Dead, DueIn: e.DueIn})
	}
	w.writing, w.committed, w.acked = w.writing[w.committed:], 0, w.n
}

// find reads rows of a group.
func (w *world) find(group uint64, after store.RowPosition, limit int) (found Found, failed bool) {
	found = Found{Group: group, ExchangeOrTopic: theExchange}
	for _, r := range w.table[group] {
		if r.f.pos.Compare(after.Position) <= 0 && after.Incarnation != 0 {
			continue
		}
		if len(found.Rows) == limit || r.n > w.acked {
			found.More = true
			break
		}
		found.Rows = append(found.Rows, w.rowEvent(r))
	}
	return found, false
}

func (w *world) rowEvent(r *trow) *inflight.Event {
	ev := event.Event{ID: []byte(r.f.id), Position: r.f.pos, Ordered: r.f.group != 0}
	return &inflight.Event{
		Event: ev, Place: r.f.place, Group: r.f.group, Size: ev.Size(), Attempts: r.attempts,
		Row: &store.Row{
			N: r.n, Incarnation: 1, Event: ev, Group: r.f.rowGroup(), Ordered: r.f.group != 0, ExchangeOrTopic: theExchange, Dest: r.f.place.Dest,
			Attempts: r.attempts, NextAttempt: r.next, DeferredAt: w.now,
		},
	}
}

// readSome answers some wants.
func (w *world) readSome() {
	for n := w.IntN(len(w.wants) + 1); n > 0; n-- {
		i := w.IntN(len(w.wants))
		want := w.wants[i]
		w.wants = slices.Delete(w.wants, i, i+1)
		limit := 1 + w.IntN(4)
		if want.Probe {
			limit = 1
		}
		found, _ := w.find(want.Group, want.After, limit)
		if w.trouble && w.IntN(20) == 0 {
			found.Rows, found.Failed = nil, true
		}
		w.say("group %d is read: %d rows, more %t, failed %t", want.Group, len(found.Rows), found.More, found.Failed)
		w.tell(found)
	}
}

func (w *world) tell(found Found) {
	w.news = append(w.news, func() { w.in.Found = append(w.in.Found, found) })
}

// apply commits some results, in their order.
func (w *world) apply() {
	n := w.IntN(len(w.results) + 1)
	for _, r := range w.results[:n] {
		if r.Request != nil {
			w.carryOut(r.Request)
			w.news = append(w.news, func() { w.in.Finished = append(w.in.Finished, r) })
			continue
		}
		f := w.fact(&r.Event.Event)
		w.say("result of %s: kind %d after %s", f.id, r.Kind, r.After)
		group := f.rowGroup()
		i := slices.IndexFunc(w.table[group], func(t *trow) bool { return t.n == r.Row.N })
		switch {
		case i < 0:
			w.fail("%s has a result, and its row has left the table: it was sent once more", f.id)
		case r.Kind == store.Backoff:
			w.table[group][i].attempts = r.Attempts
			if r.After > 0 {
				w.table[group][i].next = w.now.Add(r.After)
			}
		case r.Kind == store.Delivered && !f.delivered:
			w.fail("I2: the row of %s is deleted, it was not delivered", f.id)
		default:
			f.gone = f.gone || r.Kind == store.Dead
			w.remove(group, i)
		}
		w.news = append(w.news, func() { w.in.Finished = append(w.in.Finished, r) })
	}
	w.results = w.results[n:]
}

func (w *world) remove(group uint64, i int) {
	if w.table[group] = slices.Delete(w.table[group], i, i+1); len(w.table[group]) == 0 {
		delete(w.table, group)
	}
}

// request lets an operator retry or discard a row.
func (w *world) request() {
	groups := slices.Sorted(maps.Keys(w.table))
	if len(groups) == 0 {
		return
	}
	rows := w.table[groups[w.IntN(len(groups))]]
	r := rows[w.IntN(len(rows))]
	if r.n > w.acked || w.held[r.n] {
		return
	}
	w.held[r.n] = true
	q := &store.Request{ID: r.n, Kind: store.Retry, Row: w.rowEvent(r).Row}
	if w.IntN(2) == 0 {
		q.Kind = store.Discard
	}
	w.say("request about %s: %s", r.f.id, q.Kind)
	w.tell(Found{Group: r.f.rowGroup(), ExchangeOrTopic: theExchange, Request: q})
}

func (w *world) carryOut(q *store.Request) {
	delete(w.held, q.ID)
	f := w.fact(&q.Row.Event)
	group := f.rowGroup()
	w.say("the request about %s is carried out", f.id)
	switch i := slices.IndexFunc(w.table[group], func(t *trow) bool { return t.n == q.Row.N }); {
	case i < 0:
	case q.Kind == store.Retry:
		w.n++
		w.table[group][i].next = time.Time{}
	default:
		f.gone = true
		w.remove(group, i)
	}
}

// walkOn does the next part of a walk.
func (w *world) walkOn() {
	if len(w.walks) == 0 {
		for exchange := range w.asks {
			w.walks = append(w.walks, &walk{exchange: exchange})
		}
		clear(w.asks)
		return
	}
	k := w.walks[0]
	if !k.begun {
		k.begun = true
		// The lane is told before the walk reads, and before it is told of a later row.
		if k.dest == 0 {
			w.hearAll()
			w.in.Found = append(w.in.Found, Found{ExchangeOrTopic: k.exchange, WalkBegins: true})
		}
		for _, group := range slices.SortedFunc(maps.Keys(w.table), cmp.Compare) {
			if k.dest == 0 || slices.ContainsFunc(w.table[group], func(r *trow) bool { return r.f.place.Dest == k.dest }) {
				k.left = append(k.left, group)
			}
		}
		k.found = len(k.left) > 0
		w.say("a walk to %d begins: groups %v", k.dest, k.left)
	}
	if len(k.left) > 0 {
		found, _ := w.find(k.left[0], store.RowPosition{}, 1+w.IntN(4))
		k.left = k.left[1:]
		if found.Walk, found.ReadAt = true, w.now; len(found.Rows) > 0 {
			w.say("a walk finds %d rows of group %d", len(found.Rows), found.Group)
			w.tell(found)
		} else {
			k.incomplete = k.incomplete || found.More
		}
		return
	}
	w.walks = w.walks[1:]
	switch {
	case k.dest != 0:
		if !k.found {
			w.say("forget %d", k.dest)
			w.m.cfg.Pauses.Forget(Target{ExchangeOrTopic: k.exchange, Dest: k.dest}, w.now)
		}
	case k.incomplete:
		w.walks = append(w.walks, &walk{exchange: k.exchange})
	default:
		w.say("a walk ends")
		w.tell(Found{ExchangeOrTopic: k.exchange, WalkEnds: true})
	}
}

// check checks the bound of memory.
func (w *world) check() {
	inMemory := len(w.m.open.items) + len(w.apartNow) + len(w.in.Probed) + len(w.writing) + len(w.written) + len(w.wants) + len(w.news) + len(w.results) + len(w.held)
	for _, f := range w.events {
		if f.lane {
			inMemory++
		}
	}
	for _, g := range w.m.groups {
		inMemory += g.hand.n + g.pendingResults
	}
	inMemory += len(w.m.toRead)
	w.mostInMemory = max(w.mostInMemory, inMemory)
	if n := len(w.m.groups); n > w.room+w.mostInMemory {
		w.fail("I5: %d groups are known, %d had something in memory, there is room for %d", n, w.mostInMemory, w.room)
	}
}

// end lets everything answer, and checks that nothing stays.
func (w *world) end() {
	w.say("the end begins")
	clear(w.broken)
	w.cut, w.trouble, w.guarded = false, false, false
	if w.stop {
		w.start()
	}
	for range 3000 {
		w.commitRows()
		w.ack()
		w.readSome()
		w.apply()
		w.walkOn()
		w.hear()
		w.answerApart()
		w.in.Written, w.written = append(w.in.Written, w.written...), nil
		if w.call != nil {
			w.answer()
		}
		w.step()
		w.pass(100 * time.Millisecond)
		if w.quiet() == "" {
			break
		}
	}
	for _, f := range w.events {
		if !f.delivered && !f.gone {
			w.fail("%s stays, %s", f.id, w.quiet())
		}
	}
	if why := w.quiet(); why != "" {
		w.fail("the machine is not empty: %s", why)
	}
}

// quiet says what the machine, or the table, still has.
func (w *world) quiet() string {
	m := w.m
	have := map[string]int{
		"groups": len(m.groups), "special": m.specialGroups, "reading": m.readsOut, "resting": len(m.resting), "toRead": len(m.toRead),
		"turns": len(m.turns), "open": len(m.open.items), "unsure": len(m.known.unsure), "room": int(m.known.room.taken.Load()),
		"waiting": m.known.room.Waiting(), "rows": len(w.table), "writing": len(w.writing), "wants": len(w.wants), "results": len(w.results),
	}
	for _, rows := range w.table {
		have["row of "+rows[0].f.id]++
	}
	maps.DeleteFunc(have, func(_ string, n int) bool { return n == 0 })
	if m.known.first != nil || m.ready.First != nil || m.replays.First != nil {
		have["lists"] = 1
	}
	if len(have) == 0 {
		return ""
	}
	return fmt.Sprint(have)
}
