package stand

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/deletetopics"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/test/debezium/cases"
)

// Topics are those of a cluster that were not there before.
type Topics struct {
	Group  *cases.Group
	Kafka  *kafkaserver.Kafka
	Before []string // or Only
	Only   []string // not nil: these and no others
	Begin  time.Time
}

// Records implements Destination.
func (k *Topics) Records(ctx context.Context, ends string, failed func() error) (all []cases.Record, err error) {
	err = Await(ctx, failed, func() (bool, error) {
		var ended bool
		all, ended, err = k.read(ctx, ends)
		return ended, err
	})
	return all, err
}

// Now implements Destination.
func (k *Topics) Now(ctx context.Context) ([]cases.Record, error) {
	all, _, err := k.read(ctx, "")
	return all, err
}

// read reads all topics. ended: the record is there whose id has ends in it.
func (k *Topics) read(ctx context.Context, ends string) (all []cases.Record, ended bool, err error) {
	names := k.Only
	if names == nil {
		if names, err = k.Kafka.Topics(ctx); err != nil {
			return nil, false, err
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(k.Before, name) })
	}
	var records map[string][]kafkaserver.Record
	err = Await(ctx, func() error { return nil }, func() (bool, error) {
		records, err = readTopics(ctx, k.Kafka, names)
		var code kafkago.Error
		if errors.As(err, &code) && code.Temporary() { // a topic that was made just now
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, false, err
	}
	for _, topic := range slices.Sorted(maps.Keys(records)) {
		for _, r := range records[topic] {
			ended = ended || strings.Contains(r.Header("id"), ends)
			all = append(all, k.record(topic, r))
		}
	}
	cases.Sort(all)
	return all, ended, nil
}

func (k *Topics) record(topic string, r kafkaserver.Record) cases.Record {
	record := cases.Record{
		Topic: topic, Partition: r.Partition, Key: cases.Of(r.Key), Value: cases.Of(r.Value), Time: cases.Timestamp(r.Time, k.Begin), Offset: r.Offset,
	}
	if r.Key == nil && !k.Group.Placed() {
		record.Partition = -1
	}
	for _, h := range r.Headers {
		record.Headers = append(record.Headers, cases.Header{Name: h.Name, Value: cases.Of(h.Value)})
	}
	return record
}

// CreateTopics makes topics with Partitions each, all of them by one request, and returns when
// their leaders answer: one after the other they take longer than everything else.
func CreateTopics(ctx context.Context, k *kafkaserver.Kafka, names []string) error {
	request := &createtopics.Request{TimeoutMs: int32(Bound.Milliseconds())}
	for _, name := range names {
		request.Topics = append(request.Topics, createtopics.RequestTopic{Name: name, NumPartitions: Partitions, ReplicationFactor: 1})
	}
	answer, err := ask[*createtopics.Response](ctx, k, request)
	if err != nil {
		return err
	}
	for _, t := range answer.Topics {
		if err := kafkaserver.KafkaError(t.ErrorCode, t.ErrorMessage); err != nil {
			return fmt.Errorf("create topic %s: %w", t.Name, err)
		}
	}
	var last error
	err = Await(ctx, func() error { return nil }, func() (bool, error) {
		var made map[string]int64
		made, last = EndsOfTopics(ctx, k, names)
		return last == nil && len(made) == len(names), nil
	})
	if err != nil && last != nil {
		err = fmt.Errorf("%w: %w", err, last)
	}
	return err
}

// DeleteTopics deletes topics by one request.
func DeleteTopics(ctx context.Context, k *kafkaserver.Kafka, names []string) error {
	answer, err := ask[*deletetopics.Response](ctx, k, &deletetopics.Request{TopicNames: names, TimeoutMs: int32(Bound.Milliseconds())})
	if err != nil {
		return err
	}
	for _, t := range answer.Responses {
		if err := kafkaserver.KafkaError(t.ErrorCode, ""); err != nil {
			return fmt.Errorf("delete topic %s: %w", t.Name, err)
		}
	}
	return nil
}

// ask asks any broker, which passes on what is the controller's.
func ask[A protocol.Message](ctx context.Context, k *kafkaserver.Kafka, request protocol.Message) (answer A, err error) {
	conn, err := kafkaserver.DialKafka(ctx, k.Brokers()[0])
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	return kafkaserver.Ask[A](ctx, conn, request)
}

// EndsOfTopics are how many records each topic has.
func EndsOfTopics(ctx context.Context, k *kafkaserver.Kafka, names []string) (map[string]int64, error) {
	all := map[string]int64{}
	err := atLeaders(ctx, k, names, func(conn *kafkaserver.KafkaConn, partitions []kafkaserver.TopicPartition) error {
		ends, err := conn.ListOffsets(ctx, partitions, kafkaserver.LatestOffset)
		for p, end := range ends {
			all[p.Topic] += end
		}
		return err
	})
	return all, err
}

// readTopics are the records of topics that begin with offset 0, by topic, partition and offset.
func readTopics(ctx context.Context, k *kafkaserver.Kafka, names []string) (map[string][]kafkaserver.Record, error) {
	all := map[string][]kafkaserver.Record{}
	err := atLeaders(ctx, k, names, func(conn *kafkaserver.KafkaConn, partitions []kafkaserver.TopicPartition) error {
		ends, err := conn.ListOffsets(ctx, partitions, kafkaserver.LatestOffset)
		if err != nil {
			return err
		}
		next := map[kafkaserver.TopicPartition]int64{}
		for {
			var from []kafkaserver.FetchFrom
			for p, end := range ends {
				if next[p] < end {
					from = append(from, kafkaserver.FetchFrom{TopicPartition: p, Offset: next[p]})
				}
			}
			if len(from) == 0 {
				return nil
			}
			answers, err := conn.Fetch(ctx, from, kafkaserver.FetchBytes, 0)
			if err != nil {
				return err
			}
			for _, a := range answers {
				if a.Err != nil {
					return a.Err
				}
				for _, r := range a.Records {
					if r.Offset >= next[a.TopicPartition] && r.Offset < ends[a.TopicPartition] {
						all[a.Topic], next[a.TopicPartition] = append(all[a.Topic], r), r.Offset+1
					}
				}
			}
		}
	})
	for _, records := range all {
		slices.SortStableFunc(records, func(a, b kafkaserver.Record) int { return a.Partition - b.Partition })
	}
	return all, err
}

// atLeaders calls do with a connection to each broker and the partitions of the topics that it
// leads.
func atLeaders(ctx context.Context, k *kafkaserver.Kafka, names []string, do func(*kafkaserver.KafkaConn, []kafkaserver.TopicPartition) error) error {
	if len(names) == 0 {
		return nil
	}
	known, err := kafkaserver.ClusterMetadata(ctx, k.Brokers(), names)
	if err != nil {
		return err
	}
	led := map[int32][]kafkaserver.TopicPartition{}
	for _, t := range known.Topics {
		if err := kafkaserver.KafkaError(t.ErrorCode, ""); err != nil {
			return fmt.Errorf("topic %s: %w", t.Name, err)
		}
		for _, p := range t.Partitions {
			led[p.LeaderID] = append(led[p.LeaderID], kafkaserver.TopicPartition{Topic: t.Name, Partition: int(p.PartitionIndex)})
		}
	}
	for broker, partitions := range led {
		conn, err := kafkaserver.DialKafka(ctx, kafkaserver.BrokerAddr(known, broker))
		if err != nil {
			return err
		}
		err = do(conn, partitions)
		conn.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
