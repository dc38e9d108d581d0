// What waits to be sent to one broker, and which of its workers is woken.

package client

import (
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// MaxRequest bounds what is merged into one request, in bytes. A larger batch goes alone.
	MaxRequest = 4 << 20
	// workers is how many requests to one broker are under way at a time. They carry different
	// partitions. The second fills the time in which the broker writes and replicates the first;
	// measured 1.6 times as fast as one.
	workers = 2
	// maxParts bounds the batches in one request.
	maxParts = 256
)

// queue is what is to be sent to a broker. Its workers take what is queued as soon as they are
// free: one request carries what has come together while the requests before it were under way, so
// batches are merged under load, and a batch that comes alone goes at once.
//
// A broker answers a produce request when all of its batches are replicated, so one partition whose
// replicas do not keep up delays the others of its request. The batches of slow partitions
// therefore wait in a queue of their own and travel among themselves, in one request at a time.
type queue struct {
	Node int32
	// missed says that the broker counts as down over a request that it has not answered and that
	// was given up. An answer to another one ends that; so does the next attempt to connect, which
	// reports its own result.
	missed atomic.Bool

	mu       sync.Mutex
	Waiting  []*ProducerBatch // in the order they came
	Apart    []*ProducerBatch // the same, of those that are slow
	apartOut bool             // a worker has some of apart
	states   [workers]workerState
	woken    [workers]chan struct{} // cap 1: the worker was idle, and there is work
}

// Push queues a batch. Signal wakes a worker for it.
func (q *queue) Push(s *ProducerBatch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.Slow {
		q.Apart = append(q.Apart, s)
	} else {
		q.Waiting = append(q.Waiting, s)
	}
}

// Signal wakes a worker for what was pushed.
func (q *queue) Signal() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake()
}

// workerState is what a worker does.
type workerState uint8

const (
	busy      workerState = iota
	returning             // it delivers answers, and takes what is queued at once afterwards
	cold                  // it waits to be woken, and has no connection
	warm                  // it waits to be woken
)

// wake wakes a worker, one with a connection if there is one: the other opens its own only when
// there is work for two, and nobody waits for that who need not. While a worker is returning nobody
// is woken: it takes all that the lanes push while it delivers. q.mu is locked.
func (q *queue) wake() {
	if len(q.Waiting) == 0 && (len(q.Apart) == 0 || q.apartOut) || slices.Contains(q.states[:], returning) {
		return
	}
	i := slices.Index(q.states[:], warm)
	if i < 0 {
		i = slices.Index(q.states[:], cold)
	}
	if i >= 0 {
		q.states[i] = busy
		q.woken[i] <- struct{}{}
	}
}

// set says what a worker does.
func (q *queue) set(worker int, state workerState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.states[worker] = state
	q.wake()
}

// Withdraw takes back what push queued; false when a worker has it.
func (q *queue) Withdraw(s *ProducerBatch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, list := range []*[]*ProducerBatch{&q.Waiting, &q.Apart} {
		if i := slices.Index(*list, s); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
			return true
		}
	}
	return false
}

// take returns what goes into the worker's next request, in the memory of parts; apart says that
// these are slow. When there is nothing the worker is idle, and woken when there is.
func (q *queue) take(worker int, parts []*ProducerBatch, connected bool) (picked []*ProducerBatch, apart bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.Apart) > 0 && !q.apartOut {
		q.Apart, parts = pick(q.Apart, parts)
		q.apartOut, apart = true, true
	} else {
		q.Waiting, parts = pick(q.Waiting, parts)
	}
	switch {
	case len(parts) > 0:
		q.states[worker] = busy
		q.wake() // for what is left
	case !connected:
		q.states[worker] = cold
	default:
		q.states[worker] = warm
	}
	return parts, apart
}

// pick moves from queue to parts what one request carries: batches of different partitions, of
// maxRequest bytes in all, or one that is larger.
func pick(queue, parts []*ProducerBatch) (rest, picked []*ProducerBatch) {
	rest, size := queue[:0], 0
	for i, s := range queue {
		switch {
		case len(parts) == maxParts, len(parts) > 0 && size >= MaxRequest:
			rest = append(rest, queue[i:]...)
			clear(queue[len(rest):])
			return rest, parts
		case len(parts) > 0 && size+len(s.Bytes) > MaxRequest, slices.ContainsFunc(parts, s.samePartition):
			rest = append(rest, s)
		default:
			parts = append(parts, s)
			size += len(s.Bytes)
		}
	}
	clear(queue[len(rest):])
	return rest, parts
}

// returned says that a worker has delivered what it took from apart.
func (q *queue) returned() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.apartOut = false
}
