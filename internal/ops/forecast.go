// How long the broker has been down, and how long until the slot is lost: both need several
// snapshots.

package ops

import (
	"sync"
	"time"
)

// Course remembers what former snapshots showed of the broker and of one slot. The zero value is
// ready. It is safe for concurrent use.
type Course struct {
	mu        sync.Mutex
	downSince time.Time // zero when the broker is up, or was never looked at
	brokerAt  time.Time // when the broker was last looked at
	safe      []safeWAL // the oldest first, at most courseFor old
}

type safeWAL struct {
	at    time.Time
	bytes int64
}

// The forecast compares the newest reading of a slot with the reading within courseFor that had the
// most room left. A burst of WAL does not tell the pace. So the readings must span longLook, or a
// quarter of the time left if that is less: room that fills within a minute is reported after 15
// seconds. When a burst has ended, the newer half of the span has a slower pace, and the slower
// pace counts.
const (
	courseFor = 2 * time.Minute
	longLook  = 30 * time.Second
	shortLook = 5 * time.Second // the least span of any forecast
	lookShare = 4
	// longestGap is the longest time between two looks at the broker that is not a gap: in a longer
	// one the broker may have been up. A leading relay looks each second, a standby only when it is
	// asked.
	longestGap = 10 * time.Second
)

// SeeBroker takes whether the broker is up now, and returns since when it has been seen down
// without a gap. The zero time means that it is up.
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

// SeeSlot takes a reading of the slot, and returns the seconds from that reading until the slot is
// lost if WAL goes on to grow as in the last two minutes. It returns nil when that is not known
// yet, when there is no limit, when nothing is left, or when what is left does not shrink.
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
	highest := 0
	for i, s := range c.safe {
		if s.bytes >= c.safe[highest].bytes {
			highest = i
		}
	}
	first := c.safe[highest]
	span, half := checked.Sub(first.at), first
	for _, s := range c.safe[highest:] {
		if s.at.Sub(first.at) <= span/2 {
			half = s
		}
	}
	if span < shortLook || *safe <= 0 || half.bytes <= *safe {
		return nil
	}
	left := max(first.secondsTo(*safe, checked), half.secondsTo(*safe, checked))
	if span < longLook && span.Seconds() < left/lookShare {
		return nil
	}
	return &left
}

// secondsTo returns how long the bytes left at a time last, at the pace since s.
func (s safeWAL) secondsTo(left int64, at time.Time) float64 {
	return float64(left) * at.Sub(s.at).Seconds() / float64(s.bytes-left)
}
