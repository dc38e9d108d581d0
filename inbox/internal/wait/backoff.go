// Package wait has the pauses before something is tried again, and the log lines about it.
package wait

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"
)

// Backoff makes pauses that grow. The zero value begins with 50 ms and ends with 10 s.
type Backoff struct {
	Min, Max time.Duration
	next     time.Duration
}

// Pause waits, and returns why ctx has ended if it does before.
func (b *Backoff) Pause(ctx context.Context) error {
	b.next = min(max(2*b.next, cmp.Or(b.Min, 50*time.Millisecond)), cmp.Or(b.Max, 10*time.Second))
	timer := time.NewTimer(b.next/2 + rand.N(b.next/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Reset lets the pauses begin again with the shortest.
func (b *Backoff) Reset() { b.next = 0 }
