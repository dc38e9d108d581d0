// A sleep that ends with its context, for polls and for pauses between tries.

package source

import (
	"context"
	"time"
)

// Sleep waits for d; false means that ctx was done before.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
