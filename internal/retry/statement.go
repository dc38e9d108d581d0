// Statements that fail and are repeated.

package retry

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// uncommitted is what waits to be committed together. What the database refuses is tried in halves;
// the one at fault stands alone in the end, and is tried again for ever.
type uncommitted[T any] struct {
	fresh   []T
	parts   [][]T     // halves of what was refused
	resting []T       // refused alone
	restAt  time.Time // when these are tried again, each alone
}

// next takes what is committed next.
func (u *uncommitted[T]) next() (part []T) {
	if len(u.parts) == 0 && len(u.resting) > 0 && !u.restAt.After(time.Now()) {
		for i := range u.resting {
			u.parts = append(u.parts, u.resting[i:i+1])
		}
		u.resting = nil
	}
	if n := len(u.parts); n > 0 {
		part, u.parts = u.parts[n-1], u.parts[:n-1]
	} else {
		part, u.fresh = u.fresh, nil
	}
	return part
}

// halve keeps the halves of what was refused. It returns false when this is one alone.
func (u *uncommitted[T]) halve(part []T) bool {
	half := len(part) / 2
	if half > 0 {
		u.parts = append(u.parts, part[half:], part[:half])
	}
	return half > 0
}

// rest keeps what was refused alone.
func (u *uncommitted[T]) rest(part []T) {
	if len(u.resting) == 0 {
		u.restAt = time.Now().Add(maxPause)
	}
	u.resting = append(u.resting, part...)
}

// retryPace sets the pauses between the tries of a failing statement, and logs each error text
// once.
type retryPace struct {
	log    *zap.Logger
	what   string
	fails  int
	logged string
}

// untilKnown repeats a statement that changes the tables until its outcome is known: nil, or a
// *Refused. Any other error is final: fenced, or ctx is done. Nothing else is done meanwhile.
// Otherwise a later row might be written before an earlier one, rows that were deleted might be
// read once more, and requests that were answered might be carried out twice. working is the hook
// of the goroutine.
func (p *retryPace) untilKnown(ctx context.Context, working func(atWork bool), do func() error) error {
	for {
		reportWork(working, true)
		err := do()
		switch {
		case err == nil:
			p.succeeded()
			return nil
		case store.IsRefused(err), errors.Is(err, store.ErrFenced):
			return err
		case ctx.Err() != nil || !sleep(ctx, p.failed(err)):
			return ctx.Err()
		}
	}
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
