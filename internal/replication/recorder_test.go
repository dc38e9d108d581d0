package replication

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// recorder is a Line that remembers what it was given. It settles a transaction at its commit, or, held, when the test
// says so. Its watermark is worked out the plainest way: a list of everything that came, the settled ones taken off its
// front.
type recorder struct {
	mu      sync.Mutex
	events  []recorded
	txs     []*transaction // with events
	passing []*transaction // not yet below the watermark; keepalives and empty transactions too
	open    *transaction   // between Begin and Commit
	last    pglogrepl.LSN  // newest transaction that came whole
	held    bool
	gate    chan struct{} // Event waits until it is closed; nil: never
	free    int           // events that pass the gate

	position, own pglogrepl.LSN
	ends          map[pglogrepl.LSN]bool // every position the watermark may have
	moved         chan struct{}
	drained       chan struct{} // as moved, for WaitSettled
	arrived       chan struct{}
	failed        chan error // the lanes end with it
}

type recorded struct {
	id, key, payload string
	headers          string
	columns          []string
	position         outbox.Position
	fault, raw       string
}

type transaction struct {
	commit, end pglogrepl.LSN
	events      int
	settled     bool
}

func newRecorder(start pglogrepl.LSN) *recorder {
	return &recorder{
		position: start, ends: map[pglogrepl.LSN]bool{start: true},
		moved: make(chan struct{}, 1), drained: make(chan struct{}, 1), arrived: make(chan struct{}, 1),
		failed: make(chan error, 1),
	}
}

func (r *recorder) Run(ctx context.Context) error {
	select {
	case err := <-r.failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (r *recorder) Begin(commit pglogrepl.LSN, _ uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if commit <= r.last {
		return nil
	}
	r.open = &transaction{commit: commit}
	return nil
}

func (r *recorder) Event(ctx context.Context, ev *outbox.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil { // of a transaction that came whole before
		return nil
	}
	rec := recorded{id: string(ev.ID), key: string(ev.Key), payload: string(ev.Payload), headers: string(ev.Headers), position: ev.Position, raw: string(ev.Raw)}
	if ev.Fault != nil {
		rec.fault = ev.Fault.Error()
	}
	for _, c := range ev.Columns {
		rec.columns = append(rec.columns, string(c))
	}
	r.events = append(r.events, rec)
	r.open.events++
	signal(r.arrived)
	if gate := r.gate; gate != nil && r.free == 0 {
		r.mu.Unlock()
		defer r.mu.Lock()
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.free = max(0, r.free-1)
	return nil
}

func (r *recorder) Wake(bool) {}

func (r *recorder) Commit(end pglogrepl.LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tx := r.open
	r.open = nil
	if tx == nil { // skipped
		return
	}
	r.last, tx.end = tx.commit, end
	tx.settled = tx.events == 0 || !r.held
	if tx.events > 0 {
		r.txs = append(r.txs, tx)
	}
	r.pass(tx)
}

func (r *recorder) Keepalive(pos pglogrepl.LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass(&transaction{end: pos, settled: true})
}

// pass appends tx and moves the watermark as far as everything is settled.
func (r *recorder) pass(tx *transaction) {
	if tx != nil {
		r.passing = append(r.passing, tx)
		r.ends[tx.end] = true
	}
	for len(r.passing) > 0 && r.passing[0].settled {
		first := r.passing[0]
		r.passing = r.passing[1:]
		r.position = max(r.position, first.end)
		if first.events > 0 {
			r.own = max(r.own, first.end)
		}
		signal(r.moved)
		signal(r.drained)
	}
}

func (r *recorder) Disconnected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = nil
}

func (r *recorder) Watermark() outbox.Watermark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return outbox.Watermark{LSN: r.position, Own: r.own}
}

func (r *recorder) Moved() <-chan struct{} { return r.moved }

func (r *recorder) Unsettled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, tx := range r.passing {
		if !tx.settled {
			n += tx.events
		}
	}
	return n
}

func (r *recorder) Stopping() {}

func (r *recorder) WaitSettled(ctx context.Context) error {
	for r.Unsettled() > 0 {
		select {
		case <-r.drained:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// hold keeps everything that is committed from now on unsettled: the broker is dead.
func (r *recorder) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = true
}

// settle settles the transactions with events that were held, in order, up to the n-th of all, and lets the rest wait.
func (r *recorder) settle(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tx := range r.txs[:max(0, min(n, len(r.txs)))] {
		tx.settled = true
	}
	r.pass(nil)
}

// block makes the next Event wait until release.
func (r *recorder) block() (release func()) { return r.blockAfter(0) }

// blockAfter lets n more events through before it does.
func (r *recorder) blockAfter(n int) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gate := make(chan struct{})
	r.gate, r.free = gate, n
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.gate = nil
		close(gate)
	})
}

func (r *recorder) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]string, len(r.events))
	for i, ev := range r.events {
		ids[i] = ev.id
	}
	return ids
}

// all are the events so far, copied.
func (r *recorder) all() []recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// transactions are those with events that came whole.
func (r *recorder) transactions() []transaction {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]transaction, len(r.txs))
	for i, tx := range r.txs {
		list[i] = *tx
	}
	return list
}

// isEnd reports whether a watermark may stand at lsn: where a transaction ended, a keepalive stood, or the term began.
func (r *recorder) isEnd(lsn pglogrepl.LSN) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ends[lsn]
}

// ownWatermark is the end of the newest event's transaction, and beyond everything until all of it has come and is settled.
func (r *recorder) ownWatermark() pglogrepl.LSN {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.events); n == 0 || r.own <= r.events[n-1].position.Commit {
		return math.MaxUint64
	}
	return r.own
}
