// Package replicationtest has what the tests of replication and its floors share.
package replicationtest

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// Recorder is a Line that remembers what it was given. It settles a transaction at its commit, or,
// held, when the test says so. Its watermark is worked out the plainest way: a list of everything
// that came, the settled ones taken off its front.
type Recorder struct {
	mu         sync.Mutex
	Events     []Recorded
	txs        []*Transaction // with events
	passing    []*Transaction // not yet below the watermark; keepalives and empty transactions too
	open       *Transaction   // between Begin and Commit
	last       pglogrepl.LSN  // newest transaction that came whole
	Held       bool
	settled    int           // so many transactions with events are settled although it is held
	pausedDest chan struct{} // Event waits until it is closed; nil: never
	free       int           // events that pass the paused destination

	position, own pglogrepl.LSN
	ends          map[pglogrepl.LSN]bool // every position the watermark may have
	moved         chan struct{}
	drained       chan struct{} // as moved, for WaitSettled
	arrived       chan struct{}
	Failed        chan error     // the lanes end with it
	Sent          *sent.Recorder // gets the rows of settled transactions; nil: nobody does
}

// Recorded is a copy of one event as it was given to the Recorder, for comparison in tests.
type Recorded struct {
	Id, Key, Payload string
	Headers          string
	Columns          []string
	Position         event.Position
	Fault, Raw       string
	Shape            *event.Shape
}

// Transaction is one that the Recorder was given: where its commit is and where it ends in the WAL,
// how many events it has, and whether they are settled.
type Transaction struct {
	Commit, End pglogrepl.LSN
	Events      int
	Settled     bool
	rows        []sent.Entry
}

// NewRecorder returns a Recorder whose watermark is at start, and which settles at each commit.
func NewRecorder(start pglogrepl.LSN) *Recorder {
	return &Recorder{
		position: start, ends: map[pglogrepl.LSN]bool{start: true},
		moved: make(chan struct{}, 1), drained: make(chan struct{}, 1), arrived: make(chan struct{}, 1),
		Failed: make(chan error, 1),
	}
}

// Run waits for ctx to end and returns nil, or returns the first error that is sent to Failed.
func (r *Recorder) Run(ctx context.Context) error {
	select {
	case err := <-r.Failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Begin opens a transaction, unless one with this commit or a later one has come whole before: then
// its events are skipped. It never returns an error.
func (r *Recorder) Begin(commit pglogrepl.LSN, _ uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if commit <= r.last {
		return nil
	}
	r.open = &Transaction{Commit: commit}
	return nil
}

// Event records a copy of ev, and waits while Block holds it; the error is that of ctx.
func (r *Recorder) Event(ctx context.Context, ev *event.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil { // of a transaction that came whole before
		return nil
	}
	rec := Recorded{Id: string(ev.ID), Key: string(ev.Key), Payload: string(ev.Payload), Headers: string(ev.Headers), Position: ev.Position, Raw: string(ev.Raw), Shape: ev.Shape}
	if ev.Fault != nil {
		rec.Fault = ev.Fault.Error()
	}
	for _, c := range ev.Columns {
		rec.Columns = append(rec.Columns, string(c))
	}
	r.Events = append(r.Events, rec)
	r.open.Events++
	if ev.Origin.Tx != 0 {
		digest := sent.Digest(ev.Origin.Tx, ev.ID)
		r.open.rows = append(r.open.rows, sent.Entry{Relation: ev.Origin.Relation, Tx: ev.Origin.Tx, Digest: digest})
	}
	wakeUp(r.arrived)
	if pausedDest := r.pausedDest; pausedDest != nil && r.free == 0 {
		r.mu.Unlock()
		defer r.mu.Lock()
		select {
		case <-pausedDest:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.free = max(0, r.free-1)
	return nil
}

// Wake does nothing: no event waits in the Recorder to be sent with others.
func (r *Recorder) Wake(bool) {}

// Commit closes the open transaction, which ends at end, and settles it unless it has events and
// the Recorder is held.
func (r *Recorder) Commit(end pglogrepl.LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tx := r.open
	r.open = nil
	if tx == nil { // skipped
		return
	}
	r.last, tx.End = tx.Commit, end
	tx.Settled = tx.Events == 0 || !r.Held || len(r.txs) < r.settled
	if tx.Events > 0 {
		r.txs = append(r.txs, tx)
	}
	r.Pass(tx)
}

// Keepalive lets the watermark move to pos as soon as everything that came before is settled.
func (r *Recorder) Keepalive(pos pglogrepl.LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Pass(&Transaction{End: pos, Settled: true})
}

// Pass appends tx and moves the watermark as far as everything is settled.
func (r *Recorder) Pass(tx *Transaction) {
	if tx != nil {
		r.passing = append(r.passing, tx)
		r.ends[tx.End] = true
	}
	for len(r.passing) > 0 && r.passing[0].Settled {
		first := r.passing[0]
		r.passing = r.passing[1:]
		if r.Sent != nil && len(first.rows) > 0 {
			r.Sent.Add(first.rows)
		}
		r.position = max(r.position, first.End)
		if first.Events > 0 {
			r.own = max(r.own, first.End)
		}
		wakeUp(r.moved)
		wakeUp(r.drained)
	}
}

// Disconnected discards the open transaction; its recorded events are kept.
func (r *Recorder) Disconnected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = nil
}

// Watermark returns the position below which everything is settled, and as Own the end of the
// newest transaction with events below it.
func (r *Recorder) Watermark() event.Watermark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return event.Watermark{LSN: r.position, Own: r.own}
}

// Moved returns the channel that holds one signal after the watermark may have moved.
func (r *Recorder) Moved() <-chan struct{} { return r.moved }

// Unsettled counts the events of whole transactions that are not settled yet.
func (r *Recorder) Unsettled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, tx := range r.passing {
		if !tx.Settled {
			n += tx.Events
		}
	}
	return n
}

// Stopping does nothing: the Recorder settles in the same way after the end of reading.
func (r *Recorder) Stopping() {}

// WaitSettled waits until Unsettled is 0; the error is that of ctx.
func (r *Recorder) WaitSettled(ctx context.Context) error {
	for r.Unsettled() > 0 {
		select {
		case <-r.drained:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Hold keeps everything that is committed from now on unsettled: the broker is dead.
func (r *Recorder) Hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Held = true
}

// Settle settles the transactions with events that were held, in order, up to the n-th of all, and
// lets the rest wait. One of the n whose commit is still on its way (its events have been seen) is
// settled when it comes.
func (r *Recorder) Settle(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled = max(r.settled, n)
	for _, tx := range r.txs[:max(0, min(n, len(r.txs)))] {
		tx.Settled = true
	}
	r.Pass(nil)
}

// Block makes the next Event wait until release.
func (r *Recorder) Block() (release func()) { return r.BlockAfter(0) }

// BlockAfter lets n more events through before it does.
func (r *Recorder) BlockAfter(n int) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pausedDest := make(chan struct{})
	r.pausedDest, r.free = pausedDest, n
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pausedDest = nil
		close(pausedDest)
	})
}

// Seen returns the ids of all recorded events in the order in which they came, repeated ones too.
func (r *Recorder) Seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]string, len(r.Events))
	for i, ev := range r.Events {
		ids[i] = ev.Id
	}
	return ids
}

// All are the events so far, copied.
func (r *Recorder) All() []Recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.Events)
}

// Transactions are those with events that came whole.
func (r *Recorder) Transactions() []Transaction {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Transaction, len(r.txs))
	for i, tx := range r.txs {
		list[i] = *tx
	}
	return list
}

// IsEnd reports whether a watermark may stand at lsn: where a transaction ended, a keepalive stood,
// or the term began.
func (r *Recorder) IsEnd(lsn pglogrepl.LSN) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ends[lsn]
}

// OwnWatermark is the end of the newest event's transaction, and beyond everything until all of it
// has come and is settled.
func (r *Recorder) OwnWatermark() pglogrepl.LSN {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.Events); n == 0 || r.own <= r.Events[n-1].Position.Commit {
		return math.MaxUint64
	}
	return r.own
}

// wakeUp tells a channel that holds one signal.
func wakeUp(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
