// The request DeleteRecords, which kafka-go does not have.

package kafkalink

import (
	"context"
	"errors"
	"fmt"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

func init() { protocol.Register(&deleteRequest{}, &deleteResponse{}) }

type deleteRequest struct {
	Topics    []deleteRequestTopic `kafka:"min=v0,max=v1"`
	TimeoutMs int32                `kafka:"min=v0,max=v1"`
}

type deleteRequestTopic struct {
	Name       string                   `kafka:"min=v0,max=v1"`
	Partitions []deleteRequestPartition `kafka:"min=v0,max=v1"`
}

type deleteRequestPartition struct {
	Partition int32 `kafka:"min=v0,max=v1"`
	Offset    int64 `kafka:"min=v0,max=v1"`
}

type deleteResponse struct {
	ThrottleTimeMs int32                 `kafka:"min=v0,max=v1"`
	Topics         []deleteResponseTopic `kafka:"min=v0,max=v1"`
}

type deleteResponseTopic struct {
	Name       string                    `kafka:"min=v0,max=v1"`
	Partitions []deleteResponsePartition `kafka:"min=v0,max=v1"`
}

type deleteResponsePartition struct {
	Partition    int32 `kafka:"min=v0,max=v1"`
	LowWatermark int64 `kafka:"min=v0,max=v1"`
	ErrorCode    int16 `kafka:"min=v0,max=v1"`
}

func (r *deleteRequest) ApiKey() protocol.ApiKey  { return protocol.DeleteRecords }
func (r *deleteResponse) ApiKey() protocol.ApiKey { return protocol.DeleteRecords }

// Broker is the leader of the partition.
func (r *deleteRequest) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	topic, partition := r.Topics[0].Name, r.Topics[0].Partitions[0].Partition
	p, ok := cluster.Topics[topic].Partitions[partition]
	if !ok {
		return protocol.Broker{}, kafkago.UnknownTopicOrPartition
	}
	b, ok := cluster.Brokers[p.Leader]
	if !ok {
		return protocol.Broker{}, kafkago.LeaderNotAvailable
	}
	return b, nil
}

// DeleteBefore deletes the messages of a partition before an offset.
func (l *Link) DeleteBefore(ctx context.Context, topic string, partition int, offset int64) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	answer, err := l.transport.RoundTrip(ctx, l.Client.Addr, &deleteRequest{
		TimeoutMs: int32(RequestTimeout.Milliseconds()),
		Topics:    []deleteRequestTopic{{Name: topic, Partitions: []deleteRequestPartition{{Partition: int32(partition), Offset: offset}}}},
	})
	if err == nil {
		res, ok := answer.(*deleteResponse)
		switch {
		case !ok || len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1:
			err = errors.New("the broker's answer is not one for it")
		case res.Topics[0].Partitions[0].ErrorCode != 0:
			err = kafkago.Error(res.Topics[0].Partitions[0].ErrorCode)
		}
	}
	if err != nil {
		return fmt.Errorf("delete messages of %s-%d before offset %d: %w", topic, partition, offset, err)
	}
	return nil
}
