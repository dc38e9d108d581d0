package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// closeAll waits for all tasks.
func closeAll(t *testing.T, w *Workers[task]) {
	t.Helper()
	if n := w.Close(t.Context()); n != 0 {
		t.Errorf("%d workers still have a task", n)
	}
}

type task struct {
	key string
	n   int
}

// Tasks of one key are done in their order, however many workers there are, and none is lost.
func TestOrderOfAKey(t *testing.T) {
	for _, workers := range []int{0, 1, 3, 16} {
		var mu sync.Mutex
		done := map[string][]int{}
		w := Start(workers, 2, func(task task) {
			mu.Lock()
			defer mu.Unlock()
			done[task.key] = append(done[task.key], task.n)
		})
		for n := range 1000 {
			key := []string{"", "a", "b", "c", "d"}[n%5]
			if err := w.Add(t.Context(), key, task{key, n}); err != nil {
				t.Fatal(err)
			}
		}
		closeAll(t, w)
		for key, got := range done {
			if len(got) != 200 || key != "" && !slices.IsSorted(got) {
				t.Errorf("%d workers, key %q: %d tasks, in order: %v", workers, key, len(got), slices.IsSorted(got))
			}
		}
		if len(done) != 5 {
			t.Errorf("%d keys, want 5", len(done))
		}
	}
}

// A task that does not end holds up its own key, and those without a key pass by on other workers.
func TestSlowKey(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	others := make(chan task, 100)
	w := Start(2, 2, func(task task) {
		if task.key == "slow" {
			begun <- struct{}{}
			<-goOn
			return
		}
		others <- task
	})
	if err := w.Add(t.Context(), "slow", task{key: "slow"}); err != nil {
		t.Fatal(err)
	}
	<-begun
	for n := range 10 {
		if err := w.Add(t.Context(), "", task{n: n}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 10 {
		if got := <-others; got.n != n {
			t.Errorf("done is %d, want %d: one worker does them", got.n, n)
		}
	}

	// Two tasks wait for the worker of the slow key, and one more does not fit.
	for range 2 {
		if err := w.Add(t.Context(), "slow", task{key: "slow"}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	full := make(chan error)
	go func() { full <- w.Add(ctx, "slow", task{key: "slow"}) }()
	why := errors.New("the session has ended")
	cancel(why)
	if err := <-full; !errors.Is(err, why) {
		t.Errorf("add to a full worker: %v", err)
	}
	close(goOn)
	for range 2 {
		<-begun
	}
	closeAll(t, w)
}

// Several may add at once, each for keys of its own.
func TestAddersAtOnce(t *testing.T) {
	var mu sync.Mutex
	done := map[string]int{}
	w := Start(4, 1, func(task task) {
		mu.Lock()
		defer mu.Unlock()
		if done[task.key] != task.n {
			t.Errorf("key %s: task %d after %d", task.key, task.n, done[task.key])
		}
		done[task.key]++
	})
	var adders sync.WaitGroup
	for a := range 4 {
		adders.Go(func() {
			for n := range 200 {
				if err := w.Add(t.Context(), fmt.Sprint(a), task{fmt.Sprint(a), n}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	adders.Wait()
	closeAll(t, w)
	if len(done) != 4 || done["3"] != 200 {
		t.Errorf("done: %v", done)
	}
}

// Close does not wait for ever for a task that does not end.
func TestCloseInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		w := Start(3, 2, func(task) { <-goOn })
		if err := w.Add(t.Context(), "a", task{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n := w.Close(ctx); n != 1 {
			t.Errorf("%d workers still have a task, want 1", n)
		}
		close(goOn)
	})
}
