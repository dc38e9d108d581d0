// How long the broker is down, and how long until the slot is lost: what one snapshot cannot tell.

package ops

import (
	"sync"
	"time"
)

// Course remembers what the last snapshots have seen. Its zero value has seen nothing. It is safe
// for concurrent use.
type Course struct {
	mu        sync.Mutex
	downSince time.Time // zero: the broker is up, or was not looked at
	brokerAt  time.Time // the last look at the broker
	safe      []safeWAL // the oldest first, at most courseFor old
}

type safeWAL struct {
	at    time.Time
	bytes int64
}

// The forecast compares the newest reading with the oldest of this time. A shorter time than
// shortestCourse has no pace.
const (
	courseFor      = 2 * time.Minute
	shortestCourse = 5 * time.Second
	// longestGap between two looks at the broker: it may have been up in a longer one. A relay that
	// leads looks each second, a standby only when it is asked.
	longestGap = 10 * time.Second
)

// SeeBroker takes whether the broker is up, and returns since when it is seen down, without a gap;
// zero: it is up.
func (c *Course) SeeBroker(up bool, now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case up:
		c.downSince = time.Time{}
	case c.downSince.IsZero(), now.Sub(c.brokerAt) > longestGap:
		c.downSince = now
	}
	c.brokerAt = now
	return c.downSince
}

// SeeSlot takes a reading of the slot, and returns the seconds from then on until the slot is lost
// if the WAL goes on to grow as in the last two minutes; nil: not known, there is no limit, or what
// is left does not shrink.
func (c *Course) SeeSlot(checked time.Time, safe *int64) *float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if safe == nil {
		c.safe = nil
		return nil
	}
	if n := len(c.safe); n == 0 || checked.After(c.safe[n-1].at) {
		c.safe = append(c.safe, safeWAL{checked, *safe})
	}
	for checked.Sub(c.safe[0].at) > courseFor {
		c.safe = c.safe[1:]
	}
	first := c.safe[0]
	span, used := checked.Sub(first.at), first.bytes-*safe
	if span < shortestCourse || used <= 0 || *safe <= 0 {
		return nil
	}
	left := float64(*safe) * span.Seconds() / float64(used)
	return &left
}
