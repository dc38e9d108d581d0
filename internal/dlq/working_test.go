package dlq

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// deaf is a database whose statements do not even end when their time is over.
type deaf struct {
	Querier
	end chan struct{}
}

func (d *deaf) Query(context.Context, string, ...any) (pgx.Rows, error) {
	<-d.end
	return nil, errors.New("deaf")
}

// oneDeadLetter is a MirrorStore with one dead letter.
type oneDeadLetter struct{ wait func() }

func (l *oneDeadLetter) Unmirrored(context.Context, int64, []int64, int, int64) ([]DeadLetterRow, error) {
	l.wait()
	return []DeadLetterRow{{N: 1, Event: event.Event{Route: &event.Route{}}}}, nil
}

func (l *oneDeadLetter) NoteMirrored(context.Context, []int64) error { return nil }

// atWork runs a loop for an hour, in which something does not end, and says whether the loop is at
// work then, and when it has ended.
func atWork(t *testing.T, run func(ctx context.Context, working func(bool), hang func()) error) (then, after bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var is atomic.Bool
		end := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- run(ctx, is.Store, func() { <-end }) }()
		time.Sleep(time.Hour) //nolint:forbidigo // the bubble's time, not ours
		synctest.Wait()
		then = is.Load()
		cancel()
		close(end)
		if err := <-done; err != nil {
			t.Error(err)
		}
		after = is.Load()
	})
	return then, after
}

// The leader and the mirror are at work while a statement does not end, so that it is seen; a
// broker that does not answer is nothing of theirs.
func TestWorking(t *testing.T) {
	mirror := func(ctx context.Context, working func(bool), store, publish func()) error {
		return NewMirror(MirrorConfig{
			Store: &oneDeadLetter{store}, Working: working, Log: zap.NewNop(),
			Publish: func(_ context.Context, events []*event.Event) []sink.Outcome {
				publish()
				return make([]sink.Outcome, len(events))
			},
		}).Run(ctx)
	}
	nothing := func() {}
	for _, c := range []struct {
		name string
		run  func(ctx context.Context, working func(bool), hang func()) error
		want bool
	}{
		{"the leader's statement", func(ctx context.Context, working func(bool), hang func()) error {
			db := &deaf{end: make(chan struct{})}
			go func() { hang(); close(db.end) }()
			return NewLeader(LeaderConfig{DB: db, Working: working, Log: zap.NewNop()}).Run(ctx)
		}, true},
		{"the mirror's statement", func(ctx context.Context, working func(bool), hang func()) error {
			return mirror(ctx, working, hang, nothing)
		}, true},
		{"the broker", func(ctx context.Context, working func(bool), hang func()) error {
			return mirror(ctx, working, nothing, hang)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if then, after := atWork(t, c.run); then != c.want || after {
				t.Errorf("at work while it hangs: %t, want %t; when it has ended: %t", then, c.want, after)
			}
		})
	}
}
