// The request in flight, and the timer that watches over it.

package client

import (
	"fmt"
	"sync"
	"time"
)

// requestTimer is the state of the request that is under way, and the timer that watches it.
type requestTimer struct {
	mu     sync.Mutex
	parts  []*ProducerBatch // nil: none is
	since  time.Time
	stop   func() // ends it
	moved  bool   // stop was called, because others lead
	silent bool   // the broker was reported as down over it
	timer  *time.Timer
}

// begin watches a request, or a dial, for parts. The request is overdue after the time after; stop
// ends it.
func (f *requestTimer) begin(parts []*ProducerBatch, stop func(), after time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts, f.stop, f.since, f.moved, f.silent = parts, stop, time.Now(), false, false
	f.timer.Reset(after)
}

// end ends the watch.
func (f *requestTimer) end() (took time.Duration, moved, silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer.Stop()
	f.parts, f.stop = nil, nil
	return time.Since(f.since), f.moved, f.silent
}

// checkRequest checks a request that is overdue. When another broker now leads one of its
// partitions the request is given up, and its parts go to the new leaders unchanged. Otherwise it
// checks again after an eighth of the request's time, as a part in trouble does.
func (w *worker) checkRequest() {
	f, c := &w.timer, w.cluster
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.parts == nil {
		return
	}
	known := c.Metadata.Load()
	for _, part := range f.parts {
		if l, ok := known.Leader(part.Topic, part.Partition); ok && l.Node != w.queue.Node {
			f.moved = true
			f.stop()
			return
		}
		w.control.RequestMetadata(part.Topic)
	}
	lasts := time.Since(f.since)
	if !f.silent && lasts >= SilentAfter {
		f.silent = true
		c.note(w.queue.Node, fmt.Sprintf("broker %d has not answered for %s", w.queue.Node, lasts.Round(time.Second)))
	}
	f.timer.Reset(min(max(lasts/8, overdueMin/2), time.Second))
}
