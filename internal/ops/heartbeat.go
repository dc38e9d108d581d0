// Heartbeats of loops, by which /healthz finds one that is stuck.

package ops

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Heartbeat shows that a loop makes progress. Waiting for a broker or a server counts as progress:
// the loop beats while it waits.
type Heartbeat struct {
	name    string
	bound   time.Duration
	running func() (since time.Time) // when the loop began; zero: it does not run
	last    atomic.Int64             // of the last beat, since origin; zero while at rest
}

// origin is the zero of beats. It keeps their times monotonic: setting the clock neither makes a
// loop look stuck nor hides one.
var origin = time.Now()

// NewHeartbeat is one loop, which counts as stuck when it has not beaten for bound. running says
// since when it runs, zero for not now.
func NewHeartbeat(name string, bound time.Duration, running func() (since time.Time)) *Heartbeat {
	return &Heartbeat{name: name, bound: bound, running: running}
}

// NewWork is a loop that says when it waits for something to do, and cannot be stuck then: see
// Work.
func NewWork(name string, bound time.Duration) *Heartbeat {
	h := &Heartbeat{name: name, bound: bound}
	h.running = h.beat
	return h
}

// Work is called by such a loop with each thing that it begins (true), and before it waits (false).
func (h *Heartbeat) Work(atWork bool) {
	if atWork {
		h.Beat()
		return
	}
	h.last.Store(0)
}

// Beat is called by the loop every time around, by any goroutine.
func (h *Heartbeat) Beat() { h.last.Store(int64(time.Since(origin))) }

// beat is the time of the last one, zero for none.
func (h *Heartbeat) beat() time.Time {
	if last := h.last.Load(); last != 0 {
		return origin.Add(time.Duration(last))
	}
	return time.Time{}
}

// Stuck is "" or the sentence that says for how long.
func (h *Heartbeat) Stuck(now time.Time) string {
	since := h.running()
	if since.IsZero() {
		return ""
	}
	if last := h.beat(); last.After(since) {
		since = last
	}
	if silent := now.Sub(since); silent > h.bound {
		return fmt.Sprintf("%s has been stuck for %s (bound %s)", h.name, silent.Round(time.Millisecond), h.bound)
	}
	return ""
}
