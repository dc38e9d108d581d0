package retry

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
)

// backoff is the wait after the attempt-th refusal (from 1): exponential with full jitter, so that many rows that were
// refused at one moment do not come back at one moment. It is never 0, which would mean not to wait for a time.
func (c *Config) backoff(attempt int) time.Duration {
	top := c.MaxBackoff
	if n := attempt - 1; n < 32 && c.Backoff<<n < c.MaxBackoff { // 32 doublings are past any sensible maximum, and do not overflow
		top = c.Backoff << n
	}
	return max(c.Jitter(top), time.Millisecond)
}

// patience is the wait of a row that its destination refused while no gate could be shut for it. No attempt is spent on it,
// so it is the row's age that doubles the wait.
func (c *Config) patience(age time.Duration) time.Duration {
	return max(c.Jitter(min(max(age, c.Backoff), c.MaxBackoff)), time.Millisecond)
}

// jitter is the default of Config.Jitter.
func jitter(most time.Duration) time.Duration { return rand.N(most + 1) }

// pace spaces the repeats of a statement that fails, and says so once for each text of the error.
type pace struct {
	log   *zap.Logger
	what  string
	fails int
	said  string
}

// The pause after a statement that failed: doubling.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// failed is how long to wait before the next try.
func (p *pace) failed(err error) time.Duration {
	if text := err.Error(); text != p.said {
		p.said = text
		p.log.Warn(p.what+" fails and is tried again, nothing is lost", zap.Error(err))
	}
	p.fails++
	return pause(p.fails)
}

// pause is the wait after so many failures in a row (from 1).
func pause(fails int) time.Duration { return min(minPause<<min(fails-1, 10), maxPause) }

func (p *pace) succeeded() {
	if p.said != "" {
		p.log.Info(p.what + " goes on")
	}
	p.fails, p.said = 0, ""
}

// slept waits; false when ctx is done before.
func slept(ctx context.Context, d time.Duration) bool {
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
