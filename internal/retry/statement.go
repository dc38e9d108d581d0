// Statements that fail and are repeated.

package retry

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// statement is one that changes the tables.
type statement struct {
	do      func(context.Context) error
	done    func()
	refused func(error) // it certainly did nothing
}

// exec runs a statement. A statement that may have been carried out is kept and repeated before any
// other. Otherwise rows that were deleted might be read once more, and requests that were answered
// might be carried out twice. The try that failed of its time says nothing about an earlier one.
func (f *feeder) exec(ctx context.Context, st *statement) error {
	err := st.do(ctx)
	var no *store.Refused
	switch {
	case err == nil:
		f.unknown = nil
		st.done()
	case errors.As(err, &no) && !(no.TooLarge && f.unknown == st):
		f.unknown = nil
		st.refused(err)
	default:
		f.unknown = st
		return err
	}
	return nil
}

// again repeats the statement of unknown outcome.
func (f *feeder) again(ctx context.Context) (bool, error) {
	if f.unknown == nil {
		return false, nil
	}
	if err := f.exec(ctx, f.unknown); err != nil {
		return false, err
	}
	return true, nil
}

// retryPace sets the pauses between the tries of a failing statement, and logs each error text
// once.
type retryPace struct {
	log    *zap.Logger
	what   string
	fails  int
	logged string
}

// The pause after a statement that failed: doubling.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// failed logs the error and returns how long to wait before the next try.
func (p *retryPace) failed(err error) time.Duration {
	if text := err.Error(); text != p.logged {
		p.logged = text
		p.log.Warn(p.what+" failed: it is tried again, nothing is lost", zap.Error(err))
	}
	p.fails++
	return pause(p.fails)
}

// pause is the wait after so many failures in a row (from 1).
func pause(fails int) time.Duration { return min(minPause<<min(fails-1, 10), maxPause) }

func (p *retryPace) succeeded() {
	if p.logged != "" {
		p.log.Info(p.what + " works again")
	}
	p.fails, p.logged = 0, ""
}

// sleep waits; it returns false when ctx is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// signal wakes the one goroutine that waits on a channel of capacity 1.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
