// Reading the log of a partition from its leader.

package kafkaserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
)

// FetchFrom says from which offset to read a partition.
type FetchFrom struct {
	TopicPartition
	Offset int64
}

// Fetched is what a leader has given of one partition.
type Fetched struct {
	TopicPartition
	Err     error    // of this partition: kafkago.Error
	Records []Record // may begin before the offset asked for
}

// FetchBytes is how much of a partition, and of all in one answer, is asked for at a time.
const FetchBytes = 8 << 20

// Fetch asks the leader for at most so many bytes of its partitions, but for one batch at least. It
// returns as soon as there is anything, or after wait.
func (c *KafkaConn) Fetch(ctx context.Context, from []FetchFrom, most int32, wait time.Duration) ([]Fetched, error) {
	req := &fetch.Request{
		ReplicaID: -1, MaxWaitTime: int32(wait.Milliseconds()), MinBytes: 1, MaxBytes: most, SessionID: 0, SessionEpoch: -1,
	}
	for _, f := range from {
		at := slices.IndexFunc(req.Topics, func(t fetch.RequestTopic) bool { return t.Topic == f.Topic })
		if at < 0 {
			at = len(req.Topics)
			req.Topics = append(req.Topics, fetch.RequestTopic{Topic: f.Topic})
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, fetch.RequestPartition{
			Partition: int32(f.Partition), CurrentLeaderEpoch: -1, FetchOffset: f.Offset, LogStartOffset: -1, PartitionMaxBytes: most,
		})
	}
	res, err := Ask[*fetch.Response](ctx, c, req)
	if err != nil {
		return nil, err
	}
	if err := KafkaError(res.ErrorCode, ""); err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	var all []Fetched
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			f := Fetched{TopicPartition: TopicPartition{Topic: t.Topic, Partition: int(p.Partition)}, Err: KafkaError(p.ErrorCode, "")}
			if f.Records, err = recordsOf(&p.RecordSet, int(p.Partition)); err != nil {
				return nil, fmt.Errorf("read records of %s-%d: %w", t.Topic, p.Partition, err)
			}
			all = append(all, f)
		}
	}
	if len(all) != len(from) {
		return nil, fmt.Errorf("fetch: %d partitions were asked for, %d answered", len(from), len(all))
	}
	return all, nil
}

// recordsOf copies the records out of an answer.
func recordsOf(set *protocol.RecordSet, partition int) ([]Record, error) {
	if set.Records == nil {
		return nil, nil
	}
	var all []Record
	for {
		r, err := set.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		copied := Record{Partition: partition, Offset: r.Offset, Time: r.Time}
		if copied.Key, err = takeBytes(r.Key); err != nil {
			return nil, err
		}
		if copied.Value, err = takeBytes(r.Value); err != nil {
			return nil, err
		}
		for _, h := range r.Headers {
			copied.Headers = append(copied.Headers, Header{Name: h.Key, Value: h.Value})
		}
		all = append(all, copied)
	}
}

// takeBytes copies b and gives back its memory.
func takeBytes(b protocol.Bytes) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	text, err := protocol.ReadAll(b)
	return text, errors.Join(err, b.Close())
}
