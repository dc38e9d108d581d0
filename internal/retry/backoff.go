// How long a refused row waits.

package retry

import (
	"math/rand/v2"
	"time"
)

// backoff is the wait after the attempt-th refusal (from 1): exponential with full jitter, so that
// many rows that were refused at one moment do not come back at one moment. It is never 0, which
// would mean not to wait for a time.
func (c *Config) backoff(attempt int) time.Duration {
	top := c.MaxBackoff
	// 32 doublings are past any sensible maximum, and do not overflow
	if n := attempt - 1; n < 32 && c.Backoff<<n < c.MaxBackoff {
		top = c.Backoff << n
	}
	return max(c.Jitter(top), time.Millisecond)
}

// patience is the wait of a row that its destination refused while the destination could not be
// paused. No attempt is spent on it, so the row's age doubles the wait.
func (c *Config) patience(age time.Duration) time.Duration {
	return max(c.Jitter(min(max(age, c.Backoff), c.MaxBackoff)), time.Millisecond)
}

// jitter is the default of Config.Jitter.
func jitter(most time.Duration) time.Duration { return rand.N(most + 1) }
