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
	queues  []*queue[T]   // of the workers
	without *queue[T]     // a key
	waiting chan struct{} // one for each task in a queue
	ended   chan struct{} // one for each worker that has ended
	seed    maphash.Seed
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
		without: &queue[T]{count: make(chan struct{}, depth)}, waiting: make(chan struct{}, depth),
		ended: make(chan struct{}, workers), seed: maphash.MakeSeed(),
	}
	for range workers {
		own := &queue[T]{count: make(chan struct{}, depth)}
		w.queues = append(w.queues, own)
		go func() {
			w.work(own, do)
			w.ended <- struct{}{}
		}()
	}
	return w
}

// work does tasks until both queues are closed and empty.
func (w *Workers[T]) work(queue *queue[T], do func(T)) {
	own, without := queue.count, w.without.count
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
			do(w.without.pop())
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
		w.without.push(task)
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
// still have one. Their tasks are done some time, and so are those that wait for them: do must see
// to it that it does nothing then.
func (w *Workers[T]) Close(ctx context.Context) int {
	for _, queue := range w.queues {
		close(queue.count)
	}
	close(w.without.count)
	for running := len(w.queues); running > 0; running-- {
		select {
		case <-w.ended:
		case <-ctx.Done():
			return running - len(w.ended)
		}
	}
	return 0
}
