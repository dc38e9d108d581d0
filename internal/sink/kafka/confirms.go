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

// partitionStates tells a destination's fault from an outage (I4). A partition that takes no batch
// is at fault only while another one takes batches. Otherwise it may be the cluster as a whole, as
// when every partition has too few replicas in sync: then its events wait in their lane, and
// nothing is deferred and nothing ages.
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
type partitionStates struct {
	anyWaiting atomic.Bool // waitingLanes is not empty

	mu     sync.Mutex
	states map[topicPartition]*partitionState
	// lanes that wait for replicas while no partition takes batches
	waitingLanes map[*lane]struct{}
	reportOutage func(why string) // says why no partition takes batches; "" when one does
}

// topicPartition names a partition, by its topic's own name.
type topicPartition struct {
	topic     string
	partition int32
}

// partitionState is what is known of one partition. Its producers share it.
type partitionState struct {
	tail tail // see readBack

	confirmedAt atomic.Int64 // Unix nanoseconds of the last confirm
	sentAt      atomic.Int64 // when the first batch since it was served was sent; 0: none was
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

// noteSent records that a batch is sent, or would be if the partition had a leader.
func (t *partitionState) noteSent(now time.Time) { t.sentAt.CompareAndSwap(0, now.UnixNano()) }

// isWaiting reports whether a batch was sent before late, and no answer since then shows that the
// partition is served. t may be nil: nothing was sent.
func (t *partitionState) isWaiting(late time.Time) bool {
	if t == nil {
		return false
	}
	sent := t.sentAt.Load()
	return sent != 0 && sent <= late.UnixNano()
}

// noteServed records an answer that only a partition with enough replicas gives.
func (t *partitionState) noteServed() { t.sentAt.Store(0) }

// noteConfirmed records that a partition takes batches.
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
// partitionStates:
//
//   - tooFew: the leader of own has said that it has too few replicas in sync.
//   - troubled is the beginning of the call in which own came into trouble.
//   - recent is the time from which on a confirm, and metadata, is fresh.
//   - late is the time before which a batch was sent that has waited for long.
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

// beginWait records that a lane waits for replicas while no partition takes batches.
func (c *partitionStates) beginWait(l *lane, fault *sink.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waitingLanes) == 0 {
		c.anyWaiting.Store(true)
		c.reportOutage(fmt.Sprintf("too few replicas in sync for every partition that was tried: %s: %s", fault.Destination, fault.Text))
	}
	c.waitingLanes[l] = struct{}{}
}

// endWait records that a lane's call has ended, or that a partition takes batches.
func (c *partitionStates) endWait(l *lane) {
	if !c.anyWaiting.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waitingLanes, l)
	c.reportEnd()
}

// reportEnd reports the end of the outage when no lane is left in waitingLanes. The lock is held.
func (c *partitionStates) reportEnd() {
	if len(c.waitingLanes) == 0 && c.anyWaiting.Swap(false) {
		c.reportOutage("")
	}
}
