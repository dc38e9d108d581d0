// What is known of the cluster: brokers, topics, partitions and their leaders.

package kafka

import (
	"net"
	"strconv"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// snapshot is what the answers so far have said. It is immutable, but for the end of stale.
type snapshot struct {
	version int64     // counts the answers
	at      time.Time // of the newest
	brokers map[int32]string
	topics  map[string]*topicState
	witness witness       // the newest answer
	stale   chan struct{} // closed when there is a newer one
}

// witness is an answer on the control connection: in which session, which counts the connections,
// and to which question, counted over all sessions.
type witness struct{ session, question int64 }

// topicState is what is known of one topic. It is immutable.
type topicState struct {
	name       string
	code       int16    // why it cannot be published to; 0: it can
	partitions []leader // by number; none when code is set
	version    int64    // the answer that said so
	// olderSince is since when answers contradict this one by being older; zero: they do not.
	olderSince time.Time
}

// leader is who leads a partition, and in which epoch: it rises by one with each election. node is none while there is
// no leader; epoch is none when the broker does not tell it (before Kafka 2.3).
type leader struct{ node, epoch int32 }

// believeOlder is how long answers must go on to contradict a newer one until they are believed. A broker that lags behind
// the controller catches up sooner; a topic that was deleted and made anew begins with epoch 0, and stays so.
const believeOlder = 2 * time.Second

func newSnapshot() *snapshot { return &snapshot{stale: make(chan struct{})} }

// leader is who leads a partition; false when nobody is known to.
func (k *snapshot) leader(topic string, partition int32) (leader, bool) {
	t := k.topics[topic]
	if t == nil || int(partition) >= len(t.partitions) {
		return leader{}, false
	}
	l := t.partitions[partition]
	return l, l.node != none
}

// leaderless reports whether a partition is known to have no leader.
func (k *snapshot) leaderless(topic string, partition int32) bool {
	t := k.topics[topic]
	return t != nil && int(partition) < len(t.partitions) && t.partitions[partition].node == none
}

// leads reports whether a node leads a partition of the topics that are known.
func (k *snapshot) leads(node int32) bool {
	for _, t := range k.topics {
		for _, l := range t.partitions {
			if l.node == node {
				return true
			}
		}
	}
	return false
}

// contradicted reports whether the newest answer has shown an earlier state of a topic than is known.
func (k *snapshot) contradicted() bool {
	for _, t := range k.topics {
		if t.version == k.version && !t.olderSince.IsZero() {
			return true
		}
	}
	return false
}

// merge is what is known after an answer. Of the topics that it does not speak of keep says whether they are remembered.
func (k *snapshot) merge(res *metadata.Response, keep func(*topicState) bool, now time.Time) *snapshot {
	next := &snapshot{
		version: k.version + 1, at: now, brokers: k.brokers, stale: make(chan struct{}),
		topics: make(map[string]*topicState, len(k.topics)+len(res.Topics)),
	}
	if len(res.Brokers) > 0 {
		next.brokers = make(map[int32]string, len(res.Brokers))
		for _, b := range res.Brokers {
			next.brokers[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		}
	}
	for name, t := range k.topics {
		if keep(t) {
			next.topics[name] = t
		}
	}
	for i := range res.Topics {
		said := &res.Topics[i]
		known := k.topics[said.Name]
		next.topics[said.Name] = known.merge(readTopic(said, next.version), now)
	}
	return next
}

// merge is what is known of a topic after an answer; t may be nil.
func (t *topicState) merge(said *topicState, now time.Time) *topicState {
	if t == nil {
		return said
	}
	said.name = t.name
	if !said.olderThan(t) {
		return said
	}
	since := t.olderSince
	if since.IsZero() {
		since = now
	} else if now.Sub(since) >= believeOlder {
		return said
	}
	kept := *t
	kept.version, kept.olderSince = said.version, since
	return &kept
}

// olderThan reports whether t shows an earlier state of the topic than known does: a leader of an earlier epoch, or fewer
// partitions.
func (t *topicState) olderThan(known *topicState) bool {
	if t.code != 0 || known.code != 0 {
		return false
	}
	if len(t.partitions) < len(known.partitions) {
		return true
	}
	for i, was := range known.partitions {
		if is := t.partitions[i]; is.epoch != none && is.epoch < was.epoch {
			return true
		}
	}
	return false
}

// readTopic reads an answer.
func readTopic(said *metadata.ResponseTopic, version int64) *topicState {
	t := &topicState{name: said.Name, code: said.ErrorCode, version: version}
	if t.code != 0 {
		return t
	}
	if len(said.Partitions) == 0 {
		t.code = int16(kafkago.LeaderNotAvailable)
		return t
	}
	t.partitions = make([]leader, len(said.Partitions))
	for i := range t.partitions {
		t.partitions[i] = leader{none, none}
	}
	for _, p := range said.Partitions {
		if p.PartitionIndex < 0 || int(p.PartitionIndex) >= len(t.partitions) {
			continue // partitions are numbered without gaps
		}
		t.partitions[p.PartitionIndex] = leader{max(p.LeaderID, none), p.LeaderEpoch}
	}
	return t
}
