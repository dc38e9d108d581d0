// Reading the log of a partition.
//
// kafka-go's Reader will not do. Each time it connects, it begins with the first message that the
// broker has if its offset is lower, also with OffsetOutOfRangeError: messages that were deleted
// before they were processed would be skipped without a word. It also delivers messages of
// transactions that were aborted, and does not say that it has passed offsets without messages.

package kafkalink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"

	"github.com/cdc-relay/cdc-relay/internal/kafkaguard"
)

// maxWait is how long a broker holds a request for messages that are not there yet.
const maxWait = 2 * time.Second

// Fetch returns the messages of a partition from an offset on, and the offset to go on with. It
// waits a little for the first one. There is an error when the broker does not have the offset:
// kafka-go's Reader would go on with another one. When what comes takes too much memory it asks for
// one batch alone.
func (l *Link) Fetch(ctx context.Context, topic string, partition int, from int64, bytes int) ([]kafkago.Message, int64, error) {
	messages, next, err := l.fetch(ctx, topic, partition, from, bytes)
	var over *kafkaguard.TooLarge
	if errors.As(err, &over) && bytes > 1 {
		messages, next, err = l.fetch(ctx, topic, partition, from, 1)
	}
	if errors.As(err, &over) {
		err = fmt.Errorf("the batch of messages with offset %d of %s-%d is too large: %w; raise MaxInFlightBytes", from, topic, partition, err)
	}
	return messages, next, err
}

func (l *Link) fetch(ctx context.Context, topic string, partition int, from int64, bytes int) ([]kafkago.Message, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, maxWait+RequestTimeout)
	defer cancel()
	answer, err := l.transport.RoundTrip(ctx, l.Client.Addr, &fetch.Request{
		ReplicaID: -1, MaxWaitTime: int32(maxWait.Milliseconds()), MinBytes: 1, MaxBytes: int32(bytes),
		IsolationLevel: int8(kafkago.ReadCommitted), SessionEpoch: -1,
		Topics: []fetch.RequestTopic{{Topic: topic, Partitions: []fetch.RequestPartition{{
			Partition: int32(partition), CurrentLeaderEpoch: -1, FetchOffset: from, LogStartOffset: -1, PartitionMaxBytes: int32(bytes),
		}}}},
	})
	if err != nil {
		return nil, from, err
	}
	res, ok := answer.(*fetch.Response)
	if !ok || len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return nil, from, fmt.Errorf("the broker's answer is not one for %s-%d", topic, partition)
	}
	p := &res.Topics[0].Partitions[0]
	if code := kafkago.Error(cmp.Or(res.ErrorCode, p.ErrorCode)); code != 0 {
		return nil, from, code
	}
	stream, ok := p.RecordSet.Records.(*protocol.RecordStream)
	if !ok {
		return nil, from, nil // nothing is there yet
	}
	r := reading{topic: topic, partition: partition, next: from, aborted: p.AbortedTransactions}
	for _, batch := range stream.Records {
		if err := r.add(batch); err != nil {
			return nil, from, fmt.Errorf("read messages of %s-%d from offset %d: %w", topic, partition, from, err)
		}
	}
	if r.next == from && len(stream.Records) > 0 {
		// The batch that has this offset was read, and the record is not in it: it was compacted
		// away.
		r.next++
	}
	return r.messages, r.next, nil
}

// reading takes the messages out of an answer.
type reading struct {
	topic     string
	partition int
	next      int64 // the first offset that was not read
	aborted   []fetch.ResponseTransaction
	messages  []kafkago.Message
}

// add reads a batch. Batches of transactions that were aborted have no messages, and the ends of
// transactions are none.
func (r *reading) add(batch protocol.RecordReader) error {
	hidden := false
	if b, ok := batch.(*protocol.RecordBatch); ok && b.Attributes.Transactional() {
		hidden = r.isAborted(b)
	}
	control, isControl := batch.(*protocol.ControlBatch)
	for {
		record, err := batch.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		m, err := r.copied(record)
		if err != nil {
			return err
		}
		if isControl {
			r.ended(control, m)
		}
		if m.Offset < r.next { // a batch may begin earlier
			continue
		}
		r.next = m.Offset + 1
		if !hidden && !isControl {
			r.messages = append(r.messages, m)
		}
	}
}

// isAborted is whether a batch is of a transaction that was aborted: one of its producer has begun
// before, and its end is yet to come.
func (r *reading) isAborted(b *protocol.RecordBatch) bool {
	return slices.ContainsFunc(r.aborted, func(t fetch.ResponseTransaction) bool {
		return t.ProducerID == b.ProducerID && t.FirstOffset <= b.BaseOffset
	})
}

// ended forgets a producer's aborted transaction at the marker of its end.
func (r *reading) ended(control *protocol.ControlBatch, marker kafkago.Message) {
	const abort = 0
	if len(marker.Key) != 4 || marker.Key[2] != 0 || marker.Key[3] != abort {
		return
	}
	i := slices.IndexFunc(r.aborted, func(t fetch.ResponseTransaction) bool {
		return t.ProducerID == control.ProducerID && t.FirstOffset <= marker.Offset
	})
	if i >= 0 {
		r.aborted = slices.Delete(r.aborted, i, i+1)
	}
}

// copied copies a record, and gives its memory back to kafka-go.
func (r *reading) copied(record *protocol.Record) (kafkago.Message, error) {
	m := kafkago.Message{Topic: r.topic, Partition: r.partition, Offset: record.Offset, Time: record.Time, Headers: record.Headers}
	var err error
	if m.Key, err = bytesOf(record.Key); err != nil {
		return m, err
	}
	m.Value, err = bytesOf(record.Value)
	return m, err
}

func bytesOf(b protocol.Bytes) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	text, err := protocol.ReadAll(b)
	return text, errors.Join(err, b.Close())
}

// Size is about how much memory a message takes, in bytes.
func Size(m *kafkago.Message) int {
	n := 256 + len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		n += 64 + len(h.Key) + len(h.Value)
	}
	return n
}
