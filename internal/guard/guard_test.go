package guard

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is a line whose events wait for a broker that is away.
type line struct {
	flow  Flow
	calls []bool
}

func (l *line) Guard(on bool) { l.calls = append(l.calls, on) }
func (l *line) Flow() Flow    { return l.flow }

// The database is asked only while nothing is confirmed. What is deferred, and what waits in the
// line, counts against max_bytes at once, also while the database does not answer.
func TestRoomIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{}
		asked, down := 0, false
		g := New(Config{
			MaxBytes: 1000, Patience: time.Minute, Line: l, Up: func() bool { return false }, Log: zap.NewNop(),
			Measure: func(context.Context) (Disk, error) {
				asked++
				if down {
					return Disk{}, errors.New("down")
				}
				return Disk{Retained: 50, DeferAt: 50, Own: 300}, nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		wants := func(want Snapshot, calls ...bool) {
			t.Helper()
			synctest.Wait()
			if got := g.Snapshot(); got != want || !slices.Equal(l.calls, calls) {
				t.Errorf("the guard is %+v and was switched %v, want %+v and %v", got, l.calls, want, calls)
			}
		}
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}

		pass(time.Minute)
		if wants(Snapshot{}); asked > 0 {
			t.Errorf("the database was asked %d times while nothing waits", asked)
		}
		l.flow = Flow{Waiting: 3, WaitingBytes: 100}
		pass(10 * time.Second)
		wants(Snapshot{Active: true}, true)
		down = true
		l.flow.Deferred, l.flow.DeferredBytes = 9, 500 // and 300 and 100 are below 1000
		pass(time.Second)
		wants(Snapshot{Active: true, Deferred: 9}, true)
		l.flow.DeferredBytes = 600
		pass(time.Second)
		wants(Snapshot{Full: true, Deferred: 9}, true, false)
		down = false // and there the rows take less than was thought
		pass(10 * time.Second)
		wants(Snapshot{Active: true, Deferred: 9}, true, false, true)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
