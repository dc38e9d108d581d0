// Events per second over the last seconds.

package metrics

import (
	"sync"
	"time"
)

// rateSeconds is how many whole seconds a rate is taken over.
const rateSeconds = 10

// rate counts by second, so that a rate needs no goroutine that samples. The zero value is ready.
type rate struct {
	mu      sync.Mutex
	seconds [rateSeconds + 1]struct {
		unix int64
		n    uint64
	}
}

func (r *rate) add(at time.Time, n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	unix := at.Unix()
	slot := &r.seconds[unix%int64(len(r.seconds))]
	if slot.unix != unix {
		slot.unix, slot.n = unix, 0
	}
	slot.n += n
}

// perSecond is the mean of the last rateSeconds whole seconds before now.
func (r *rate) perSecond(now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var sum uint64
	for _, slot := range r.seconds {
		if age := now.Unix() - slot.unix; age >= 1 && age <= rateSeconds {
			sum += slot.n
		}
	}
	return float64(sum) / rateSeconds
}
