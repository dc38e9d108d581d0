// Offering rows to their lanes.

package retry

import (
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// feed reads the ordering groups that are ready, and offers their rows that may go.
func (f *feeder) feed(ctx context.Context) (bool, error) {
	f.swept = false
	rows, bytes := f.room()
	if len(f.ready.order) == 0 || rows == 0 {
		return false, nil
	}
	began := time.Now()
	taken := f.readable(f.atRest(f.ready.take(min(len(f.ready.order), maxGroups, rows))))
	if len(taken) == 0 {
		return true, nil
	}
	groups, here := f.groupsToRead(taken)
	// This comes before acked is read: what the writer does not have now is not above acked.
	acked := f.s.writer.acked.Load()
	perGroup := min(max(rows/len(groups), 1), maxRun)
	runs, err := f.read(ctx, groups, perGroup, bytes, acked)
	if err != nil {
		f.ready.putBack(taken)
		return false, err
	}
	taken = f.readable(taken)
	var read int64
	of := make(map[uint64]*store.Run, len(runs))
	for i := range runs {
		of[runs[i].Group] = &runs[i]
		for _, row := range runs[i].Rows {
			read += int64(row.Event.Size())
		}
	}
	var out []*run
	for _, e := range taken {
		if r := f.decide(e, of[e.group], here[e.group]); r != nil {
			// otherwise its last row is the ordering group's last
			r.more = r.more || len(r.rows) == perGroup || read >= bytes/2
			f.book(r)
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		f.sweepCost += time.Since(began)
	}
	f.launch(out)
	return true, nil
}

// hand says whether the writer has rows of an ordering group, and whether they are stuck.
type hand struct{ here, stuck bool }

// atRest leaves out the ordering groups that are in flight: they are readied again when they have
// finished.
func (f *feeder) atRest(taken []*readied) []*readied {
	f.taken += len(taken)
	return slices.DeleteFunc(taken, func(e *readied) bool {
		r := f.runs[e.group]
		if r != nil {
			r.again = true
		}
		return r != nil
	})
}

// groupsToRead lists the ordering groups to read, and says what the writer has of them.
func (f *feeder) groupsToRead(taken []*readied) (groups []uint64, here map[uint64]hand) {
	here = make(map[uint64]hand, len(taken))
	for _, e := range taken {
		var h hand
		h.here, h.stuck = f.s.writer.inHand(e.group)
		here[e.group] = h
		groups = append(groups, e.group)
	}
	return groups, here
}

// decide decides what of an ordering group may go now: a run, or nil. read is nil when the tables
// hold nothing of it.
func (f *feeder) decide(e *readied, read *store.Run, h hand) *run {
	switch {
	case read == nil:
		f.exhausted(e.group, h)
		return nil
	case read.Blocked:
		f.notNow(e.group)
		return f.waits(e, read)
	case len(read.Rows) == 0 && h.here:
		// its first row is not seen to be committed, and the writer will notify; or it had no room
		if h.stuck {
			f.notNow(e.group)
		}
		f.readyLater(e.group, 100*time.Millisecond)
		return nil
	case len(read.Rows) == 0: // it had no room
		f.makeReady(e.group, e.due)
		return nil
	}
	head := read.Rows[0]
	at, known := f.place(head)
	switch now := time.Now(); {
	case head.NextAttempt.After(now):
		// what is due, if anything, is a later row, which was refused in the same call
		if head.NextAttempt.Before(f.dueAt) {
			f.dueAt = head.NextAttempt
		}
		f.notNow(e.group)
		return f.waits(e, read)
	case !known:
		f.notNow(e.group)
		f.readyLater(e.group, time.Second)
		return nil
	case f.isPaused(at, e.group):
		f.notNow(e.group)
		return f.waits(e, read)
	case f.lanes[at.Lane] >= laneRows:
		return f.enough(e, read, at.Lane)
	}
	r := f.newRun(e.group, at, head)
	for _, row := range read.Rows {
		// Nothing passes a row that may not go: whatever it was deferred for, the rest of its
		// ordering group stays behind it.
		p, ok := f.place(row)
		if !ok || p.Lane != at.Lane || f.isPaused(p, 0) || row != head && row.NextAttempt.After(time.Now()) {
			r.more = true
			break
		}
		r.add(row, p)
	}
	return r
}

// exhausted handles an ordering group that has nothing in the tables. If its lane may still keep
// new events of it, then either rows are on their way to the tables, or it is counted with its
// exchange or topic, of which other ordering groups are left.
func (f *feeder) exhausted(group uint64, h hand) {
	o, owed := f.owed[group]
	switch {
	case !owed:
	case h.stuck:
		f.notNow(group)
	case h.here: // the writer will notify
	default:
		delete(f.owed, group)
		f.owedWhole[o] = group
		f.sweep(target{exchangeOrTopic: o.exchangeOrTopic})
	}
}

// waits handles an ordering group that is due and still may not go. What it waits for will ready
// it, so its NextAttempt is removed: otherwise Due would list it again and again, instead of
// others.
func (f *feeder) waits(e *readied, read *store.Run) *run {
	if !e.due {
		return nil
	}
	r := &run{group: e.group, judged: true}
	for _, row := range read.Rows {
		if !row.NextAttempt.IsZero() && !row.NextAttempt.After(time.Now()) {
			r.results = append(r.results, store.Result{Row: row, Kind: store.Backoff, Attempts: row.Attempts})
		}
	}
	if len(r.results) == 0 {
		return nil
	}
	return r
}

// enough handles an ordering group whose lane has enough rows for now.
func (f *feeder) enough(e *readied, read *store.Run, lane int) *run {
	if r := f.waits(e, read); r != nil {
		f.notNow(e.group)
		r.again = true // it is set aside when it comes back
		return r
	}
	if !f.ready.setAside(e, lane) {
		f.notNow(e.group)
	}
	return nil
}
