package kafkaclient

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient/kafkatest"
)

var codecs = []compress.Compression{compress.None, compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd}

// record is what a test puts into a batch.
type record struct {
	key, value []byte
	time       int64
	headers    []protocol.Header
}

func (r record) message() *Record {
	m := &Record{Key: r.key, Value: r.value, Time: r.time}
	for _, h := range r.headers {
		m.AddHeader(h.Key, h.Value)
	}
	return m
}

func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// wantBatch wants a sealed batch with these records.
func wantBatch(t rapid.TB, sealed []byte, codec compress.Compression, want []record) kafkatest.DecodedBatch {
	t.Helper()
	got := kafkatest.Decode(t, sealed)
	if got.Attributes != protocol.Attributes(codec) || got.BaseOffset != 0 || got.PartitionLeaderEpoch != -1 {
		t.Errorf("attributes %v, base offset %d, leader epoch %d", got.Attributes, got.BaseOffset, got.PartitionLeaderEpoch)
	}
	if len(got.Records) != len(want) {
		t.Fatalf("%d records, want %d", len(got.Records), len(want))
	}
	latest := int64(math.MinInt64)
	for i, r := range got.Records {
		w := want[i]
		latest = max(latest, w.time)
		if r.Offset != int64(i) || r.Time != w.time || !sameBytes(r.Key, w.key) || !sameBytes(r.Value, w.value) {
			t.Errorf("record %d: %+v, want %+v", i, r, w)
		}
		kafkatest.WantHeaders(t, r.Headers, w.headers...)
	}
	// What kafka-go's decoder does not check.
	be := binary.BigEndian
	if last, n := be.Uint32(sealed[lastOffsetAt:]), be.Uint32(sealed[countAt:]); int(last) != len(want)-1 || int(n) != len(want) {
		t.Errorf("last offset delta %d and count %d of %d records", last, n, len(want))
	}
	if first, last := int64(be.Uint64(sealed[baseTimeAt:])), int64(be.Uint64(sealed[maxTimeAt:])); first != want[0].time || last != latest {
		t.Errorf("times %d to %d, want %d to %d", first, last, want[0].time, latest)
	}
	return got
}

func TestBatch(t *testing.T) {
	nullable := rapid.Custom(func(t *rapid.T) []byte {
		if rapid.Bool().Draw(t, "null") {
			return nil
		}
		return rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes")
	})
	records := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) record {
		r := record{key: nullable.Draw(t, "key"), value: nullable.Draw(t, "value"), time: rapid.Int64Range(0, 1<<45).Draw(t, "time")}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			r.headers = append(r.headers, protocol.Header{Key: rapid.String().Draw(t, "name"), Value: nullable.Draw(t, "value")})
		}
		return r
	}), 1, 150)
	for _, codec := range codecs {
		t.Run(codec.String(), func(t *testing.T) {
			b := NewBatch(codec)
			rapid.Check(t, func(t *rapid.T) {
				want := records.Draw(t, "records")
				pid, epoch, sequence := rapid.Int64().Draw(t, "pid"), rapid.Int16().Draw(t, "epoch"), rapid.Int32().Draw(t, "sequence")
				b.Reset()
				for _, r := range want {
					b.Add(r.message())
				}
				sealed := b.Seal(pid, epoch, sequence)
				got := wantBatch(t, sealed, codec, want)
				if got.ProducerID != pid || got.ProducerEpoch != epoch || got.BaseSequence != sequence {
					t.Errorf("producer %d/%d/%d, want %d/%d/%d", got.ProducerID, got.ProducerEpoch, got.BaseSequence, pid, epoch, sequence)
				}
				if b.Count() != len(want) || codec == compress.None && b.Size() != len(sealed) {
					t.Errorf("count %d, size %d of %d records in %d bytes", b.Count(), b.Size(), len(want), len(sealed))
				}
			})
		})
	}
}

// TestSealedAgain has a batch that goes to another producer: the same records, bit by bit.
func TestSealedAgain(t *testing.T) {
	for _, codec := range codecs {
		b := NewBatch(codec)
		var want []record
		for i := range 100 {
			want = append(want, record{key: []byte("k"), value: bytes.Repeat([]byte("abc"), i), time: int64(i)})
			b.Add(want[i].message())
		}
		first := bytes.Clone(b.Seal(1, 2, 3))
		second := bytes.Clone(b.Seal(math.MaxInt64, math.MaxInt16, math.MaxInt32))
		wantBatch(t, second, codec, want)
		if !bytes.Equal(first[recordsAt:], second[recordsAt:]) || !bytes.Equal(first[:CrcAt], second[:CrcAt]) {
			t.Errorf("%v: sealed again, the records differ", codec)
		}
		if bytes.Equal(first[CrcAt:CrcAt+4], second[CrcAt:CrcAt+4]) {
			t.Errorf("%v: the checksum is the old one", codec)
		}
		if third := b.Seal(1, 2, 3); !bytes.Equal(first, third) {
			t.Errorf("%v: the same producer and sequence give other bytes", codec)
		}
		b.Add(record{time: 1}.message())
		wantBatch(t, b.Seal(1, 2, 103), codec, append(want, record{time: 1}))
	}
}

// TestBatchIsUsedAgain has nothing of an earlier use in a later one, and lets go of what a large
// event needed.
func TestBatchIsUsedAgain(t *testing.T) {
	for _, codec := range codecs {
		b := NewBatch(codec)
		noise := make([]byte, 3*keptBuffer)
		for i := range noise {
			noise[i] = byte(i * i >> 3)
		}
		b.Add(record{key: []byte("large"), value: noise, time: 9}.message())
		wantBatch(t, b.Seal(1, 1, 1), codec, []record{{key: []byte("large"), value: noise, time: 9}})
		b.Reset()
		if cap(b.buf) > keptBuffer || cap(b.compressedBytes) > keptBuffer {
			t.Errorf("%v: buffers of %d and %d bytes are kept", codec, cap(b.buf), cap(b.compressedBytes))
		}
		b.Add(record{value: []byte("small"), time: 5}.message())
		wantBatch(t, b.Seal(1, 1, 2), codec, []record{{value: []byte("small"), time: 5}})
	}
}

// TestMurmur2 has the vectors of Kafka's UtilsTest, and some that its producer was seen to make.
func TestMurmur2(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc":        479470107,
		"10711fa5":   -452740149,
		`"10711fa5"`: 1035007959,
		`{"schema":{"type":"string","optional":false},"payload":"10711fa5"}`: 1003484787,
		"1":   -1993445489,
		`"1"`: 2141072032,
	} {
		if got := int32(Murmur2([]byte(key))); got != want {
			t.Errorf("%s: got %d, want %d", key, got, want)
		}
	}
}

func TestPartitionIsThatOfKafkaGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "key")
		count := rapid.Int32Range(1, 2000).Draw(t, "count")
		all := make([]int, count)
		for i := range all {
			all[i] = i
		}
		want := kafkago.Murmur2Balancer{Consistent: true}.Balance(kafkago.Message{Key: key}, all...)
		if got := PartitionOf(key, count); got != int32(want) {
			t.Errorf("got %d, want %d", got, want)
		}
	})
}
