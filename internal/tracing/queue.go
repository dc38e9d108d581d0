// The spans that wait for their export. OpenTelemetry's own processor drops without counting, and
// reads OTEL_BSP_* without bounds.

package tracing

import "sync"

// queue is bounded: the spans that wait and those being exported are at most so many.
type queue struct {
	most, batch int
	full        chan struct{} // that a batch waits

	mu       sync.Mutex
	open     bool
	waiting  []*span
	reserved int // places taken: spans that wait, and those whose export has not ended
}

func newQueue(most, batch int) *queue {
	return &queue{most: most, batch: min(batch, most), full: make(chan struct{}, 1)}
}

// reserve takes a place for a span, to be filled by push.
func (q *queue) reserve() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.open || q.reserved >= q.most {
		return false
	}
	q.reserved++
	return true
}

func (q *queue) push(s *span) {
	q.mu.Lock()
	q.waiting = append(q.waiting, s)
	n := len(q.waiting)
	q.mu.Unlock()
	if n >= q.batch {
		select {
		case q.full <- struct{}{}:
		default:
		}
	}
}

// take is a batch of those that wait, the oldest, in to[:0]; none when there are fewer than least.
func (q *queue) take(to []*span, least int) []*span {
	q.mu.Lock()
	defer q.mu.Unlock()
	to = to[:0]
	if len(q.waiting) < least {
		return to
	}
	n := min(len(q.waiting), q.batch)
	to = append(to, q.waiting[:n]...)
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	return to
}

// done gives back the places of what was taken.
func (q *queue) done(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reserved -= n
}

// setOpen lets spans in, or no more.
func (q *queue) setOpen(open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = open
}
