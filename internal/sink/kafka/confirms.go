// Which partitions take batches: while one does, another that does not is at fault; while none
// does, the cluster is away.

package kafka

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// confirms tells a destination's fault from an outage (I4). A partition that takes no batch is at
// fault only while another one takes batches. Otherwise it may be the cluster as a whole, as when
// every partition has too few replicas in sync: then its events wait in their lane, and nothing is
// deferred and nothing ages.
//
// A partition takes batches when none of ours waits there for long, and one of these holds:
//
//   - It confirmed a batch in the last half of ConfirmTimeout. An older confirm does not count: the
//     replicas of an outage are missed partition by partition, so when the first one refuses the
//     others still confirm for a moment.
//   - Metadata as fresh names its leader and has all its replicas in sync, and the one in trouble
//     has too few: its leader has said so. No confirm is needed, and no event of ours: those of the
//     partition in trouble may fill the in-flight budget, and then nobody has anything to confirm.
//     (A leader that does not answer is no fault of a partition: the others may not answer either.)
//   - It confirmed a batch since the beginning of the call in which the trouble began, and metadata
//     as fresh names no leader for the partition in trouble: that is a fact about this one alone.
type confirms struct {
	waiting atomic.Bool // short is not empty

	mu sync.Mutex
	of map[topicPartition]*takes
	// lanes that wait for replicas while no partition takes batches
	short  map[*lane]struct{}
	report func(why string) // says why no partition takes batches; "" when one does
}

// topicPartition names a partition, by its topic's own name.
type topicPartition struct {
	topic     string
	partition int32
}

// takes is what is known of one partition. Its producers share it.
type takes struct {
	confirmed atomic.Int64 // Unix nanoseconds of the last confirm
	sent      atomic.Int64 // when the first batch since it was served was sent; 0: none was
}

// taking returns what is known of a partition.
func (c *confirms) taking(topic string, partition int32) *takes {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := topicPartition{topic, partition}
	if c.of[at] == nil {
		c.of[at] = &takes{}
	}
	return c.of[at]
}

// begun records that a batch is sent, or would be if the partition had a leader.
func (t *takes) begun(now time.Time) { t.sent.CompareAndSwap(0, now.UnixNano()) }

// waits reports whether a batch was sent before late, and no answer since then shows that the
// partition is served. t may be nil: nothing was sent.
func (t *takes) waits(late time.Time) bool {
	if t == nil {
		return false
	}
	sent := t.sent.Load()
	return sent != 0 && sent <= late.UnixNano()
}

// served records an answer that only a partition with enough replicas gives.
func (t *takes) served() { t.sent.Store(0) }

// confirmed records that a partition takes batches.
func (c *confirms) confirmed(t *takes) {
	t.confirmed.Store(time.Now().UnixNano())
	t.served()
	if !c.waiting.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.short)
	c.shorter()
}

// others reports whether a partition other than own takes batches. A confirm or an answer with
// metadata counts after recent, where own has no leader also a confirm after troubled. No batch was
// sent before late and waits. Only where tooFew does metadata tell of others.
func (c *confirms) others(own topicPartition, known *kafkaclient.Metadata, tooFew bool, troubled, recent, late time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := recent
	if t := known.Topics[own.topic]; troubled.Before(recent) && t != nil && t.At.After(recent) {
		if _, leads := known.Leader(own.topic, own.partition); !leads {
			since = troubled
		}
	}
	for at, t := range c.of {
		if at != own && t.confirmed.Load() >= since.UnixNano() && !t.waits(late) {
			return true
		}
	}
	for name, topic := range known.Topics {
		if !tooFew || !topic.At.After(recent) {
			continue
		}
		for i, leader := range topic.Partitions {
			at := topicPartition{name, int32(i)}
			if at != own && leader.Node != kafkaclient.None && topic.InSync[i] && !c.of[at].waits(late) {
				return true
			}
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

// leave records that a lane's call has ended, or that a partition takes batches.
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
