package relay

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// lane is an ordered queue with a goroutine that publishes it. It sends what has arrived, waits for the outcomes, settles,
// and repeats: under load its calls grow by themselves, an idle lane sends a single event at once.
//
// An event is in exactly one of these places: inbox; the list of its key, behind an earlier event of that key (Key only);
// ready; open. Out of open leads one way: it was confirmed.
type lane struct {
	n     int
	line  *Line
	arena arena // guarded by the window

	mu     sync.Mutex // guards inbox and asleep
	inbox  fifo
	asleep bool          // the goroutine waits for the inbox; whoever fills it must signal
	awake  chan struct{} // cap 1

	// From here on the goroutine's own.
	ready fifo
	keys  map[uint64]*item // Key only: the last event of each key that is in ready, in open or in a key's list
	open  open
	call  call

	limit     int             // events in a call: 1 after a failed one, doubling with each that confirms something
	fails     int             // calls in a row that moved nothing
	failing   string          // the words of such calls, as logged last; "" when none are
	retries   int             // of the rejected events in a row without a confirm
	notBefore time.Time       // no call at all before: the guard against spinning
	heldUntil time.Time       // no retry of the rejected events before
	told      outbox.Position // of the event that the log names as holding the lane, or nobody
}

func newLane(n int, line *Line) *lane {
	ln := &lane{n: n, line: line, awake: make(chan struct{}, 1), limit: sink.MaxCallEvents}
	if line.cfg.Ordering == Key {
		ln.keys = make(map[uint64]*item)
	}
	return ln
}

// push adds an event. It reports whether the lane sleeps: then the caller has to signal it, once.
func (ln *lane) push(it *item) (asleep bool) {
	ln.mu.Lock()
	ln.inbox.push(it)
	asleep, ln.asleep = ln.asleep, false
	ln.mu.Unlock()
	return asleep
}

// signal wakes the goroutine.
func (ln *lane) signal() {
	select {
	case ln.awake <- struct{}{}:
	default:
	}
}

// run publishes until ctx is done. What is unsettled then stays where it is.
func (ln *lane) run(ctx context.Context) {
	for ctx.Err() == nil {
		ln.receive()
		ln.open.fill(&ln.ready)
		switch {
		case len(ln.open.items) == 0:
			ln.sleep(ctx)
		case ln.open.items[0].ev.Fault != nil:
			ln.standStill(ctx, ln.open.items[0])
		default:
			ln.open.choose(&ln.call, ln.limit)
			if ln.pause(ctx) {
				ln.publish(ctx)
			}
		}
	}
}

// receive moves the inbox to ready or, when an event of the same key is before it in the lane, to the key's list.
func (ln *lane) receive() {
	ln.mu.Lock()
	arrived := ln.inbox
	ln.inbox = fifo{}
	ln.mu.Unlock()
	if ln.keys == nil {
		ln.ready.join(&arrived)
		return
	}
	for arrived.first != nil {
		it := arrived.pop()
		if !it.ev.Ordered {
			ln.ready.push(it)
			continue
		}
		if last := ln.keys[it.ev.Hash]; last != nil {
			last.behind = it
		} else {
			ln.ready.push(it)
		}
		ln.keys[it.ev.Hash] = it
	}
}

// follow readies the next event of the key of a confirmed one. It goes to the end of ready: a key with many events takes one
// place in a call like any other, and delays nobody.
func (ln *lane) follow(it *item) {
	switch {
	case ln.keys == nil || !it.ev.Ordered:
	case it.behind != nil:
		ln.ready.push(it.behind)
	default:
		delete(ln.keys, it.ev.Hash)
	}
}

// sleep waits for the inbox.
func (ln *lane) sleep(ctx context.Context) {
	ln.mu.Lock()
	asleep := ln.inbox.first == nil
	ln.asleep = asleep
	ln.mu.Unlock()
	if !asleep {
		return
	}
	select {
	case <-ln.awake:
	case <-ctx.Done():
	}
}

// standStill rejects an event that cannot be decoded, without asking the sink: it has nothing to say about it. Nothing that
// the relay could wait for mends the event, so the lane ends here, with all that is behind it in the window.
func (ln *lane) standStill(ctx context.Context, it *item) {
	if it.fault == nil {
		ln.reject(it, &sink.Fault{Class: sink.Permanent, Reason: sink.Undecodable, Words: it.ev.Fault.Error()})
		ln.open.compact()
		ln.tell()
	}
	<-ctx.Done()
}

// pause waits until the call is due; false when ctx is done before.
func (ln *lane) pause(ctx context.Context) bool {
	due := ln.notBefore
	if ln.call.retry && ln.heldUntil.After(due) {
		due = ln.heldUntil
	}
	if due.IsZero() {
		return true
	}
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// publish makes the call and does what its outcomes ask for.
func (ln *lane) publish(ctx context.Context) {
	c := &ln.call
	err := ln.line.cfg.Sink.Publish(ctx, ln.n, c.events, c.outcomes)
	now := time.Now()
	refused, unknown := ln.judge()
	ln.open.compact()
	if ctx.Err() == nil {
		if hook := ln.line.cfg.Hooks.Unavailable; hook != nil && err != nil {
			hook(ln.n, unknown, err)
		}
		ln.schedule(now, refused, err)
		ln.tellFailing(err)
	}
	ln.tell() // before the events are settled: who waited for that finds the board true
	if len(c.confirmed) > 0 {
		ln.settle(now)
	}
}

// judge writes the outcomes of the call to its events.
func (ln *lane) judge() (refused, unknown int) {
	c := &ln.call
	c.confirmed = c.confirmed[:0]
	for i, it := range c.items {
		switch out := c.outcomes[i]; out.State {
		case sink.Confirmed:
			it.state = sink.Confirmed
			c.confirmed = append(c.confirmed, it)
		case sink.Rejected:
			refused++
			ln.reject(it, cmp.Or(out.Fault, &unexplained))
		case sink.Unsent:
			// This call did nothing to it, so what earlier calls left behind stands: a rejected one goes on holding the
			// lane, an unknown one may still be at the broker.
		default:
			unknown++
			it.state = sink.Unknown
		}
	}
	return refused, unknown
}

// unexplained stands in for the reason of a sink that gives none.
var unexplained = sink.Fault{Class: sink.Transient, Reason: sink.Invalid, Words: "rejected without a reason"}

// settle gives the confirmed events of the call back: to the tracker first, then their successors to ready, at last their
// memory to the window.
func (ln *lane) settle(now time.Time) {
	c := &ln.call
	ln.line.tracker.settle(c.confirmed)
	if hook := ln.line.cfg.Hooks.Confirmed; hook != nil {
		c.events = c.events[:0]
		for _, it := range c.confirmed {
			c.events = append(c.events, &it.ev)
		}
		hook(ln.n, c.events, now)
	}
	for _, it := range c.confirmed {
		ln.follow(it)
	}
	ln.line.window.release(c.confirmed)
}

// reject writes a rejection to its event and tells of it.
func (ln *lane) reject(it *item, f *sink.Fault) {
	if it.attempts == 0 {
		it.since = time.Now()
	}
	it.state, it.fault = sink.Rejected, f
	it.attempts++
	if hook := ln.line.cfg.Hooks.Rejected; hook != nil {
		hook(&it.ev, f, it.attempts)
	}
}

// schedule says when the next call may be made, and how large it may be, after one that confirmed, refused, or did neither.
func (ln *lane) schedule(now time.Time, refused int, err error) {
	confirmed := len(ln.call.confirmed)
	if confirmed > 0 || !ln.call.retry {
		ln.retries = 0
	}
	if refused > 0 {
		ln.heldUntil = now.Add(ln.line.cfg.Retry.after(ln.retries))
		ln.retries++
	}
	ln.notBefore = time.Time{}
	if confirmed+refused > 0 {
		ln.fails = 0
	} else if ln.fails++; ln.fails > 1 { // the first is offered again at once: the connection broke, Publish waits for a new one
		ln.notBefore = now.Add(spin.after(ln.fails - 2))
	}
	switch {
	case err != nil:
		ln.limit = 1
	case confirmed > 0:
		ln.limit = min(2*ln.limit, sink.MaxCallEvents)
	}
}
