// Changes of topics.

package kafkaserver

import (
	"context"
	"fmt"
	"slices"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/createpartitions"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/deletetopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/incrementalalterconfigs"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// adminTimeout is how long the controller may take for a change, in milliseconds.
const adminTimeout = 10_000

// CreateTopic makes a topic and returns when every running broker knows it and all of its
// partitions have a leader.
func (k *Kafka) CreateTopic(ctx context.Context, name string, partitions, replicas int, configs map[string]string) error {
	topic := createtopics.RequestTopic{Name: name, NumPartitions: int32(partitions), ReplicationFactor: int16(replicas)}
	for key, value := range configs {
		topic.Configs = append(topic.Configs, createtopics.RequestConfig{Name: key, Value: value})
	}
	err := change(ctx, k, &createtopics.Request{
		Topics: []createtopics.RequestTopic{topic}, TimeoutMs: adminTimeout,
	}, func(res *createtopics.Response) error {
		if res.Topics[0].ErrorCode == int16(kafkago.TopicAlreadyExists) {
			return nil // by an earlier request, whose answer came too late
		}
		return KafkaError(res.Topics[0].ErrorCode, res.Topics[0].ErrorMessage)
	})
	if err == nil {
		err = k.awaitPartitions(ctx, name, partitions)
	}
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

// DeleteTopic deletes a topic and returns when no running broker knows it.
func (k *Kafka) DeleteTopic(ctx context.Context, name string) error {
	err := change(ctx, k, &deletetopics.Request{
		TopicNames: []string{name}, TimeoutMs: adminTimeout,
	}, func(res *deletetopics.Response) error {
		return KafkaError(res.Responses[0].ErrorCode, "")
	})
	if err == nil {
		err = k.everywhere(ctx, func(addr string) (bool, error) {
			t, err := topicMetadata(ctx, addr, name)
			return t.ErrorCode == int16(kafkago.UnknownTopicOrPartition), err
		})
	}
	if err != nil {
		return fmt.Errorf("delete topic %s: %w", name, err)
	}
	return nil
}

// AddPartitions raises the number of partitions of a topic to count.
func (k *Kafka) AddPartitions(ctx context.Context, name string, count int) error {
	err := change(ctx, k, &createpartitions.Request{
		Topics: []createpartitions.RequestTopic{{Name: name, Count: int32(count)}}, TimeoutMs: adminTimeout,
	}, func(res *createpartitions.Response) error {
		return KafkaError(res.Results[0].ErrorCode, res.Results[0].ErrorMessage)
	})
	if err == nil {
		err = k.awaitPartitions(ctx, name, count)
	}
	if err != nil {
		return fmt.Errorf("add partitions to %s: %w", name, err)
	}
	return nil
}

const (
	topicResource   = 2 // of the protocol's resource types
	clusterResource = 4
	setConfig       = 0 // of IncrementalAlterConfigs' operations
)

// SetTopicConfig sets a configuration of a topic ("max.message.bytes", "min.insync.replicas"). A
// broker obeys it some milliseconds after it knows it.
func (k *Kafka) SetTopicConfig(ctx context.Context, name, key, value string) error {
	err := change(ctx, k, &incrementalalterconfigs.Request{
		Resources: []incrementalalterconfigs.RequestResource{{
			ResourceType: topicResource, ResourceName: name,
			Configs: []incrementalalterconfigs.RequestConfig{{Name: key, Value: value, ConfigOperation: setConfig}},
		}},
	}, func(res *incrementalalterconfigs.Response) error {
		return KafkaError(res.Responses[0].ErrorCode, res.Responses[0].ErrorMessage)
	})
	if err == nil {
		err = k.everywhere(ctx, func(addr string) (bool, error) {
			now, err := topicConfig(ctx, addr, name, key)
			return now == value, err
		})
	}
	if err != nil {
		return fmt.Errorf("set %s of topic %s: %w", key, name, err)
	}
	return nil
}

// topicConfig is what one broker knows of a topic's configuration.
func topicConfig(ctx context.Context, addr, name, key string) (string, error) {
	res, err := askOne[*describeconfigs.Response](ctx, addr, &describeconfigs.Request{
		Resources: []describeconfigs.RequestResource{{ResourceType: topicResource, ResourceName: name, ConfigNames: []string{key}}},
	})
	if err != nil {
		return "", err
	}
	for _, r := range res.Resources {
		for _, entry := range r.ConfigEntries {
			return entry.ConfigValue, nil
		}
	}
	return "", nil
}

// awaitPartitions returns when all brokers know of the partitions and their leaders have taken up
// their work: the metadata names a leader some milliseconds before it does.
func (k *Kafka) awaitPartitions(ctx context.Context, topic string, count int) error {
	err := k.everywhere(ctx, func(addr string) (bool, error) {
		t, err := topicMetadata(ctx, addr, topic)
		if err != nil || t.ErrorCode != 0 || len(t.Partitions) != count {
			return false, err
		}
		led := func(p metadata.ResponsePartition) bool { return p.ErrorCode == 0 && p.LeaderID >= 0 }
		return !slices.ContainsFunc(t.Partitions, func(p metadata.ResponsePartition) bool { return !led(p) }), nil
	})
	if err != nil {
		return err
	}
	return k.everywhere(ctx, func(addr string) (bool, error) {
		_, err := kafkaOffsets(ctx, []string{addr}, topic, LatestOffset)
		return err == nil, err
	})
}

// topicMetadata is what one broker knows of a topic.
func topicMetadata(ctx context.Context, addr, topic string) (metadata.ResponseTopic, error) {
	res, err := ClusterMetadata(ctx, []string{addr}, []string{topic})
	if err != nil {
		return metadata.ResponseTopic{}, err
	}
	if len(res.Topics) != 1 {
		return metadata.ResponseTopic{}, fmt.Errorf("asked for topic %s, got %d topics", topic, len(res.Topics))
	}
	return res.Topics[0], nil
}

// answers returns when a node takes requests and knows of as many brokers as run.
func (k *Kafka) answers(ctx context.Context, n *kafkaNode) error {
	return n.server.Ready(ctx, func(ctx context.Context) bool {
		res, err := ClusterMetadata(ctx, []string{n.advertised("PLAINTEXT")}, []string{})
		return err == nil && len(res.Brokers) >= len(k.Running())
	})
}

// Topics are the names of all topics but Kafka's own, sorted.
func (k *Kafka) Topics(ctx context.Context) ([]string, error) {
	var names []string
	err := k.retry(ctx, func() error {
		res, err := ClusterMetadata(ctx, k.live(), nil)
		if err != nil {
			return err
		}
		names = nil
		for _, t := range res.Topics {
			if !t.IsInternal {
				names = append(names, t.Name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	slices.Sort(names)
	return names, nil
}
