// Which partitions take batches: while one does, another that does not is at fault; while none
// does, the cluster is away.

package kafka

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// confirms tells a destination's fault from an outage (I4). A partition that takes no batch is at
// fault only while another one takes batches. Otherwise it may be the cluster as a whole, as when
// every partition has too few replicas in sync: then its events wait in their lane, and nothing is
// deferred and nothing ages.
//
// A partition takes batches when its last one was confirmed, and no later one waits for long. Both
// halves matter:
//
//   - A confirm does not need to be recent. The events of the partition in trouble may have filled
//     the in-flight budget, and then no other partition has anything to confirm. It would be held
//     for an outage for ever.
//   - A confirm does not count once a later batch of its own partition waits. The replicas of an
//     outage are missed partition by partition, so when the first one refuses the others still
//     confirm for a moment. Soon they refuse as well, or do not answer for ConfirmTimeout.
//
// A confirm counts from the beginning of the call in which the trouble began: one request may have
// the confirmed batch and the refused one, and the lane may have nothing else to send until the
// call ends.
type confirms struct {
	waiting atomic.Bool // short is not empty

	mu sync.Mutex
	of map[refusal]*takes
	// lanes that wait for replicas while no partition takes batches
	short  map[*lane]struct{}
	report func(why string) // says why no partition takes batches; "" when one does
}

// takes is what is known of one partition. Its producers share it.
type takes struct {
	confirmed atomic.Int64 // Unix nanoseconds of the last confirm
	sent      atomic.Int64 // when the first batch since then was sent; 0: none was
}

// taking returns what is known of a partition.
func (c *confirms) taking(topic string, partition int32) *takes {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := refusal{topic, partition}
	if c.of[at] == nil {
		c.of[at] = &takes{}
	}
	return c.of[at]
}

// begun records that a batch is sent, or would be if the partition had a leader.
func (t *takes) begun(now time.Time) { t.sent.CompareAndSwap(0, now.UnixNano()) }

// confirmed records that a partition takes batches.
func (c *confirms) confirmed(t *takes) {
	t.confirmed.Store(time.Now().UnixNano())
	t.sent.Store(0)
	if !c.waiting.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.short)
	c.shorter()
}

// others reports whether a partition other than own takes batches: it confirmed one since then, and
// no later one was sent before the time late.
func (c *confirms) others(own *takes, since, late time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.of {
		sent := t.sent.Load()
		if t != own && t.confirmed.Load() >= since.UnixNano() && (sent == 0 || sent > late.UnixNano()) {
			return true
		}
	}
	return false
}

// wait records that a lane waits for replicas while no partition takes batches.
func (c *confirms) wait(l *lane, fault *sink.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.short) == 0 {
		c.waiting.Store(true)
		c.report(fmt.Sprintf("too few replicas in sync for every partition that was tried: %s: %s", fault.Destination, fault.Text))
	}
	c.short[l] = struct{}{}
}

// leave records that a lane's call has ended.
func (c *confirms) leave(l *lane) {
	if !c.waiting.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.short, l)
	c.shorter()
}

// shorter reports the end of the outage when no lane is left in short. The lock is held.
func (c *confirms) shorter() {
	if len(c.short) == 0 && c.waiting.Swap(false) {
		c.report("")
	}
}
