// Leaders and replicas of a partition, and moving them.

package kafkaserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/alterpartitionreassignments"
	"github.com/segmentio/kafka-go/protocol/electleaders"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// Leader is the id of the node that leads a partition; 0: none does.
func (k *Kafka) Leader(ctx context.Context, topic string, partition int) (int, error) {
	p, err := k.partition(ctx, topic, partition)
	if err != nil {
		return 0, fmt.Errorf("find leader of %s-%d: %w", topic, partition, err)
	}
	return max(int(p.LeaderID), 0), nil
}

// Replicas are the ids of the nodes that hold a partition, the preferred leader first, and of those
// that are in sync.
func (k *Kafka) Replicas(ctx context.Context, topic string, partition int) (all, inSync []int, err error) {
	p, err := k.partition(ctx, topic, partition)
	if err != nil {
		return nil, nil, fmt.Errorf("find replicas of %s-%d: %w", topic, partition, err)
	}
	for _, id := range p.ReplicaNodes {
		all = append(all, int(id))
	}
	for _, id := range p.IsrNodes {
		inSync = append(inSync, int(id))
	}
	return all, inSync, nil
}

// partition is what the first broker that answers knows of a partition. It asks those that run.
func (k *Kafka) partition(ctx context.Context, topic string, partition int) (metadata.ResponsePartition, error) {
	var found metadata.ResponsePartition
	err := k.retry(ctx, func() error {
		res, err := ClusterMetadata(ctx, k.live(), []string{topic})
		if err != nil {
			return err
		}
		if err := KafkaError(res.Topics[0].ErrorCode, ""); err != nil {
			return err
		}
		for _, p := range res.Topics[0].Partitions {
			if int(p.PartitionIndex) == partition {
				found = p
				return nil
			}
		}
		return kafkago.UnknownTopicOrPartition
	})
	return found, err
}

// MoveLeader makes a node that holds a partition in sync its leader, and returns when every running
// broker knows and the node has taken up its work. The node becomes the preferred leader, too.
func (k *Kafka) MoveLeader(ctx context.Context, topic string, partition, node int) error {
	err := k.preferLeader(ctx, topic, partition, node)
	if err == nil {
		err = k.electPreferred(ctx, topic, partition)
	}
	if err == nil {
		err = k.everywhere(ctx, func(addr string) (bool, error) {
			t, err := topicMetadata(ctx, addr, topic)
			moved := func(p metadata.ResponsePartition) bool {
				return int(p.PartitionIndex) == partition && int(p.LeaderID) == node
			}
			return slices.ContainsFunc(t.Partitions, moved), err
		})
	}
	if err == nil {
		err = k.retry(ctx, func() error {
			res, err := ClusterMetadata(ctx, k.live(), []string{})
			if err == nil {
				_, err = listOffsets(ctx, BrokerAddr(res, int32(node)), []TopicPartition{{Topic: topic, Partition: partition}}, LatestOffset)
			}
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("move leader of %s-%d to node %d: %w", topic, partition, node, err)
	}
	return nil
}

// preferLeader puts the node first among the replicas. As they stay the same, no data moves.
func (k *Kafka) preferLeader(ctx context.Context, topic string, partition, node int) error {
	p, err := k.partition(ctx, topic, partition)
	if err != nil {
		return err
	}
	at := slices.Index(p.ReplicaNodes, int32(node))
	if at < 0 {
		return fmt.Errorf("it is not among the replicas %v", p.ReplicaNodes)
	}
	replicas := slices.Insert(slices.Delete(slices.Clone(p.ReplicaNodes), at, at+1), 0, int32(node))
	return change(ctx, k, &alterpartitionreassignments.Request{
		TimeoutMs: adminTimeout,
		Topics: []alterpartitionreassignments.RequestTopic{{
			Name:       topic,
			Partitions: []alterpartitionreassignments.RequestPartition{{PartitionIndex: int32(partition), Replicas: replicas}},
		}},
	}, func(res *alterpartitionreassignments.Response) error {
		if err := KafkaError(res.ErrorCode, res.ErrorMessage); err != nil {
			return err
		}
		changed := res.Results[0].Partitions[0]
		return KafkaError(changed.ErrorCode, changed.ErrorMessage)
	})
}

// electPreferred makes the first replica the leader. That it is the leader already is no error.
func (k *Kafka) electPreferred(ctx context.Context, topic string, partition int) error {
	return change(ctx, k, &electleaders.Request{
		TimeoutMs:       adminTimeout,
		TopicPartitions: []electleaders.RequestTopicPartitions{{Topic: topic, PartitionIDs: []int32{int32(partition)}}},
	}, func(res *electleaders.Response) error {
		err := KafkaError(res.ErrorCode, "")
		if err != nil {
			return err
		}
		for _, t := range res.ReplicaElectionResults {
			for _, p := range t.PartitionResults {
				err = KafkaError(p.ErrorCode, p.ErrorMessage)
			}
		}
		if errors.Is(err, kafkago.ElectionNotNeeded) {
			return nil
		}
		return err
	})
}

// WaitInSync returns when every replica of a topic is in sync, as each running broker knows it.
func (k *Kafka) WaitInSync(ctx context.Context, topic string) error {
	err := k.everywhere(ctx, func(addr string) (bool, error) {
		t, err := topicMetadata(ctx, addr, topic)
		behind := func(p metadata.ResponsePartition) bool {
			return p.LeaderID < 0 || len(p.IsrNodes) != len(p.ReplicaNodes)
		}
		return err == nil && t.ErrorCode == 0 && !slices.ContainsFunc(t.Partitions, behind), err
	})
	if err != nil {
		return fmt.Errorf("wait for the replicas of %s: %w", topic, err)
	}
	return nil
}
