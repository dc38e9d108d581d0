// The metadata of the cluster, and how answers are merged into it: brokers may contradict each
// other while a leader changes.

package kafkaclient

import (
	"net"
	"strconv"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// None stands for no node, no epoch, no partition and no producer id.
const None = -1

// Metadata is what the answers so far say together. It is immutable, except that Stale is closed.
type Metadata struct {
	Version int64     // how many answers there were
	At      time.Time // when the newest answer came
	Brokers map[int32]string
	Topics  map[string]*Topic
	witness witness       // identifies the newest answer
	Stale   chan struct{} // closed once there is a newer Metadata
}

// witness identifies an answer on the control connection: by the number of the connection, and by
// the number of the question, which counts over all connections.
type witness struct{ session, question int64 }

// Topic is the metadata of one topic. It is immutable.
type Topic struct {
	Name       string
	Code       int16     // why nothing can be published to it; 0 means that it can
	Partitions []Leader  // by number; empty when Code is set
	InSync     []bool    // by number: whether all replicas of the partition are in sync
	Version    int64     // the number of the last answer about it
	At         time.Time // when the answer came that has this state
	// olderSince is since when answers show an earlier state than this one. The zero time means
	// that they do not.
	olderSince time.Time
}

// Leader is who leads a partition, and the epoch, which rises with each election. Node is None
// while there is no leader. Epoch is None when the broker does not report it (before Kafka 2.3).
type Leader struct{ Node, Epoch int32 }

// believeOlder is how long answers must show an earlier state until they are believed. A broker
// that lags behind the controller catches up sooner. A topic that was deleted and re-created begins
// again with epoch 0, so its answers continue to look older.
const believeOlder = 2 * time.Second

// NewMetadata makes the Metadata that is used before any answer. It knows no broker and no topic.
func NewMetadata() *Metadata { return &Metadata{Stale: make(chan struct{})} }

// Leader returns the leader of a partition, or false while none is known.
func (m *Metadata) Leader(topic string, partition int32) (Leader, bool) {
	t := m.Topics[topic]
	if t == nil || int(partition) >= len(t.Partitions) {
		return Leader{}, false
	}
	l := t.Partitions[partition]
	return l, l.Node != None
}

// leads reports whether a node leads a partition of a known topic.
func (m *Metadata) leads(node int32) bool {
	for _, t := range m.Topics {
		for _, l := range t.Partitions {
			if l.Node == node {
				return true
			}
		}
	}
	return false
}

// showsOlderState reports whether the newest answer shows an earlier state of a topic than a former
// answer.
func (m *Metadata) showsOlderState() bool {
	for _, t := range m.Topics {
		if t.Version == m.Version && !t.olderSince.IsZero() {
			return true
		}
	}
	return false
}

// Merge returns the metadata with an answer added. keep says which known topics are kept when the
// answer does not have them.
func (m *Metadata) Merge(res *metadata.Response, keep func(*Topic) bool, now time.Time) *Metadata {
	next := &Metadata{
		Version: m.Version + 1, At: now, Brokers: m.Brokers, Stale: make(chan struct{}),
		Topics: make(map[string]*Topic, len(m.Topics)+len(res.Topics)),
	}
	if len(res.Brokers) > 0 {
		next.Brokers = make(map[int32]string, len(res.Brokers))
		for _, b := range res.Brokers {
			next.Brokers[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		}
	}
	for name, t := range m.Topics {
		if keep(t) {
			next.Topics[name] = t
		}
	}
	for i := range res.Topics {
		said := &res.Topics[i]
		known := m.Topics[said.Name]
		next.Topics[said.Name] = known.Merge(readTopic(said, next.Version, now), now)
	}
	return next
}

// MaybeNew reports whether the topic has an error that every topic has right after its creation.
func (t *Topic) MaybeNew() bool {
	code := kafkago.Error(t.Code)
	return code == kafkago.UnknownTopicOrPartition || code == kafkago.LeaderNotAvailable
}

// Merge returns the metadata of a topic with an answer added. t may be nil. An answer that shows an
// earlier state is ignored for believeOlder.
func (t *Topic) Merge(said *Topic, now time.Time) *Topic {
	if t == nil {
		return said
	}
	said.Name = t.Name
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
	kept.Version, kept.olderSince = said.Version, since
	return &kept
}

// olderThan reports whether t shows an earlier state of the topic than known does: a leader of an
// earlier epoch, or fewer partitions.
func (t *Topic) olderThan(known *Topic) bool {
	if t.Code != 0 || known.Code != 0 {
		return false
	}
	if len(t.Partitions) < len(known.Partitions) {
		return true
	}
	for i, was := range known.Partitions {
		if is := t.Partitions[i]; is.Epoch != None && is.Epoch < was.Epoch {
			return true
		}
	}
	return false
}

// readTopic converts the part of an answer about one topic.
func readTopic(said *metadata.ResponseTopic, version int64, now time.Time) *Topic {
	t := &Topic{Name: said.Name, Code: said.ErrorCode, Version: version, At: now}
	if t.Code != 0 {
		return t
	}
	if len(said.Partitions) == 0 {
		t.Code = int16(kafkago.LeaderNotAvailable)
		return t
	}
	t.Partitions = make([]Leader, len(said.Partitions))
	t.InSync = make([]bool, len(said.Partitions))
	for i := range t.Partitions {
		t.Partitions[i] = Leader{None, None}
	}
	for _, p := range said.Partitions {
		if p.PartitionIndex < 0 || int(p.PartitionIndex) >= len(t.Partitions) {
			continue // cannot happen: partitions are numbered without gaps
		}
		t.Partitions[p.PartitionIndex] = Leader{max(p.LeaderID, None), p.LeaderEpoch}
		t.InSync[p.PartitionIndex] = len(p.ReplicaNodes) > 0 && len(p.IsrNodes) >= len(p.ReplicaNodes)
	}
	return t
}
