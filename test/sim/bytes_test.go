package sim

import (
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// What the retry table has in memory is counted from outside (invariant I5): rows from when they
// are offered to their lanes until they are back, or, if they were confirmed, until they are
// deleted.

// offering is the line as the retry table sees it; the double of the broker learns which pauses are
// forgotten.
type offering struct {
	*relay.Line
	t *term
}

// Found implements retry.Line.
func (o offering) Found(lane int, found []order.Found) {
	o.t.w.mu.Lock()
	for _, f := range found {
		if f.Replay != nil {
			o.t.fed[f.Replay.Position] = min(int64(f.Replay.Size), o.t.w.budgetBytes*3/4)
		}
		for _, e := range f.Rows {
			o.t.fed[e.Position] = min(int64(e.Size), o.t.w.budgetBytes*3/4)
		}
	}
	o.t.w.mu.Unlock()
	o.Line.Found(lane, found)
}

// fedBack is the retry table as the line sees it.
type fedBack struct {
	*retry.Table
	t *term
}

// Finish implements relay.RetryTable.
func (f fedBack) Finish(results []order.Result) {
	f.t.w.mu.Lock()
	for _, r := range results {
		if r.Event != nil && (r.Returned || r.Request != nil) {
			delete(f.t.fed, r.Event.Position)
		}
	}
	f.t.w.mu.Unlock()
	f.Table.Finish(results)
}

// unfed takes off what has come to its end.
func (t *term) unfed(results []store.Result) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	for _, r := range results {
		delete(t.fed, r.Row.Event.Position)
	}
}

// inspectBudget checks that no more rows are read than the feeder may have: one row is read in any
// case.
func (t *term) inspectBudget(size int64) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	fed := int64(0)
	for _, bytes := range t.fed {
		fed += bytes
	}
	if size > max(t.w.budgetBytes-fed, 1) {
		t.w.failLocked(nil, "I5: %s reads %d bytes of rows, with %d in flight, of %d at most", t.name, size, fed, t.w.budgetBytes)
	}
}

// inspectRound checks what one statement of the writer carries.
func (t *term) inspectRound(rows []*store.Row) {
	bytes := 0
	for _, row := range rows {
		bytes += row.Event.Size()
	}
	if len(rows) > 1 && int64(bytes) > t.w.roundBytes {
		t.w.fail(nil, "I5: %s defers %d bytes at once, of %d at most", t.name, bytes, t.w.roundBytes)
	}
}
