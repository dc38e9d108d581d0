// Tasks on a fixed number of workers, those of one key one after another.

package work

import (
	"context"
	"hash/maphash"
	"sync"
)

// Workers do tasks of type T. Tasks of one key are done in the order in which they were added, by
// one worker. Those without a key are done by whichever worker is free.
type Workers[T any] struct {
	queues       []*queue[T]   // of each worker, which has the tasks of some keys
	keyless      *queue[T]     // of all workers, with the tasks that have no key
	waiting      chan struct{} // one for each task in a queue
	endedWorkers chan struct{} // one for each worker that has ended
	seed         maphash.Seed  // of the hash that gives a key its worker
}

// queue has the tasks that wait, and no room for more. Its channel counts them: what it holds takes
// no memory.
type queue[T any] struct {
	count chan struct{}
	mu    sync.Mutex
	tasks []T
}

// Start starts workers. At most depth tasks wait, of all workers.
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

// runWorker does tasks until both queues are closed and empty.
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

// Add gives a task to the worker of its key, and waits while there are too many. The task is not
// added when ctx ends before. Add must not be called after Close. It may be called concurrently,
// and has no order then, as of a key in a topic and in a retry topic.
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

// push never waits: no queue has more tasks than wait in all.
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
	q.tasks[0] = none // what is done is not kept
	q.tasks = q.tasks[1:]
	return task
}

// Close waits until all tasks are done, and not after ctx has ended. It returns how many workers
// still have one. These workers go on, with the tasks that wait behind it, too: do must then do
// nothing.
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
