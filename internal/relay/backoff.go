package relay

import (
	"math/rand/v2"
	"time"
)

// Backoff is a waiting time that starts at Min and doubles to Max, with a jitter of a fifth either way.
type Backoff struct{ Min, Max time.Duration }

// after is the wait after n failures in a row (from 0).
func (b Backoff) after(n int) time.Duration {
	d := b.Max
	if n < 32 && b.Min<<n < b.Max { // 32 doublings of any sensible Min are past any sensible Max, and do not overflow
		d = b.Min << n
	}
	return d - d/5 + rand.N(2*d/5+1)
}

// spin is the wait after calls that fail at once, so that a sink that does not wait by itself is not called in a busy loop.
var spin = Backoff{Min: 50 * time.Millisecond, Max: time.Second}
