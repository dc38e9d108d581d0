// A call to the sink, and what follows from its outcomes.

package relay

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// publish makes the call and handles its outcomes.
func (ln *lane) publish(ctx context.Context) {
	c := &ln.call
	err := ln.line.cfg.Sink.Publish(ctx, ln.n, c.events, c.outcomes)
	now := time.Now()
	refused, unknown := ln.judge(now)
	ln.open.compact()
	if ctx.Err() == nil {
		if hook := ln.line.cfg.Hooks.Unavailable; hook != nil && err != nil {
			hook(ln.n, unknown, err)
		}
		ln.schedule(now, refused, err)
		ln.logFailing(err)
	}
	if len(c.confirmed) > 0 {
		ln.settle(now)
	}
	ln.handOver()
}

// judge handles the outcomes of the call, except the confirmed new events: settle handles those.
func (ln *lane) judge(now time.Time) (refused, unknown int) {
	c := &ln.call
	c.confirmed, c.rows, c.rejected = c.confirmed[:0], c.rows[:0], c.rejected[:0]
	for i, it := range c.items {
		switch out := c.outcomes[i]; out.State {
		case sink.Confirmed:
			it.state = sink.Confirmed
			if it.fed != nil {
				c.rows = append(c.rows, it)
			} else {
				c.confirmed = append(c.confirmed, it)
			}
		case sink.Rejected:
			refused++
			c.rejected = append(c.rejected, it)
			if !ln.oneByOne && ln.open.undecided(it) {
				// an earlier event of its ordering group must be deferred first
				it.state = sink.Unsent
				continue
			}
			it.state = sink.Rejected
			ln.reject(it, cmp.Or(out.Fault, &unexplained), now)
		case sink.Unsent:
			// This call did not send the item: if it was in doubt before, it stays in doubt.
		default:
			unknown++
			it.state = sink.Unknown
		}
	}
	for _, it := range c.rejected {
		if !ln.oneByOne {
			ln.open.markUnsentBehind(it)
		}
	}
	if len(c.rows) > 0 {
		ln.line.pauses.confirmed(c.rows, now)
		ln.reportConfirmed(c.rows, now)
		for _, it := range c.rows {
			ln.rowConfirmed(it)
		}
	}
	// after the loop above, in which a row that passed it may have begun a cut-over
	for _, it := range c.rejected {
		if it.fed != nil && it.fed.Outcome.State == sink.Rejected {
			ln.returnRest(it)
		}
	}
	return refused, unknown
}

// unexplained stands in for the reason of a sink that gives none.
var unexplained = sink.Fault{Class: sink.Transient, Reason: sink.Invalid, Text: "rejected without a reason"}

// takeProbed handles the outcome of a row that was sent apart, as judge handles those of a call.
// One in doubt goes back to the table, where it stays the first of its ordering group.
func (ln *lane) takeProbed(p probed) {
	c := &ln.call
	c.items, c.outcomes = append(c.items[:0], p.item), append(c.outcomes[:0], p.outcome)
	if p.outcome.State == sink.Confirmed || p.outcome.State == sink.Rejected {
		ln.judge(time.Now())
		return
	}
	ln.returnRow(p.item, sink.Outcome{State: sink.Unsent})
	ln.returnRest(p.item)
}

// settle settles the confirmed new events of the call. First the tracker counts them, then the
// events that waited for them may go, and last their memory goes back to the budget.
func (ln *lane) settle(now time.Time) {
	c := &ln.call
	ln.line.pauses.confirmed(c.confirmed, now)
	ln.line.tracker.settle(c.confirmed)
	ln.reportConfirmed(c.confirmed, now)
	for _, it := range c.confirmed {
		if g := ln.groups[it.group]; g != nil && g.front == it {
			g.front = nil
			ln.advance(g)
		}
	}
	ln.line.budget.release(c.confirmed)
}

func (ln *lane) reportConfirmed(items []*item, now time.Time) {
	if published := ln.line.cfg.Hooks.Published; published != nil {
		for _, it := range items {
			published(ln.n, &it.ev, it.refusals(), now)
		}
	}
	hook := ln.line.cfg.Hooks.Confirmed
	if hook == nil {
		return
	}
	c := &ln.call
	c.events = c.events[:0]
	for _, it := range items {
		c.events = append(c.events, &it.ev)
	}
	hook(ln.n, c.events, now)
}

// schedule sets when the next call may be made, and how large it may be. The time depends on
// whether this call confirmed or rejected something, the size on whether it failed or confirmed
// something.
func (ln *lane) schedule(now time.Time, refused int, err error) {
	confirmed := len(ln.call.confirmed) + len(ln.call.rows)
	ln.notBefore = time.Time{}
	if confirmed+refused > 0 {
		ln.fails = 0
	} else if ln.fails++; ln.fails > 1 {
		// after the first failure the call is made again at once: the connection broke, and Publish
		// waits for a new one
		ln.notBefore = now.Add(spin.after(ln.fails - 2))
	}
	switch {
	case err != nil:
		ln.limit = 1
	case confirmed > 0:
		ln.limit = min(2*ln.limit, sink.MaxCallEvents)
	}
}

// handOver gives the retry table its events and rows. The lane calls it apart from all other work,
// because the retry table takes locks.
func (ln *lane) handOver() {
	if len(ln.deferred) > 0 {
		ln.line.cfg.RetryTable.Defer(ln.deferred)
		ln.deferred = nil
	}
	if len(ln.returned) > 0 {
		ln.line.cfg.RetryTable.Fed(ln.returned)
		ln.returned = nil
	}
}

// logFailing logs that calls fail in a row. It logs again when the error text changes, and when
// calls succeed again. A sink waits inside Publish while its broker is away, and logs that itself.
// So one failed call means only that a connection ended; two in a row are a fault that the sink
// does not log.
func (ln *lane) logFailing(err error) {
	switch {
	case ln.fails == 0 && ln.failing != "":
		ln.line.log.Info("publishing works again", zap.Int("lane", ln.n))
		ln.failing = ""
	case ln.fails > 1 && err != nil && err.Error() != ln.failing:
		ln.failing = err.Error()
		ln.line.log.Warn("publishing failed: it is tried again, nothing is dropped", zap.Int("lane", ln.n), zap.Error(err))
	}
}
