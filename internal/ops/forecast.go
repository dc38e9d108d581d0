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

// The forecast compares the newest reading with the highest of this time.
//
// A burst of WAL is no pace. So the look is to be as long as longLook, or a quarter of the time
// that is left, where that is less: what fills the room within a minute is said after 15 seconds.
// A burst that has ended does not go on in the newer half of the look, whose pace counts if it is
// the slower one.
const (
	courseFor = 2 * time.Minute
	longLook  = 30 * time.Second
	shortLook = 5 * time.Second // for any forecast
	lookShare = 4
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
// if the WAL goes on to grow as in the last two minutes; nil: not known yet, there is no limit,
// nothing is left, or what is left does not shrink.
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

// secondsTo is how long what is left at a time lasts, at the pace since s.
func (s safeWAL) secondsTo(left int64, at time.Time) float64 {
	return float64(left) * at.Sub(s.at).Seconds() / float64(s.bytes-left)
}
