// The request that is under way, and the timer that watches over it.

package kafka

import (
	"fmt"
	"sync"
	"time"
)

// flight is the request that is under way, for the timer that watches over it.
type flight struct {
	mu     sync.Mutex
	parts  []*stream // nil: none is
	since  time.Time
	stop   func() // ends it
	moved  bool   // stop was called
	silent bool   // the broker was called down over it
	timer  *time.Timer
}

// begin watches over a request, or a dial, of parts, from now on and after so long; stop must end it.
func (f *flight) begin(parts []*stream, stop func(), after time.Duration) {
	f.mu.Lock()
	f.parts, f.stop, f.since, f.moved, f.silent = parts, stop, time.Now(), false, false
	f.mu.Unlock()
	f.timer.Reset(after)
}

// end is begin's end.
func (f *flight) end() (took time.Duration, moved, silent bool) {
	f.timer.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts, f.stop = nil, nil
	return time.Since(f.since), f.moved, f.silent
}

// overdue looks after a request that takes long. When others lead meanwhile what the broker led it is given up, and its
// parts go to the new leaders as they are. It looks again after an eighth of the time that the request has taken, as a
// part in trouble does.
func (w *worker) overdue() {
	f, s := &w.flight, w.broker.sink
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.parts == nil {
		return
	}
	known := s.known.Load()
	for _, part := range f.parts {
		if l, ok := known.leader(part.topic, part.partition); ok && l.node != w.broker.node {
			f.moved = true
			f.stop()
			return
		}
		s.control.ask(part.topic)
	}
	lasts := time.Since(f.since)
	if !f.silent && lasts >= silentAfter {
		f.silent = true
		s.note(w.broker, fmt.Sprintf("broker %d has not answered for %s", w.broker.node, lasts.Round(time.Second)))
	}
	f.timer.Reset(min(max(lasts/8, pauseMin), time.Second))
}
