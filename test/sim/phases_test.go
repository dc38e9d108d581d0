package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/memorytest"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// run plays the plan, and returns what went wrong.
func (p *plan) run() string {
	w := newWorld(p)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, proc := range w.processes {
		all.Go(func() { proc.run(ctx) })
	}
	for _, h := range p.happens {
		if !w.pass(time.Until(w.began.Add(h.at))) {
			break
		}
		w.mu.Lock()
		w.noteLocked("world", nil, "%s", h.what)
		h.do(w)
		w.mu.Unlock()
	}
	w.phases()
	cancel()
	all.Wait()
	return w.failure
}

// pass lets time pass; false after a failure.
func (w *world) pass(d time.Duration) bool {
	if d <= 0 {
		select {
		case <-w.failed:
			return false
		default:
			return true
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.failed:
		return false
	}
}

// until lets time pass until a goal is reached: "" is nothing left to do.
func (w *world) until(phase string, most time.Duration, goal func() string) bool {
	end := time.Now().Add(most)
	for d := 20 * time.Millisecond; w.pass(d); d = min(d*3/2, 10*time.Second) {
		w.mu.Lock()
		left := goal()
		w.mu.Unlock()
		if left == "" {
			return true
		}
		if time.Now().After(end) {
			w.fail(nil, "stuck in phase %s: %s", phase, left)
			return false
		}
	}
	return false
}

// phases are the end: A, with what is broken still broken; B, all fixed; C, new events.
func (w *world) phases() {
	w.note("world", nil, "phase A: what is broken stays so")
	if !w.until("A (still broken)", 10*time.Minute, w.flows) {
		return
	}
	w.mu.Lock()
	w.exchangeOrTopicBroken, w.destBroken = [places]bool{}, [places][dests]bool{}
	w.flaky = [places][dests]int{}
	for _, e := range w.events[:w.live] {
		e.poison, e.copyPoison = 0, 0
	}
	w.noteLocked("world", nil, "phase B: all is fixed")
	w.mu.Unlock()
	if !w.until("B (all fixed)", 10*time.Minute, w.empty) {
		return
	}
	for n := range 2 {
		w.note("world", nil, "phase C%d: new events", n+1)
		w.more()
		if !w.until(fmt.Sprintf("C%d (new events)", n+1), 5*time.Minute, w.empty) {
			return
		}
	}
}

// flows reports what of that which is not broken does not flow. The watermark reaches the end
// whatever is broken.
func (w *world) flows() string {
	if s := w.holder; s != nil && s.term != nil && w.ownFaultWithoutRoom(s.term) {
		return ""
	}
	if last := w.txs[w.opened-1]; w.confirmed < last.end {
		return fmt.Sprintf("the watermark is %s, of %s", w.confirmed, last.end)
	}
	t := w.tables()
	for _, e := range w.events[:w.live] {
		if e.delivered == 0 && !e.closed && t.deadLetters[e] == "" && !w.mayWait(e, t) {
			return fmt.Sprintf("%s is not delivered, and nothing that it waits for is broken", e)
		}
	}
	return w.unmirrored()
}

// ownFaultWithoutRoom: an event that is refused for ever for its own fault cannot be counted, so it
// stays in memory.
func (w *world) ownFaultWithoutRoom(t *term) bool {
	if !w.hold || t.line.Snapshot().WaitingGroups < w.held {
		return false
	}
	for _, e := range w.events[:w.live] {
		if e.poison < 0 {
			return true
		}
	}
	return false
}

// mayWait reports whether something is broken that an event may wait for.
func (w *world) mayWait(e *simEvent, t tables) bool {
	for _, f := range w.events[:w.live] {
		switch {
		case !w.together(e, f):
		case f.n <= e.n && (f.delivered == 0 || t.deferred[f] != nil) && (w.exchangeOrTopicBroken[f.exchangeOrTopic] || w.destBroken[f.exchangeOrTopic][f.dest] || w.flaky[f.exchangeOrTopic][f.dest] > 0):
			return true
		case w.hold && t.deadLetters[f] == memorytest.Open: // a later one too
			return true
		}
	}
	for r := range dests { // when its exchange or topic is counted as a whole
		if (w.destBroken[e.exchangeOrTopic][r] || w.flaky[e.exchangeOrTopic][r] > 0) && w.held < 100 {
			return true
		}
	}
	if w.hold && w.held < 100 {
		for f, state := range t.deadLetters {
			if state == memorytest.Open && f.exchangeOrTopic == e.exchangeOrTopic {
				return true
			}
		}
	}
	return false
}

// empty reports what is left when all is fixed.
func (w *world) empty() string {
	if last := w.txs[w.opened-1]; w.confirmed < last.end {
		return fmt.Sprintf("the watermark is %s, of %s", w.confirmed, last.end)
	}
	left := ""
	for _, l := range w.db.DeadLetters(slot) {
		if l.State == memorytest.Open {
			left = "a dead letter is open"
			kind := store.Replay
			if e := w.eventAt[l.Row.Event.Position]; e.fault || len(l.Row.Event.Payload) == 0 || e.n%3 == 0 {
				kind = store.Discard
			}
			w.ask(kind, l.Row, event.Route{})
		}
	}
	t := w.tables()
	s := w.holder
	switch {
	case left != "":
		return left
	case w.unmirrored() != "":
		return w.unmirrored()
	case len(t.deferred) > 0:
		return fmt.Sprintf("%d rows are deferred", len(t.deferred))
	case s == nil || s.term == nil:
		return "nobody leads"
	}
	line, retryTable := s.term.line.Snapshot(), s.term.retryTable.Snapshot()
	if line.Events+line.WaitingGroups+retryTable.Queued+retryTable.InFlight > 0 || line.Bytes > 0 {
		return fmt.Sprintf("%+v %+v", line, retryTable)
	}
	for _, e := range w.events[:w.live] {
		if e.delivered == 0 && !e.closed {
			w.failLocked(e, "I8: %s is lost", e)
		}
	}
	return ""
}

// more commits what was drawn for phase C: an event of each key and exchange or topic, twice. The
// first ones may go through the tables, since a destination may be paused that nothing was for any
// more; the second ones go straight, or a count was left behind.
func (w *world) more() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := w.opened; n < w.opened+perRound; n++ {
		w.txs[n].at = time.Since(w.began)
		w.live += len(w.txs[n].events)
	}
	w.opened += perRound
	w.change()
}

// checkCut says that a stop was cut although nothing failed.
func (w *world) checkCut(t *term) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.still && t.grace == cleanGrace && t.epoch == w.epoch && !w.ownFaultWithoutRoom(t) {
		w.failLocked(nil, "step 12: %s is asked to stop, nothing fails, and it does not come to an end: %+v %+v", t.name, t.line.Snapshot(), t.retryTable.Snapshot())
	}
}
