// What the reader of the stream calls, and what the line remembers of the stream. A server repeats
// transactions after each reconnect, so this is where an event that the line has already is kept
// from entering once more.

package relay

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// stream is the reader's side of the line: the reader's place in the replication stream, and what
// was admitted in earlier sessions. Only the reader's goroutine uses it.
//
// After a reconnect a server sends again every transaction whose end was not reported as flushed,
// in commit order, frame for frame as before. So two transactions determine what the line has
// already: the newest one that was closed, and the one that was left half admitted.
type stream struct {
	state transactionState
	// current is the transaction that is open, or that is half admitted: state is then not inside,
	// and its entry is not nil
	current transaction
	newest  struct { // the newest transaction that was closed
		lsn pglogrepl.LSN
		xid uint32
	}
	// passed is the highest end of a transaction, or keepalive: no transaction may follow whose
	// commit is before it
	passed pglogrepl.LSN
	// notAdmitted means that an event of the current transaction was offered and not admitted: the
	// transaction must not be closed without that event
	notAdmitted bool

	unwoken         []*lane // lanes that have new events and still sleep
	closedSinceWake bool    // a transaction was closed since lanes were woken
	weightSinceWake int     // of the events pushed since lanes were woken: see wakeWeight
	digester        sent.Digester
}

// transaction is what the line has of one transaction.
type transaction struct {
	lsn      pglogrepl.LSN
	xid      uint32
	next     uint32           // the first index that is still expected
	admitted int              // events
	entry    *inflight.Commit // in the tracker since the first event
}

// transactionState is where the reader is in the stream.
type transactionState uint8

const (
	outside  transactionState = iota // between two transactions
	inside                           // in a transaction whose events are admitted
	skipping                         // in a transaction that the line has had before
)

// Begin opens the transaction with this commit LSN (the final_lsn of Begin). If the transaction
// went into the line before, its events and its Commit are ignored. If it was half admitted when
// its session ended, only the events that are in the line are ignored. An error is an *event.Stop:
// what the server sends contradicts what it sent before.
func (l *Line) Begin(commit pglogrepl.LSN, xid uint32) error {
	half := l.current.entry != nil
	switch {
	case l.state != outside:
		return movedStop("transaction %s (xid %d) begins inside transaction %s", commit, xid, l.current.lsn)
	case commit < l.cfg.Start:
		// an earlier line settled the transaction, and the server lost the report of that in a
		// crash
		l.state = skipping
		return nil
	case half && commit == l.current.lsn && xid == l.current.xid:
		l.state = inside
		return nil
	case half && commit > l.newest.lsn:
		return movedStop("transaction %s (xid %d) came where the rest of transaction %s (xid %d) was due", commit, xid, l.current.lsn, l.current.xid)
	case commit == l.newest.lsn && xid != l.newest.xid:
		return movedStop("transaction %s has xid %d, and had xid %d before", commit, xid, l.newest.xid)
	case commit <= l.newest.lsn:
		l.state = skipping
		return nil
	case commit < l.passed:
		return movedStop("transaction %s (xid %d) came after position %s", commit, xid, l.passed)
	}
	l.state = inside
	l.current = transaction{lsn: commit, xid: xid}
	return nil
}

// movedStop is the Stop for a stream that contradicts what it sent before.
func movedStop(format string, args ...any) error {
	return &event.Stop{
		Code:   event.ExitOperator,
		Reason: "stream_moved",
		What:   "the replication stream contradicts what it sent before: " + fmt.Sprintf(format, args...),
		Fix:    "check whether the slot was re-created or moved, or the server restored, and start the relay again",
	}
}

// Event admits the next event of the open transaction: it copies the event, with its bytes, into
// the line. It blocks while the in-flight budget is full or the sink does not know the event's lane
// yet. When ctx is done first, Event returns the error of ctx. Then the event is not in the line,
// and may be offered again, in this session or the next. An event that is in the line already (its
// index is below the expected one) is ignored.
func (l *Line) Event(ctx context.Context, ev *event.Event) error {
	switch {
	case l.state == skipping:
		return nil
	case l.state == outside || ev.Position.Commit != l.current.lsn:
		return fmt.Errorf("admit event %s: its transaction is not open", ev.Position)
	case ev.Position.Index < l.current.next:
		return nil
	}
	l.notAdmitted = true
	size := ev.Size()
	known, err := l.cfg.RetryTable.Known(ctx, ev)
	if err != nil {
		return err
	}
	if known { // its row is committed: the event is settled without being sent
		l.current.next = ev.Position.Index + 1
		l.notAdmitted = false
		return nil
	}
	ln, it, buf, err := l.placeEvent(ctx, ev, size)
	if l.waiting.Load() != 0 {
		l.waiting.Store(0)
	}
	if err != nil {
		return err
	}
	if l.current.entry == nil {
		l.current.entry = l.tracker.Open(l.current.lsn, ev.CommitTime)
	}
	it.Fill(ev, buf, l.current.entry)
	if l.cfg.Sent != nil && ev.Origin.Tx != 0 { // now, while the id is in the processor's cache
		it.Digest = l.digester.Digest(ev.Origin.Tx, ev.ID)
	}
	l.current.admitted++
	l.current.next = ev.Position.Index + 1
	l.notAdmitted = false
	if ln.push(it) {
		l.unwoken = append(l.unwoken, ln)
	}
	l.weightSinceWake += size + eventWeight
	return nil
}

// wakeWeight is how many bytes of events wake the lanes inside a transaction; each event counts
// eventWeight bytes more than its size. So few calls carry what has come together, and an event of
// a large transaction is sent long before the last event has come.
const (
	wakeWeight  = 32 << 10
	eventWeight = 512
)

// Wake wakes the sleeping lanes that have events; Commit does not wake them. The reader calls Wake
// before it waits for more of the stream. Lanes with only the first few events of a transaction
// continue to sleep until more of the transaction has come. all wakes these lanes too: when the
// wait may be long, and when the reader ends.
func (l *Line) Wake(all bool) {
	if !all && !l.closedSinceWake && l.weightSinceWake < wakeWeight {
		return
	}
	for i, ln := range l.unwoken {
		ln.wake()
		l.unwoken[i] = nil
	}
	l.unwoken = l.unwoken[:0]
	l.closedSinceWake, l.weightSinceWake = false, 0
}

// placeEvent finds the event's lane, and room for the event in the in-flight budget. It waits for
// both.
func (l *Line) placeEvent(ctx context.Context, ev *event.Event, size int) (*lane, *inflight.Event, []byte, error) {
	place, ok := l.cfg.Sink.Place(ev)
	for !ok {
		if err := l.awaitSignal(ctx, ev, l.cfg.Sink.Changed()); err != nil {
			return nil, nil, nil, err
		}
		place, ok = l.cfg.Sink.Place(ev)
	}
	ln := l.laneOf(place.Lane)
	for {
		if it, buf := l.budget.Admit(&ln.arena, size); it != nil {
			it.Place, it.Group = place, l.Group(ev, place.ExchangeOrTopic)
			return ln, it, buf, nil
		}
		if err := l.awaitSignal(ctx, ev, l.budget.Room()); err != nil {
			return nil, nil, nil, err
		}
	}
}

// awaitSignal waits for c while ev is outside the in-flight budget. The snapshot counts ev
// meanwhile; otherwise a stalled reader with a backlog behind it would look idle.
func (l *Line) awaitSignal(ctx context.Context, ev *event.Event, c <-chan struct{}) error {
	l.Wake(true)
	l.waiting.Store(ev.CommitTime.UnixNano())
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Commit closes the transaction; end is its TransactionEndLSN. It does nothing for a transaction
// that is skipped. If the last event that was offered was not admitted, the transaction stays half
// admitted, as after Disconnected: closing it would lose that event.
func (l *Line) Commit(end pglogrepl.LSN) {
	if l.state != inside || l.notAdmitted {
		l.Disconnected()
		return
	}
	l.state, l.closedSinceWake = outside, true
	l.newest.lsn, l.newest.xid = l.current.lsn, l.current.xid
	l.passed = max(l.passed, end)
	if l.current.entry == nil {
		l.tracker.Pass(end)
	} else {
		l.tracker.Close(l.current.entry, end, l.current.admitted)
	}
	l.current = transaction{}
}

// Keepalive takes the position of a keepalive. Outside a transaction it counts as a commit without
// events. It is ignored inside a transaction, and until the rest of a half admitted transaction has
// come.
func (l *Line) Keepalive(pos pglogrepl.LSN) {
	if l.state != outside || l.current.entry != nil {
		return
	}
	l.passed = max(l.passed, pos)
	l.tracker.Pass(pos)
}

// Disconnected ends the session. A transaction that is open now is half admitted: it keeps the
// watermark where it is, and the next session continues the transaction where this session stopped.
func (l *Line) Disconnected() {
	l.Wake(true)
	l.state = outside
	l.notAdmitted = false
	if l.current.entry == nil {
		l.current = transaction{}
	}
}
