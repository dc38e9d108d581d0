// A lane: an ordered queue with a goroutine that publishes it.

package relay

import (
	"context"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// lane is an ordered queue with a goroutine that publishes it. It sends what has arrived, waits for
// the outcomes, settles, and repeats. So calls become larger under load, and an idle lane sends a
// single event at once.
//
// A new event is in exactly one of these places: inbox; ready; open; waiting of its ordering group;
// the retry table. It leaves the lane in one of two ways: the broker confirms it, or its row is
// committed. A row of the retry table is in offered, rows or replays, open, or back in the retry
// table.
type lane struct {
	n        int
	line     *Line
	oneByOne bool  // ordering Key: one event of an ordering group is in ready or open at a time
	arena    arena // guarded by the in-flight budget

	mu      sync.Mutex // guards inbox, offered, notes, probed and asleep
	inbox   fifo
	offered []*Fed
	notes   []note
	probed  []probed
	asleep  bool          // the goroutine waits; a caller that adds something must signal it
	awake   chan struct{} // cap 1

	// The fields below belong to the lane's goroutine.
	ready   fifo // new events in the order in which they go
	replays fifo
	rows    fifo
	// the first event of ready found no room in the last call, which had only rows: it goes before
	// more rows
	crowded bool
	groups  map[uint64]*group
	spare   *group // free list
	// ordering groups that are dying, late, awaited by a replay, or have rows in open
	special int
	waiting waitingGroups
	// exchanges or topics that are now counted as a whole: their waiting events must be deferred
	flush    []uint64
	late     []late
	deferred []*Deferred // to be given to the retry table
	returned []*Fed      // likewise
	probing  []*item     // rows that are to be sent apart
	probes   sync.WaitGroup

	open open
	call call

	// how many events a call may have: 1 after a failed call, doubled by each call in which
	// something is confirmed
	limit     int
	fails     int       // calls in a row without a confirmed or rejected event
	failing   string    // the error text of such calls that was logged last; "" when calls succeed
	notBefore time.Time // no call before this time: it prevents a busy loop
}

func newLane(n int, line *Line) *lane {
	return &lane{
		n: n, line: line, oneByOne: line.cfg.Ordering == Key, awake: make(chan struct{}, 1), limit: sink.MaxCallEvents,
		groups: map[uint64]*group{}, waiting: newWaitingGroups(&line.room),
	}
}

// push adds an event. It reports whether the lane sleeps: then the caller must signal the lane
// once.
func (ln *lane) push(it *item) (asleep bool) {
	ln.mu.Lock()
	ln.inbox.push(it)
	asleep, ln.asleep = ln.asleep, false
	ln.mu.Unlock()
	return asleep
}

// run publishes until ctx is done. Unsettled events stay where they are.
func (ln *lane) run(ctx context.Context) {
	defer ln.probes.Wait()
	for ctx.Err() == nil {
		ln.receive()
		ln.fill()
		ln.probe(ctx)
		ln.handOver()
		if len(ln.open.items) == 0 {
			ln.sleep(ctx)
			continue
		}
		ln.choose()
		if ln.pause(ctx) {
			ln.publish(ctx)
		}
	}
}

// receive takes what has arrived. It takes notes first, because they concern earlier events.
func (ln *lane) receive() {
	ln.mu.Lock()
	arrived, offered, notes, back := ln.inbox, ln.offered, ln.notes, ln.probed
	ln.inbox, ln.offered, ln.notes, ln.probed = fifo{}, nil, nil, nil
	ln.mu.Unlock()
	for _, p := range back {
		ln.takeProbed(p)
	}
	for _, n := range notes {
		ln.note(n)
	}
	for _, f := range offered {
		ln.takeRow(f)
	}
	if !ln.oneByOne {
		ln.ready.join(&arrived)
		return
	}
	for arrived.first != nil {
		ln.arrive(arrived.pop())
	}
}

// sleep waits until something arrives, or an event is to be offered again.
func (ln *lane) sleep(ctx context.Context) {
	ln.mu.Lock()
	asleep := ln.inbox.first == nil && len(ln.offered) == 0 && len(ln.notes) == 0 && len(ln.probed) == 0
	ln.asleep = asleep
	ln.mu.Unlock()
	if !asleep {
		return
	}
	var due <-chan time.Time
	if len(ln.late) > 0 {
		timer := time.NewTimer(time.Until(ln.late[0].due))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ln.awake:
	case <-due:
	case <-ctx.Done():
	}
}

// pause waits until a call may be made; false when ctx is done before.
func (ln *lane) pause(ctx context.Context) bool {
	if ln.notBefore.IsZero() {
		return true
	}
	timer := time.NewTimer(time.Until(ln.notBefore))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// fill adds to open the items that may be sent, up to a full call. It adds nothing while an item is
// in doubt, so the number of possible duplicates does not grow while calls fail.
func (ln *lane) fill() {
	if ln.open.unknown > 0 {
		return
	}
	ln.recheck()
	// after recheck: events of their ordering groups that leave open wait behind them
	ln.offerAgain()
	if !ln.crowded {
		ln.fillRows()
	}
	for ln.ready.first != nil && ln.open.room(ln.ready.first) {
		it := ln.ready.first
		what := ln.decide(it)
		// its destination was paused just now, or its exchange or topic waits: nothing may pass
		// those in open
		if what != goes && ln.open.has(it) {
			break
		}
		ln.ready.pop()
		if what == goes {
			ln.open.add(it)
		} else {
			ln.putAside(it, what)
		}
	}
	for len(ln.flush) > 0 {
		exchangeOrTopic := ln.flush[0]
		ln.flush = ln.flush[1:]
		ln.advanceWhole(exchangeOrTopic)
	}
	ln.crowded = ln.ready.first != nil && !ln.open.room(ln.ready.first) && ln.open.onlyRows()
	// once more: some rows wait until the new events of their ordering group have left ready
	ln.fillRows()
}

// recheck decides again about the items that were offered and not sent. An event stays in open if
// an earlier one of its ordering group stays there.
func (ln *lane) recheck() {
	items := ln.open.items
	ln.open.reset()
	for _, it := range items {
		what := goes
		if it.fed == nil {
			what = ln.decide(it)
		}
		if what == goes || ln.open.has(it) {
			ln.open.add(it)
		} else {
			ln.putAside(it, what)
		}
	}
	clear(items[len(ln.open.items):])
}

// choose fills the next call. While an item is in doubt, choose leaves out unsent events that may
// no longer go. fill decides about them when no item of the lane is in doubt: then they are
// deferred, unless an earlier event of their ordering group stays in open.
func (ln *lane) choose() {
	ln.open.choose(&ln.call, ln.limit, func(it *item) bool {
		return it.state == sink.Unknown || it.fed != nil || ln.decide(it) == goes
	})
}
