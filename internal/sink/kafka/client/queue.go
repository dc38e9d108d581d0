// The queue of batches for one broker, and which of the broker's workers is woken.

package client

import (
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// MaxRequest bounds what is merged into one request, in bytes. A larger batch goes alone.
	MaxRequest = 4 << 20
	// workers is how many requests to one broker are under way at a time, for different partitions.
	// The second fills the time in which the broker writes and replicates the first: measured, two
	// are 1.6 times as fast as one.
	workers = 2
	// maxParts bounds the batches in one request.
	maxParts = 256
)

// queue has the batches for one broker. Its workers take what is queued as soon as they are free.
// One request carries what has come while the requests before it were under way. So batches are
// merged under load, and a batch that comes alone goes at once.
//
// A broker answers a produce request when all of its batches are replicated. So a partition whose
// replicas do not keep up delays the others of its request. The batches of such slow partitions
// wait in a queue of their own and go in requests of their own, one at a time.
type queue struct {
	Node int32
	// missed is set while the broker counts as down because a request was given up without an
	// answer. An answer to another request clears it, and so does an attempt to connect.
	missed atomic.Bool

	mu       sync.Mutex
	Waiting  []*ProducerBatch // in the order they came
	Apart    []*ProducerBatch // the same, of slow partitions
	apartOut bool             // a worker has some of Apart
	states   [workers]workerState
	woken    [workers]chan struct{} // cap 1: the worker was idle, and there is work
}

// Push queues a batch. Signal wakes a worker for it.
func (q *queue) Push(b *ProducerBatch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b.Slow {
		q.Apart = append(q.Apart, b)
	} else {
		q.Waiting = append(q.Waiting, b)
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
	returning             // it delivers answers, and then takes what is queued
	cold                  // it waits to be woken, and has no connection
	warm                  // it waits to be woken
)

// wake wakes a worker, preferably one with a connection: the other opens its own only when there is
// work for two. While a worker is returning nobody is woken, because it takes all that the lanes
// push while it delivers. q.mu is locked.
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

// Withdraw takes back what Push queued; false when a worker has it.
func (q *queue) Withdraw(b *ProducerBatch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, list := range []*[]*ProducerBatch{&q.Waiting, &q.Apart} {
		if i := slices.Index(*list, b); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
			return true
		}
	}
	return false
}

// take returns the batches of the worker's next request, in the memory of parts; apart: they are of
// slow partitions. Without any, the worker counts as idle and will be woken.
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

// pick moves from queue to parts what one request carries: batches of different partitions with
// MaxRequest bytes in all, or one larger batch.
func pick(queue, parts []*ProducerBatch) (rest, picked []*ProducerBatch) {
	rest, size := queue[:0], 0
	for i, b := range queue {
		switch {
		case len(parts) == maxParts, len(parts) > 0 && size >= MaxRequest:
			rest = append(rest, queue[i:]...)
			clear(queue[len(rest):])
			return rest, parts
		case len(parts) > 0 && size+len(b.Bytes) > MaxRequest, slices.ContainsFunc(parts, b.samePartition):
			rest = append(rest, b)
		default:
			parts = append(parts, b)
			size += len(b.Bytes)
		}
	}
	clear(queue[len(rest):])
	return rest, parts
}

// returned is called when a worker has delivered the batches that it took from Apart.
func (q *queue) returned() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.apartOut = false
}
