package kafkaclient

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
)

// sets are record sets by what they have in common.
func sets(t testing.TB) map[string]*fetch.Response {
	of := func(version int8, attributes protocol.Attributes, records ...protocol.Record) *fetch.Response {
		return &fetch.Response{Topics: []fetch.ResponseTopic{{Topic: "events", Partitions: []fetch.ResponsePartition{{
			RecordSet: protocol.RecordSet{Version: version, Attributes: attributes, Records: protocol.NewRecordReader(records...)},
		}}}}}
	}
	record := func(size int) protocol.Record {
		return protocol.Record{Time: time.Unix(1, 0), Key: protocol.NewBytes([]byte("k")), Value: protocol.NewBytes(make([]byte, size)), Headers: []protocol.Header{{Key: "h", Value: []byte("v")}}}
	}
	all := map[string]*fetch.Response{}
	for codec := compress.None; codec <= compress.Zstd; codec++ {
		all[codec.String()] = of(2, protocol.Attributes(codec), record(10), record(1000))
		all[codec.String()+" large"] = of(2, protocol.Attributes(codec), record(2*limit))
	}
	return all
}

// fetched reads an answer, and returns the bytes that are allocated meanwhile.
func fetched(body []byte) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, _, _ = readFetchAnswer(body, "events", 0, 0, limit)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestRecords: records are read, and a batch that takes more memory is not, however it is
// compressed.
func TestRecords(t *testing.T) {
	for name, res := range sets(t) {
		body := answerOf(t, res, fetchVersion)
		messages, next, _, err := readFetchAnswer(body, "events", 0, 0, limit)
		var over *TooLargeError
		if large := strings.Contains(name, "large"); large != errors.As(err, &over) || !large && err != nil {
			t.Errorf("%s: %d bytes give %v", name, len(body), err)
		}
		if err != nil {
			continue
		}
		m := messages[len(messages)-1]
		if next != 2 || len(messages) != 2 || m.Offset != 1 || string(m.Key) != "k" || len(m.Value) != 1000 || len(m.Headers) != 1 ||
			m.Headers[0].Key != "h" || string(m.Headers[0].Value) != "v" || m.Time.Unix() != 1 || m.Topic != "events" {
			t.Errorf("%s: %d messages, next %d, the last is %+v", name, len(messages), next, m)
		}
	}
	old := &fetch.Response{Topics: []fetch.ResponseTopic{{Topic: "events", Partitions: []fetch.ResponsePartition{{
		RecordSet: protocol.RecordSet{Version: 1, Records: protocol.NewRecordReader(protocol.Record{Value: protocol.NewBytes(make([]byte, 50))})},
	}}}}}
	if _, _, _, err := readFetchAnswer(answerOf(t, old, fetchVersion), "events", 0, 0, limit); err == nil || !strings.Contains(err.Error(), "before Kafka 0.11") {
		t.Errorf("messages of an old format: %v", err)
	}
}

// TestRecordClaims: each byte of a batch is changed. Nothing panics, or takes more memory than it
// may.
func TestRecordClaims(t *testing.T) {
	for name, res := range sets(t) {
		if strings.Contains(name, "large") {
			continue
		}
		body := answerOf(t, res, fetchVersion)
		set := bytes.Index(body, []byte("events")) + len("events") + 4 + 4 + 2 + 8 + 8 + 4 + 4
		for at := range min(len(body), 200) {
			for _, value := range []byte{0, 1, 0x7F, 0x80, 0xFE, 0xFF} {
				claimed := slices.Clone(body)
				claimed[at] = value
				if at >= set+21 { // with a checksum that fits
					binary.BigEndian.PutUint32(claimed[set+17:], crc32.Checksum(claimed[set+21:], CRCTable))
				}
				if took := fetched(claimed); took > blocks {
					t.Errorf("%s: byte %d is %d: %d bytes are allocated", name, at, value, took)
				}
			}
		}
	}
}

// batchOf is a batch of records with a key and some offsets.
func batchOf(producer int64, attributes int16, key []byte, offsets ...int64) []byte {
	base := offsets[0]
	b := make([]byte, batchHead)
	for _, o := range offsets {
		record := binary.AppendVarint(binary.AppendVarint([]byte{0}, 0), o-base)
		record = appendNullable(appendNullable(record, key), nil)
		record = append(record, 0)
		b = append(binary.AppendVarint(b, int64(len(record))), record...)
	}
	be := binary.BigEndian
	be.PutUint64(b, uint64(base))
	be.PutUint32(b[8:], uint32(len(b)-12))
	b[16] = 2
	be.PutUint16(b[21:], uint16(attributes))
	be.PutUint32(b[23:], uint32(offsets[len(offsets)-1]-base))
	be.PutUint64(b[43:], uint64(producer))
	be.PutUint32(b[57:], uint32(len(offsets)))
	be.PutUint32(b[17:], crc32.Checksum(b[21:], CRCTable))
	return b
}

func marker(producer, offset int64, kind byte) []byte {
	return batchOf(producer, controlBatch|transactional, []byte{0, 0, 0, kind}, offset)
}

// What was aborted, the ends of transactions and what was not asked for are no messages, and are
// read.
func TestReading(t *testing.T) {
	const abort, commit = 0, 1
	plain := func(offsets ...int64) []byte { return batchOf(-1, 0, nil, offsets...) }
	tx := func(producer int64, offsets ...int64) []byte {
		return batchOf(producer, transactional, nil, offsets...)
	}
	empty := batchOf(-1, 0, nil, 4, 9)[:batchHead] // all of its records were compacted away
	binary.BigEndian.PutUint32(empty[8:], batchHead-12)
	binary.BigEndian.PutUint32(empty[57:], 0)
	binary.BigEndian.PutUint32(empty[17:], crc32.Checksum(empty[21:], CRCTable))
	for _, tc := range []struct {
		name    string
		from    int64
		aborted []abortedTransaction
		batches [][]byte
		want    []int64
		next    int64
	}{
		{"a batch that begins earlier", 2, nil, [][]byte{plain(0, 1, 2, 3)}, []int64{2, 3}, 4},
		{"records that were compacted away", 0, nil, [][]byte{plain(3, 7)}, []int64{3, 7}, 8},
		{"all of them", 4, nil, [][]byte{empty}, nil, 10},
		{"a batch that is cut", 0, nil, [][]byte{plain(0), plain(1)[:66]}, []int64{0}, 1},
		{"a committed transaction", 0, nil, [][]byte{tx(1, 0, 1), marker(1, 2, commit)}, []int64{0, 1}, 3},
		{
			"an aborted one, and the producer's next", 0,
			[]abortedTransaction{{1, 0}},
			[][]byte{tx(1, 0), tx(2, 1), marker(1, 2, abort), tx(1, 3), marker(2, 4, commit), marker(1, 5, commit)},
			[]int64{1, 3},
			6,
		},
		{
			"two that were aborted", 0,
			[]abortedTransaction{{1, 0}, {1, 3}},
			[][]byte{tx(1, 0), marker(1, 1, abort), batchOf(1, 0, nil, 2), tx(1, 3), marker(1, 4, abort)},
			[]int64{2},
			5,
		},
		{"only the end of one", 7, nil, [][]byte{marker(1, 7, commit)}, nil, 8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := fetchedBatches{next: tc.from, aborted: tc.aborted, budget: budget{limit, limit}}
			if err := eachBatch(slices.Concat(tc.batches...), r.readBatch); err != nil {
				t.Fatal(err)
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
	damaged := plain(0)
	damaged[batchHead+1]++
	if err := eachBatch(damaged, (&fetchedBatches{budget: budget{limit, limit}}).readBatch); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged batch: %v", err)
	}
}
