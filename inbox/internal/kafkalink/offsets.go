// Which partitions there are, and what they have.

package kafkalink

import (
	"context"
	"errors"
	"fmt"
	"slices"

	kafkago "github.com/segmentio/kafka-go"
)

// Ends returns the first offset of each partition of a topic, and the one after the last. It asks
// for a few at a time: kafka-go opens a connection for each question that waits for its answer.
func (l *Link) Ends(ctx context.Context, topic string, partitions []int) (map[int]Ends, error) {
	found := map[int]Ends{}
	for some := range slices.Chunk(partitions, 4) {
		if err := l.ends(ctx, topic, some, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (l *Link) ends(ctx context.Context, topic string, partitions []int, found map[int]Ends) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	ask := make([]kafkago.OffsetRequest, 0, 2*len(partitions))
	for _, p := range partitions {
		ask = append(ask, kafkago.FirstOffsetOf(p), kafkago.LastOffsetOf(p))
	}
	answer, err := l.Client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{topic: ask}})
	if err != nil {
		return fmt.Errorf("list offsets of %s: %w", topic, err)
	}
	for _, p := range answer.Topics[topic] {
		if p.Error != nil {
			return fmt.Errorf("list offsets of %s-%d: %w", topic, p.Partition, p.Error)
		}
		found[p.Partition] = Ends{p.FirstOffset, p.LastOffset}
	}
	for _, p := range partitions {
		if _, ok := found[p]; !ok {
			return fmt.Errorf("list offsets of %s-%d: the broker did not answer", topic, p)
		}
	}
	return nil
}

// Ends are the offsets from the first message of a partition to the one after the last.
type Ends struct{ First, After int64 }

// Partitions are those of a topic. There are none when the topic does not exist.
func (l *Link) Partitions(ctx context.Context, topics ...string) (map[string][]int, error) {
	all, err := l.existing(ctx, topics)
	found := map[string][]int{}
	for _, t := range all {
		for _, p := range t.Partitions {
			found[t.Name] = append(found[t.Name], p.ID)
		}
	}
	return found, err
}

// Layout is how many partitions a topic has, and how many replicas each of them has at least.
type Layout struct{ Partitions, Replicas int }

// Layouts are those of the topics that exist.
func (l *Link) Layouts(ctx context.Context, topics ...string) (map[string]Layout, error) {
	all, err := l.existing(ctx, topics)
	found := map[string]Layout{}
	for _, t := range all {
		least := len(t.Partitions[0].Replicas)
		for _, p := range t.Partitions {
			least = min(least, len(p.Replicas))
		}
		found[t.Name] = Layout{len(t.Partitions), least}
	}
	return found, err
}

// existing are those of the topics that have partitions.
func (l *Link) existing(ctx context.Context, topics []string) (found []kafkago.Topic, err error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	answer, err := l.Client.Metadata(ctx, &kafkago.MetadataRequest{Topics: topics})
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	for _, t := range answer.Topics {
		if errors.Is(t.Error, kafkago.TopicAuthorizationFailed) {
			return nil, fmt.Errorf("describe topic %s: %w", t.Name, t.Error)
		}
		if t.Error == nil && len(t.Partitions) > 0 { // else it does not exist, or has no leader yet
			found = append(found, t)
		}
	}
	return found, nil
}

// Committed are the offsets that a group has of partitions. Those that it has none of are left out.
func (l *Link) Committed(ctx context.Context, group string, partitions map[string][]int) (map[string]map[int]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	answer, err := l.Client.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: group, Topics: partitions})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		return nil, fmt.Errorf("fetch offsets of group %s: %w", group, err)
	}
	found := map[string]map[int]int64{}
	for topic, all := range answer.Topics {
		found[topic] = map[int]int64{}
		for _, p := range all {
			if p.Error != nil {
				return nil, fmt.Errorf("fetch the offset of group %s for %s-%d: %w", group, topic, p.Partition, p.Error)
			}
			if p.CommittedOffset >= 0 {
				found[topic][p.Partition] = p.CommittedOffset
			}
		}
	}
	return found, nil
}
