// Package keyed runs tasks on a fixed number of workers, those of one key one after another.
package keyed

import (
	"context"
	"hash/maphash"
	"sync"
)

// Workers do tasks of type T. Tasks of one key are done in the order in which they were added, by
// one worker. Those without a key are done by whichever worker is free.
type Workers[T any] struct {
	queues  []chan T // of the workers
	without chan T   // a key
	seed    maphash.Seed
	done    sync.WaitGroup
}

// Start starts workers. At most depth tasks wait for each, and as many that have no key.
func Start[T any](workers, depth int, do func(T)) *Workers[T] {
	w := &Workers[T]{queues: make([]chan T, max(workers, 1)), without: make(chan T, depth), seed: maphash.MakeSeed()}
	for i := range w.queues {
		queue := make(chan T, depth)
		w.queues[i] = queue
		w.done.Go(func() { work(queue, w.without, do) })
	}
	return w
}

// work does tasks until both queues are closed and empty.
func work[T any](own, without <-chan T, do func(T)) {
	for own != nil || without != nil {
		select {
		case task, ok := <-own:
			if !ok {
				own = nil
				continue
			}
			do(task)
		case task, ok := <-without:
			if !ok {
				without = nil
				continue
			}
			do(task)
		}
	}
}

// Add gives a task to the worker of its key, and waits while that one has too many. The task is not
// added when ctx ends before. Add must not be called after Close, nor for one key concurrently.
func (w *Workers[T]) Add(ctx context.Context, key string, task T) error {
	queue := w.without
	if key != "" {
		queue = w.queues[maphash.String(w.seed, key)%uint64(len(w.queues))]
	}
	select {
	case queue <- task:
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
	close(w.without)
	w.done.Wait()
}
