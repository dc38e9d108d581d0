// The percentiles of the last minute's latencies, which the status shows without a Prometheus
// server.

package metrics

import (
	"math/bits"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

const (
	latencySlot  = 5  // seconds that share one set of counts
	latencySlots = 12 // such sets in a percentile: a minute
	// latencySteps is how many steps are counted: eight between two powers of two of microseconds,
	// up to 2^40, which is 12 days.
	latencySteps = 38 * 8
)

// latencies counts events by latency, in steps of an eighth at most, and by the time of their
// confirm, in sets of latencySlot seconds. It needs no goroutine and no memory for each event. The
// zero value is ready.
type latencies struct {
	mu    sync.Mutex
	slots [latencySlots + 1]struct {
		at     int64 // Unix seconds / latencySlot
		counts [latencySteps]uint32
	}
}

// add counts events that were confirmed at the same time. It leaves out copies of dead letters.
func (l *latencies) add(events []*event.Event, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := at.Unix() / latencySlot
	slot := &l.slots[now%int64(len(l.slots))]
	if slot.at != now {
		slot.at, slot.counts = now, [latencySteps]uint32{}
	}
	for _, ev := range events {
		if !ev.Copy {
			slot.counts[latencyStep(at.Sub(ev.CommitTime))]++
		}
	}
}

// latencyStep returns the step of a latency. A latency below 0, from a server whose clock is ahead,
// counts as 0.
func latencyStep(latency time.Duration) int {
	micros := min(uint64(max(0, latency)/time.Microsecond), 1<<40-1)
	if micros < 8 {
		return int(micros)
	}
	shift := bits.Len64(micros) - 4
	return shift*8 + int(micros>>shift)
}

// latencyUpTo returns the end of a step.
func latencyUpTo(step int) time.Duration {
	if step < 8 {
		return time.Duration(step+1) * time.Microsecond
	}
	shift := step/8 - 1
	return time.Duration((step%8+9)<<shift) * time.Microsecond
}

// percentiles returns the latencies, in seconds, that half of the events and 99 of 100 did not
// exceed. They cover the last minute and the seconds that are being counted now. Both are nil if no
// event was confirmed in that time.
func (l *latencies) percentiles(at time.Time) (p50, p99 *float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sum [latencySteps]uint64
	total := uint64(0)
	for i := range l.slots {
		slot := &l.slots[i]
		if age := at.Unix()/latencySlot - slot.at; age < 0 || age > latencySlots {
			continue
		}
		for step, n := range slot.counts {
			sum[step] += uint64(n)
			total += uint64(n)
		}
	}
	below := uint64(0)
	for step, n := range sum {
		below += n
		if n > 0 && p50 == nil && below*2 >= total {
			p50 = new(latencyUpTo(step).Seconds())
		}
		if n > 0 && below*100 >= total*99 {
			return p50, new(latencyUpTo(step).Seconds())
		}
	}
	return nil, nil
}
