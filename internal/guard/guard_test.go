package guard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is a line whose events wait for a broker that is away.
type line struct {
	mu    sync.Mutex // guards the fields
	flow  Flow
	calls []bool
	asked int  // the database
	down  bool // likewise
	own   int64
}

func (l *line) Guard(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, on)
}

func (l *line) Flow() Flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flow
}

func (l *line) measure(context.Context) (Disk, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if l.down {
		return Disk{}, errors.New("down")
	}
	return Disk{Retained: 50, DeferAt: 50, Own: l.own}, nil
}

func (l *line) count(context.Context) (int64, error) { return 300, nil }

// The database is asked only while nothing is confirmed. What is deferred, and what waits in the
// line, counts against max_bytes at once, also while the database does not answer.
func TestRoomIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{own: 300}
		g := New(Config{
			MaxBytes: 1000, Patience: time.Minute, Line: l, Up: func() bool { return false }, Measure: l.measure, Count: l.count, Log: zap.NewNop(),
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		wants := func(want Snapshot, calls ...bool) {
			t.Helper()
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			if got := g.Snapshot(); got != want || !slices.Equal(l.calls, calls) {
				t.Errorf("the guard is %+v and was switched %v, want %+v and %v", got, l.calls, want, calls)
			}
		}
		change := func(how func()) {
			l.mu.Lock()
			defer l.mu.Unlock()
			how()
		}
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}

		pass(time.Minute)
		wants(Snapshot{Known: true, Left: 700})
		change(func() {
			if l.asked > 1 {
				t.Errorf("the database was asked %d times in a minute while nothing waits", l.asked)
			}
			l.flow = Flow{Waiting: 3, WaitingBytes: 100}
		})
		pass(10 * time.Second)
		wants(Snapshot{Active: true, Known: true, Left: 600}, true)
		// with what was there and what waits it is below 1000
		change(func() { l.down, l.flow.Deferred, l.flow.DeferredBytes = true, 9, 500 })
		pass(time.Second)
		wants(Snapshot{Active: true, Deferred: 9, Known: true, Left: 100}, true)
		change(func() { l.flow.DeferredBytes = 600 })
		pass(time.Second)
		wants(Snapshot{Full: true, Deferred: 9, Known: true}, true, false)
		change(func() { l.down = false }) // and there the rows take less than was thought
		pass(10 * time.Second)
		wants(Snapshot{Active: true, Deferred: 9, Known: true, Left: 600}, true, false, true)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The files stay large after an outage. In the next one the guard defers again.
func TestSecondOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{own: 1000, flow: Flow{Waiting: 3, WaitingBytes: 100}}
		g := New(Config{
			MaxBytes: 1000, Patience: time.Minute, Line: l, Up: func() bool { return false }, Measure: l.measure, Count: l.count, Log: zap.NewNop(),
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		<-time.After(10 * time.Second)
		synctest.Wait()
		if got, want := g.Snapshot(), (Snapshot{Active: true, Known: true, Left: 600}); got != want {
			t.Errorf("the guard is %+v, want %+v", got, want)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
