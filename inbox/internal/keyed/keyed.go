// Package keyed runs tasks on a fixed number of workers, those of one key one after another.
package keyed

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Workers do tasks of type T. Tasks of one key are done in the order in which they were added.
type Workers[T any] struct {
	queues []chan T
	seed   maphash.Seed
	next   atomic.Uint64 // the worker of the next task without a key
	done   sync.WaitGroup
}

// Start starts workers. Each holds at most depth tasks that wait, besides the one it does.
func Start[T any](workers, depth int, do func(T)) *Workers[T] {
	w := &Workers[T]{queues: make([]chan T, max(workers, 1)), seed: maphash.MakeSeed()}
	for i := range w.queues {
		queue := make(chan T, depth)
		w.queues[i] = queue
		w.done.Go(func() {
			for task := range queue {
				do(task)
			}
		})
	}
	return w
}

// Add gives a task to the worker of its key, and waits while that one has too many. The task is not
// added when ctx ends before. Add must not be called after Close, nor for one key concurrently.
func (w *Workers[T]) Add(ctx context.Context, key string, task T) error {
	n := w.next.Add(1)
	if key != "" {
		n = maphash.String(w.seed, key)
	}
	select {
	case w.queues[n%uint64(len(w.queues))] <- task:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close waits until all tasks are done. They must not take long once they are not wanted any more:
// do sees to that.
func (w *Workers[T]) Close() {
	for _, queue := range w.queues {
		close(queue)
	}
	w.done.Wait()
}
