// What is set for one direction of a proxy.

package netproxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// way is what is set for one direction, shared by all connections.
type way struct {
	slow atomic.Bool // any of the below is set: bytes take the queue

	mu      sync.Mutex
	held    bool
	heldSum int64         // bytes kept back since Hold
	changed chan struct{} // closed and replaced when anything here changes
	delay   time.Duration
	rate    int // bytes per second and connection; 0: no limit
}

func (w *way) set(change func(*way)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
	w.slow.Store(w.held || w.delay > 0 || w.rate > 0)
	w.notify()
}

// notify wakes whoever waits for a change; w.mu is locked.
func (w *way) notify() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// arrive counts n bytes that were read and says when they are due.
func (w *way) arrive(n int) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held {
		w.heldSum += int64(n)
		w.notify()
	}
	if w.delay == 0 {
		return time.Time{}
	}
	return time.Now().Add(w.delay)
}

func (w *way) state() (held bool, rate int, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held, w.rate, w.changed
}
