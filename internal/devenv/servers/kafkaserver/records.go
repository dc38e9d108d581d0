// The records of a topic, read from the beginning to the end.

package kafkaserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/protocol/listoffsets"
)

// Record is a record as it lies in the log. Key and Value are nil when they are null.
type Record struct {
	Partition  int
	Offset     int64
	Key, Value []byte
	Headers    []Header
	Time       time.Time // milliseconds
}

// Header is one header of a record. A name may stand more than once.
type Header struct {
	Name  string
	Value []byte // nil when it is null
}

// Header is the value of the first header of that name, as text; "" when there is none.
func (r *Record) Header(name string) string {
	for _, h := range r.Headers {
		if h.Name == name {
			return string(h.Value)
		}
	}
	return ""
}

// Has reports whether there is a header of that name.
func (r *Record) Has(name string) bool {
	return slices.ContainsFunc(r.Headers, func(h Header) bool { return h.Name == name })
}

// EndOffsets are the offsets after the last committed record of each partition.
func (k *Kafka) EndOffsets(ctx context.Context, topic string) (map[int]int64, error) {
	var ends map[int]int64
	err := k.retry(ctx, func() (err error) {
		ends, err = kafkaOffsets(ctx, k.live(), topic, LatestOffset)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read end offsets of %s: %w", topic, err)
	}
	return ends, nil
}

// Records are all records of a topic from the beginning of its logs to the end at the moment of the
// call, by partition and offset.
func (k *Kafka) Records(ctx context.Context, topic string) ([]Record, error) {
	var all []Record
	err := k.retry(ctx, func() (err error) {
		all, err = kafkaRecords(ctx, k.live(), topic)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read records of %s: %w", topic, err)
	}
	return all, nil
}

// The timestamps by which ListOffsets knows the two ends of a log.
const (
	LatestOffset   = -1
	EarliestOffset = -2
)

// kafkaOffsets asks the leader of each partition for one end of its log.
func kafkaOffsets(ctx context.Context, brokers []string, topic string, end int64) (map[int]int64, error) {
	leaders, err := kafkaLeaders(ctx, brokers, []string{topic})
	if err != nil {
		return nil, err
	}
	offsets := map[int]int64{}
	for addr, partitions := range leaders {
		found, err := listOffsets(ctx, addr, partitions, end)
		if err != nil {
			return nil, err
		}
		for p, offset := range found {
			offsets[p.Partition] = offset
		}
	}
	return offsets, nil
}

// listOffsets asks one leader.
func listOffsets(ctx context.Context, addr string, partitions []TopicPartition, end int64) (map[TopicPartition]int64, error) {
	conn, err := DialKafka(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ListOffsets(ctx, partitions, end)
}

// ListOffsets asks the broker, which must lead the partitions, for their offsets: the first at or
// after end, in Unix milliseconds; -1 stands for the log's end and -2 for its beginning.
func (c *KafkaConn) ListOffsets(ctx context.Context, partitions []TopicPartition, end int64) (map[TopicPartition]int64, error) {
	req := &listoffsets.Request{ReplicaID: -1}
	for _, p := range partitions {
		at := slices.IndexFunc(req.Topics, func(t listoffsets.RequestTopic) bool { return t.Topic == p.Topic })
		if at < 0 {
			at = len(req.Topics)
			req.Topics = append(req.Topics, listoffsets.RequestTopic{Topic: p.Topic})
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, listoffsets.RequestPartition{
			Partition: int32(p.Partition), CurrentLeaderEpoch: -1, Timestamp: end,
		})
	}
	res, err := Ask[*listoffsets.Response](ctx, c, req)
	if err != nil {
		return nil, err
	}
	offsets := map[TopicPartition]int64{}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			if err := KafkaError(p.ErrorCode, ""); err != nil {
				return nil, fmt.Errorf("ask for an offset of %s-%d: %w", t.Topic, p.Partition, err)
			}
			offsets[TopicPartition{Topic: t.Topic, Partition: int(p.Partition)}] = p.Offset
		}
	}
	return offsets, nil
}

func kafkaRecords(ctx context.Context, brokers []string, topic string) ([]Record, error) {
	leaders, err := kafkaLeaders(ctx, brokers, []string{topic})
	if err != nil {
		return nil, err
	}
	var all []Record
	for addr, partitions := range leaders {
		records, err := readToEnd(ctx, addr, partitions)
		if err != nil {
			return nil, err
		}
		all = append(all, records...)
	}
	slices.SortStableFunc(all, func(a, b Record) int { return a.Partition - b.Partition })
	return all, nil
}

// readToEnd reads partitions of one leader, one after the other.
func readToEnd(ctx context.Context, addr string, partitions []TopicPartition) ([]Record, error) {
	conn, err := DialKafka(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ends, err := conn.ListOffsets(ctx, partitions, LatestOffset)
	if err != nil {
		return nil, err
	}
	next, err := conn.ListOffsets(ctx, partitions, EarliestOffset)
	if err != nil {
		return nil, err
	}
	var all []Record
	for _, p := range partitions {
		for next[p] < ends[p] {
			answers, err := conn.Fetch(ctx, []FetchFrom{{p, next[p]}}, FetchBytes, 0)
			if err != nil {
				return nil, err
			}
			before := next[p]
			for _, r := range answers[0].Records {
				if r.Offset >= next[p] && r.Offset < ends[p] {
					all = append(all, r)
					next[p] = r.Offset + 1
				}
			}
			if next[p] == before {
				break // nothing but control batches
			}
		}
	}
	return all, nil
}
