package kafkalink

import (
	"slices"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
)

// batchOf is a batch of a producer with records of these offsets.
func batchOf(producer int64, attributes protocol.Attributes, offsets ...int64) *protocol.RecordBatch {
	return &protocol.RecordBatch{Attributes: attributes, ProducerID: producer, BaseOffset: offsets[0], Records: records(nil, offsets...)}
}

func records(key []byte, offsets ...int64) protocol.RecordReader {
	var all []protocol.Record
	for _, o := range offsets {
		all = append(all, protocol.Record{Offset: o, Key: protocol.NewBytes(key)})
	}
	return protocol.NewRecordReader(all...)
}

// marker is the end of a producer's transaction.
func marker(producer, offset int64, kind byte) *protocol.ControlBatch {
	return &protocol.ControlBatch{Attributes: protocol.Control | protocol.Transactional, ProducerID: producer, BaseOffset: offset, Records: records([]byte{0, 0, 0, kind}, offset)}
}

// What was aborted, the ends of transactions and what was not asked for are no messages, and are
// read.
func TestReading(t *testing.T) {
	const abort, commit = 0, 1
	tx := protocol.Transactional
	for _, tc := range []struct {
		name    string
		from    int64
		aborted []fetch.ResponseTransaction
		batches []protocol.RecordReader
		want    []int64
		next    int64
	}{
		{"a batch that begins earlier", 2, nil, []protocol.RecordReader{batchOf(-1, 0, 0, 1, 2, 3)}, []int64{2, 3}, 4},
		{"records that were compacted away", 0, nil, []protocol.RecordReader{batchOf(-1, 0, 3, 7)}, []int64{3, 7}, 8},
		{"a committed transaction", 0, nil, []protocol.RecordReader{batchOf(1, tx, 0, 1), marker(1, 2, commit)}, []int64{0, 1}, 3},
		{
			"an aborted one, and the producer's next", 0,
			[]fetch.ResponseTransaction{{ProducerID: 1, FirstOffset: 0}},
			[]protocol.RecordReader{batchOf(1, tx, 0), batchOf(2, tx, 1), marker(1, 2, abort), batchOf(1, tx, 3), marker(2, 4, commit), marker(1, 5, commit)},
			[]int64{1, 3},
			6,
		},
		{
			"two that were aborted", 0,
			[]fetch.ResponseTransaction{{ProducerID: 1, FirstOffset: 0}, {ProducerID: 1, FirstOffset: 3}},
			[]protocol.RecordReader{batchOf(1, tx, 0), marker(1, 1, abort), batchOf(1, 0, 2), batchOf(1, tx, 3), marker(1, 4, abort)},
			[]int64{2},
			5,
		},
		{"only the end of one", 7, nil, []protocol.RecordReader{marker(1, 7, commit)}, nil, 8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := reading{next: tc.from, aborted: tc.aborted}
			for _, b := range tc.batches {
				if err := r.add(b); err != nil {
					t.Fatal(err)
				}
			}
			var got []int64
			for _, m := range r.messages {
				got = append(got, m.Offset)
			}
			if !slices.Equal(got, tc.want) || r.next != tc.next {
				t.Errorf("messages %v, next %d; want %v, %d", got, r.next, tc.want, tc.next)
			}
		})
	}
}
