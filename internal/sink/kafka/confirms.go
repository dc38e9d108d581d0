// How a faulty partition is told from an outage: a partition that takes no batches is at fault
// while another one takes them; while none does, the cluster is away.

package kafka

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// partitionStates tells a destination's fault from an outage (I4). A partition that takes no batch
// is at fault only while another one takes batches. Otherwise the cluster as a whole may be at
// fault, as when every partition has too few replicas in sync. Then events wait in their lane,
// nothing is deferred, and no part ages.
//
// A partition takes batches when none of our batches has waited there for long, and one of these
// holds:
//
// - It confirmed a batch in the last half of ConfirmTimeout. An older confirm does not count: in an
//     outage the partitions miss their replicas one after the other, so when the first one refuses,
//     others still confirm for a moment.
// - Metadata of the same age names its leader and has all its replicas in sync, and the partition
// in
//     trouble has too few, as its leader has said. This needs no confirm, and no event of ours: the
// events of the partition in trouble may fill the in-flight budget, and then there is nothing to
// confirm elsewhere. (A leader that does not answer is no fault of its partition: others may not
//     answer either.)
//   - It confirmed a batch after the beginning of the call in which the trouble began, and metadata
// of the same age names no leader for the partition in trouble: that concerns this partition alone.
type partitionStates struct {
	anyWaiting atomic.Bool // whether waitingLanes has any

	mu     sync.Mutex
	states map[topicPartition]*partitionState
	// waitingLanes are the lanes that wait for replicas while no partition takes batches.
	waitingLanes map[*lane]struct{}
	reportOutage func(why string) // reports why no partition takes batches, or "" when one does
}

// topicPartition names a partition, by its topic's own name.
type topicPartition struct {
	topic     string
	partition int32
}

// partitionState is what is known of one partition. Its producers share it.
type partitionState struct {
	confirmedAt atomic.Int64 // Unix nanoseconds of the last confirm
	// Unix nanoseconds: when the first batch was sent after the partition was last served; 0 when
	// none was
	sentAt atomic.Int64
}

// stateOf returns what is known of a partition.
func (c *partitionStates) stateOf(topic string, partition int32) *partitionState {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := topicPartition{topic, partition}
	if c.states[at] == nil {
		c.states[at] = &partitionState{}
	}
	return c.states[at]
}

// noteSent notes that a batch is sent, or would be sent if the partition had a leader.
func (t *partitionState) noteSent(now time.Time) { t.sentAt.CompareAndSwap(0, now.UnixNano()) }

// isWaiting reports whether a batch was sent before late, and no answer since then shows that the
// partition is served. t may be nil, which means that nothing was sent.
func (t *partitionState) isWaiting(late time.Time) bool {
	if t == nil {
		return false
	}
	sent := t.sentAt.Load()
	return sent != 0 && sent <= late.UnixNano()
}

// noteServed notes an answer that only a partition with enough replicas gives.
func (t *partitionState) noteServed() { t.sentAt.Store(0) }

// noteConfirmed notes that a partition has confirmed a batch, so the outage, if there was one, is
// over.
func (c *partitionStates) noteConfirmed(t *partitionState) {
	t.confirmedAt.Store(time.Now().UnixNano())
	t.noteServed()
	if !c.anyWaiting.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.waitingLanes)
	c.reportEnd()
}

// othersTakeBatches reports whether a partition other than own takes batches, by the three rules of
// partitionStates. Its parameters:
//
//   - tooFew: the leader of own has said that it has too few replicas in sync.
//   - troubled: the beginning of the call in which own came into trouble.
//   - recent: the time after which a confirm or metadata counts as fresh.
//   - late: a batch that was sent before this time has waited for long.
func (c *partitionStates) othersTakeBatches(own topicPartition, known *kafkaclient.Metadata, tooFew bool, troubled, recent, late time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := recent
	if t := known.Topics[own.topic]; troubled.Before(recent) && t != nil && t.At.After(recent) {
		if _, leads := known.Leader(own.topic, own.partition); !leads {
			since = troubled
		}
	}
	for at, t := range c.states {
		if at != own && t.confirmedAt.Load() >= since.UnixNano() && !t.isWaiting(late) {
			return true
		}
	}
	for name, topic := range known.Topics {
		if !tooFew || !topic.At.After(recent) {
			continue
		}
		for i, leader := range topic.Partitions {
			at := topicPartition{name, int32(i)}
			if at != own && leader.Node != kafkaclient.None && topic.InSync[i] && !c.states[at].isWaiting(late) {
				return true
			}
		}
	}
	return false
}

// beginWait notes that a lane waits for replicas while no partition takes batches.
func (c *partitionStates) beginWait(l *lane, fault *sink.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waitingLanes) == 0 {
		c.anyWaiting.Store(true)
		c.reportOutage(fmt.Sprintf("too few replicas in sync for every partition that was tried: %s: %s", fault.Destination, fault.Text))
	}
	c.waitingLanes[l] = struct{}{}
}

// endWait notes that a lane no longer waits: its call has ended, or a partition takes batches.
func (c *partitionStates) endWait(l *lane) {
	if !c.anyWaiting.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waitingLanes, l)
	c.reportEnd()
}

// reportEnd reports the end of the outage when no lane is left in waitingLanes. The caller holds
// the lock.
func (c *partitionStates) reportEnd() {
	if len(c.waitingLanes) == 0 && c.anyWaiting.Swap(false) {
		c.reportOutage("")
	}
}
