// Workers: a fixed number of goroutines do tasks, and tasks with the same key one after another.
// The consumers keep the order of a key with them.

package work

import (
	"context"
	"hash/maphash"
	"sync"
)

// Workers do tasks of type T. Tasks of one key are done in the order in which they were added, by
// one worker. Those without a key are done by whichever worker is free.
type Workers[T any] struct {
	queues       []*queue[T]   // each worker's own queue, with the tasks of some keys
	keyless      *queue[T]     // the queue of all workers, with tasks that have no key
	waiting      chan struct{} // has one element for each task in a queue
	endedWorkers chan struct{} // has one element for each worker that has ended
	seed         maphash.Seed  // of the hash that chooses the worker of a key
}

// queue has the tasks that wait. Its channel counts them and takes no memory for them; tasks grows
// only as needed.
type queue[T any] struct {
	count chan struct{}
	mu    sync.Mutex
	tasks []T
}

// Start starts the workers. At most depth tasks wait, in all queues together.
func Start[T any](workers, depth int, do func(T)) *Workers[T] {
	workers, depth = max(workers, 1), max(depth, 1)
	w := &Workers[T]{
		keyless: &queue[T]{count: make(chan struct{}, depth)}, waiting: make(chan struct{}, depth),
		endedWorkers: make(chan struct{}, workers), seed: maphash.MakeSeed(),
	}
	for range workers {
		own := &queue[T]{count: make(chan struct{}, depth)}
		w.queues = append(w.queues, own)
		go func() {
			w.runWorker(own, do)
			w.endedWorkers <- struct{}{}
		}()
	}
	return w
}

// runWorker does tasks until its own queue and the common one are closed and empty.
func (w *Workers[T]) runWorker(queue *queue[T], do func(T)) {
	own, without := queue.count, w.keyless.count
	for own != nil || without != nil {
		select {
		case _, ok := <-own:
			if !ok {
				own = nil
				continue
			}
			<-w.waiting
			do(queue.pop())
		case _, ok := <-without:
			if !ok {
				without = nil
				continue
			}
			<-w.waiting
			do(w.keyless.pop())
		}
	}
}

// Add gives a task to the worker of its key. It waits while depth tasks wait. When ctx ends first,
// the task is not added. Add must not be called after Close. It may be called concurrently, but
// then nothing orders the two tasks, as for a key in a topic and in a retry topic.
func (w *Workers[T]) Add(ctx context.Context, key string, task T) error {
	select {
	case w.waiting <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if key == "" {
		w.keyless.push(task)
	} else {
		w.queues[maphash.String(w.seed, key)%uint64(len(w.queues))].push(task)
	}
	return nil
}

// push never blocks, because a queue never has more tasks than may wait in all.
func (q *queue[T]) push(task T) {
	q.mu.Lock()
	q.tasks = append(q.tasks, task)
	q.mu.Unlock()
	q.count <- struct{}{}
}

func (q *queue[T]) pop() T {
	q.mu.Lock()
	defer q.mu.Unlock()
	var none T
	task := q.tasks[0]
	q.tasks[0] = none // so that a finished task can be collected
	q.tasks = q.tasks[1:]
	return task
}

// Close waits until all tasks are done, or until ctx ends. It returns how many workers still have a
// task. These workers go on, also with the tasks that wait behind it; do must then do nothing.
func (w *Workers[T]) Close(ctx context.Context) int {
	for _, queue := range w.queues {
		close(queue.count)
	}
	close(w.keyless.count)
	for running := len(w.queues); running > 0; running-- {
		select {
		case <-w.endedWorkers:
		case <-ctx.Done():
			return running - len(w.endedWorkers)
		}
	}
	return 0
}
