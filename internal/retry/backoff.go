// How long a rejected row waits.

package retry

import (
	"math/rand/v2"
	"time"
)

// backoff is the wait after the attempt-th rejection (from 1). It is exponential with full jitter,
// so that many rows that were rejected at the same moment do not come back at the same moment. It
// is never 0, because 0 means that the row does not wait for a time.
func (c *Config) backoff(attempt int) time.Duration {
	top := c.MaxBackoff
	// 32 doublings are past any sensible maximum, and do not overflow
	if n := attempt - 1; n < 32 && c.Backoff<<n < c.MaxBackoff {
		top = c.Backoff << n
	}
	return max(c.Jitter(top), time.Millisecond)
}

// patience is the wait of a row that its destination rejected, while the destination is not paused.
// No attempt is spent on it, so the wait grows with the row's age instead.
func (c *Config) patience(age time.Duration) time.Duration {
	return max(c.Jitter(min(max(age, c.Backoff), c.MaxBackoff)), time.Millisecond)
}

// jitter is the default of Config.Jitter.
func jitter(most time.Duration) time.Duration { return rand.N(most + 1) }
