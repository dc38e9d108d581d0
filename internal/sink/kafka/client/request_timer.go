// The request in flight, and the timer that watches over it.

package client

import (
	"fmt"
	"sync"
	"time"
)

// requestTimer is the request that is under way, for the timer that watches over it.
type requestTimer struct {
	mu     sync.Mutex
	parts  []*ProducerBatch // nil: none is
	since  time.Time
	stop   func() // ends it
	moved  bool   // stop was called
	silent bool   // the broker was called down over it
	timer  *time.Timer
	due    time.Time // when the request is overdue
	// when the timer does, zero: it does not. Not after due; before it, it is set again then and
	// not for each request
	rings time.Time
}

// begin watches over a request, or a dial, of parts, from now on and after so long; stop must end
// it.
func (f *requestTimer) begin(parts []*ProducerBatch, stop func(), after time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.parts, f.stop, f.since, f.moved, f.silent = parts, stop, now, false, false
	f.wake(now, after)
}

// wake has the timer ring after so long. f.mu is locked.
func (f *requestTimer) wake(now time.Time, after time.Duration) {
	f.due = now.Add(after)
	if f.rings.IsZero() || f.rings.After(f.due) {
		f.rings = f.due
		f.timer.Reset(after)
	}
}

// end is begin's end.
func (f *requestTimer) end() (took time.Duration, moved, silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts, f.stop = nil, nil
	return time.Since(f.since), f.moved, f.silent
}

// checkRequest checks a request that takes long. When other brokers now lead its partitions it is
// given up, and its parts go to the new leaders unchanged. It checks again after an eighth of the
// time that the request has taken, as a part in trouble does.
func (w *worker) checkRequest() {
	f, c := &w.timer, w.cluster
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rings = time.Time{}
	if f.parts == nil {
		return
	}
	if now := time.Now(); now.Before(f.due) { // it rings for an earlier request
		f.wake(now, f.due.Sub(now))
		return
	}
	known := c.Metadata.Load()
	for _, part := range f.parts {
		if l, ok := known.Leader(part.Topic, part.Partition); ok && l.Node != w.queue.Node {
			f.moved = true
			f.stop()
			return
		}
		w.control.Ask(part.Topic)
	}
	lasts := time.Since(f.since)
	if !f.silent && lasts >= SilentAfter {
		f.silent = true
		c.note(w.queue.Node, fmt.Sprintf("broker %d has not answered for %s", w.queue.Node, lasts.Round(time.Second)))
	}
	f.wake(time.Now(), min(max(lasts/8, overdueMin/2), time.Second))
}
