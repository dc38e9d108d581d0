// One broker of the cluster: the queue of what is to be sent to it, and the two workers that send it.

package kafka

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// workers is how many requests to one broker are under way at a time. They carry different partitions. The second
	// fills the time in which the broker writes and replicates the first; measured 1.6 times as fast as one.
	workers = 2
	// maxParts bounds the batches in one request.
	maxParts = 256
)

// broker is a node that leads partitions. Its workers take what is queued as soon as they are free: one request carries
// what has come together while the requests before it were under way, so batches are merged under load, and a batch that
// comes alone goes at once.
//
// A broker answers a produce request when all of its batches are replicated, so one partition whose replicas do not keep up
// delays the others of its request. The batches of slow partitions therefore wait in a queue of their own and travel among
// themselves, in one request at a time.
type broker struct {
	sink *Sink
	node int32
	// missed says that the broker counts as down over a request that it has not answered and that was given up. An answer to
	// another one ends that; so does the next attempt to connect, which says by itself how things are.
	missed atomic.Bool

	mu       sync.Mutex
	queue    []*stream // in the order they came
	apart    []*stream // the same, of those that are slow
	apartOut bool      // a worker has some of apart
	states   [workers]workerState

	workers [workers]worker
}

func newBroker(s *Sink, node int32) *broker {
	b := &broker{sink: s, node: node}
	for i := range b.workers {
		b.workers[i].init(b, i)
	}
	return b
}

// push queues a stream's batch. The workers are told by signal.
func (b *broker) push(s *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.slow {
		b.apart = append(b.apart, s)
	} else {
		b.queue = append(b.queue, s)
	}
}

// signal wakes a worker for what was pushed.
func (b *broker) signal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake()
}

// workerState is what a worker does.
type workerState uint8

const (
	busy      workerState = iota
	returning             // it delivers answers, and takes what is queued at once afterwards
	cold                  // it waits to be woken, and has no connection
	warm                  // it waits to be woken
)

// wake wakes a worker, one with a connection if there is one: the other opens its own only when there is work for two, and
// nobody waits for that who need not. While a worker is returning nobody is woken: it takes all that the lanes push while it
// delivers. b.mu is locked.
func (b *broker) wake() {
	if len(b.queue) == 0 && (len(b.apart) == 0 || b.apartOut) || slices.Contains(b.states[:], returning) {
		return
	}
	i := slices.Index(b.states[:], warm)
	if i < 0 {
		i = slices.Index(b.states[:], cold)
	}
	if i >= 0 {
		b.states[i] = busy
		b.workers[i].woken <- struct{}{}
	}
}

// set says what a worker does.
func (b *broker) set(worker int, state workerState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.states[worker] = state
	b.wake()
}

// withdraw takes back what push queued; false when a worker has it.
func (b *broker) withdraw(s *stream) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range []*[]*stream{&b.queue, &b.apart} {
		if i := slices.Index(*q, s); i >= 0 {
			*q = slices.Delete(*q, i, i+1)
			return true
		}
	}
	return false
}

// take puts into parts what goes into the worker's next request; apart says that these are slow. When there is
// nothing the worker is idle, and woken when there is.
func (b *broker) take(w *worker) (parts []*stream, apart bool) {
	parts = w.parts[:0]
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.apart) > 0 && !b.apartOut {
		b.apart, parts = pick(b.apart, parts)
		b.apartOut, apart = true, true
	} else {
		b.queue, parts = pick(b.queue, parts)
	}
	switch {
	case len(parts) > 0:
		b.states[w.number] = busy
		b.wake() // for what is left
	case w.conn == nil:
		b.states[w.number] = cold
	default:
		b.states[w.number] = warm
	}
	return parts, apart
}

// pick moves from queue to parts what one request carries: batches of different partitions, of maxRequest bytes in all, or
// one that is larger.
func pick(queue, parts []*stream) (rest, picked []*stream) {
	rest, size := queue[:0], 0
	for i, s := range queue {
		switch {
		case len(parts) == maxParts, len(parts) > 0 && size >= maxRequest:
			rest = append(rest, queue[i:]...)
			clear(queue[len(rest):])
			return rest, parts
		case len(parts) > 0 && size+len(s.bytes) > maxRequest, slices.ContainsFunc(parts, s.samePartition):
			rest = append(rest, s)
		default:
			parts = append(parts, s)
			size += len(s.bytes)
		}
	}
	clear(queue[len(rest):])
	return rest, parts
}

// samePartition reports whether both streams lead to one partition: two lanes have such when a topic was made anew with
// fewer partitions.
func (s *stream) samePartition(t *stream) bool {
	return s.partition == t.partition && s.topic == t.topic
}

// returned says that a worker has delivered what it took from apart.
func (b *broker) returned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.apartOut = false
}

// run runs the workers until ctx is done. What is queued then stays queued, for withdraw.
func (b *broker) run(ctx context.Context) {
	var running sync.WaitGroup
	for i := range b.workers {
		running.Go(func() { b.workers[i].run(ctx) })
	}
	running.Wait()
}
