package kafka

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"pgregory.net/rapid"
)

var codecs = []compress.Compression{compress.None, compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd}

// decoded is a record as kafka-go's decoder has it: independent of the encoder here.
type decoded struct {
	offset, time int64 // ms
	key, value   []byte
	headers      []protocol.Header
}

type decodedBatch struct {
	*protocol.RecordBatch
	records []decoded
}

// decode reads a sealed batch with kafka-go's decoder, which checks the CRC too.
func decode(t rapid.TB, sealed []byte) decodedBatch {
	t.Helper()
	var set protocol.RecordSet
	if n, err := set.ReadFrom(bufio.NewReader(bytes.NewReader(sealed))); err != nil || n != int64(len(sealed)) {
		t.Fatalf("%d of %d bytes read: %v", n, len(sealed), err)
	}
	stream, ok := set.Records.(*protocol.RecordStream)
	if !ok || len(stream.Records) != 1 {
		t.Fatalf("not one batch: %T", set.Records)
	}
	batch, ok := stream.Records[0].(*protocol.RecordBatch)
	if !ok {
		t.Fatalf("not a batch: %T", stream.Records[0])
	}
	if set.Version != 2 {
		t.Errorf("magic %d", set.Version)
	}
	return decodedBatch{batch, decodeRecords(t, batch)}
}

func decodeRecords(t rapid.TB, r protocol.RecordReader) (all []decoded) {
	t.Helper()
	for {
		rec, err := r.ReadRecord()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		d := decoded{offset: rec.Offset, time: rec.Time.UnixMilli(), headers: rec.Headers}
		if d.key, err = protocol.ReadAll(rec.Key); err != nil {
			t.Fatal(err)
		}
		if d.value, err = protocol.ReadAll(rec.Value); err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
}

// record is what a test puts into a batch.
type record struct {
	key, value []byte
	time       int64
	headers    []protocol.Header
}

func (r record) message() *message {
	m := &message{key: r.key, value: r.value, time: r.time}
	for _, h := range r.headers {
		m.header(h.Key, h.Value)
	}
	return m
}

func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// wantBatch wants a sealed batch to hold these records.
func wantBatch(t rapid.TB, sealed []byte, codec compress.Compression, want []record) decodedBatch {
	t.Helper()
	got := decode(t, sealed)
	if got.Attributes != protocol.Attributes(codec) || got.BaseOffset != 0 || got.PartitionLeaderEpoch != -1 {
		t.Errorf("attributes %v, base offset %d, leader epoch %d", got.Attributes, got.BaseOffset, got.PartitionLeaderEpoch)
	}
	if len(got.records) != len(want) {
		t.Fatalf("%d records, want %d", len(got.records), len(want))
	}
	latest := int64(math.MinInt64)
	for i, r := range got.records {
		w := want[i]
		latest = max(latest, w.time)
		if r.offset != int64(i) || r.time != w.time || !sameBytes(r.key, w.key) || !sameBytes(r.value, w.value) {
			t.Errorf("record %d: %+v, want %+v", i, r, w)
		}
		wantHeaders(t, r.headers, w.headers...)
	}
	// What kafka-go's decoder does not look at.
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
			b := newBatch(codec)
			rapid.Check(t, func(t *rapid.T) {
				want := records.Draw(t, "records")
				pid, epoch, sequence := rapid.Int64().Draw(t, "pid"), rapid.Int16().Draw(t, "epoch"), rapid.Int32().Draw(t, "sequence")
				b.reset()
				for _, r := range want {
					if !b.add(r.message()) {
						t.Fatal("no room")
					}
				}
				sealed := b.seal(pid, epoch, sequence)
				got := wantBatch(t, sealed, codec, want)
				if got.ProducerID != pid || got.ProducerEpoch != epoch || got.BaseSequence != sequence {
					t.Errorf("producer %d/%d/%d, want %d/%d/%d", got.ProducerID, got.ProducerEpoch, got.BaseSequence, pid, epoch, sequence)
				}
				if b.count() != len(want) || codec == compress.None && b.size() != len(sealed) {
					t.Errorf("count %d, size %d of %d records in %d bytes", b.count(), b.size(), len(want), len(sealed))
				}
			})
		})
	}
}

// TestBatchIsKafkaGos compares with kafka-go's encoder, byte by byte.
func TestBatchIsKafkaGos(t *testing.T) {
	var theirs []protocol.Record
	b := newBatch(compress.None)
	for i := range 300 {
		r := record{key: fmt.Append(nil, "key-", i), value: bytes.Repeat([]byte{'v'}, i), time: 1_700_000_000_000 + int64(i%7)*1000}
		if i%5 == 0 {
			r.key = nil
		}
		if i%11 == 0 {
			r.value = nil
		}
		for h := range i % 4 {
			r.headers = append(r.headers, protocol.Header{Key: fmt.Sprint("h", h), Value: fmt.Append(nil, i)})
		}
		b.add(r.message())
		theirs = append(theirs, protocol.Record{
			Time: time.UnixMilli(r.time), Key: protocol.NewBytes(r.key), Value: protocol.NewBytes(r.value), Headers: r.headers,
		})
	}
	var want bytes.Buffer
	set := protocol.RecordSet{Version: 2, Records: protocol.NewRecordReader(theirs...)}
	if _, err := set.WriteTo(&want); err != nil {
		t.Fatal(err)
	}
	if got := b.seal(-1, -1, -1); !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%d bytes differ from the %d of kafka-go's encoder", len(got), want.Len())
	}
}

// TestSealedAgain has a batch that goes to another producer: the same records, bit by bit.
func TestSealedAgain(t *testing.T) {
	for _, codec := range codecs {
		b := newBatch(codec)
		var want []record
		for i := range 100 {
			want = append(want, record{key: []byte("k"), value: bytes.Repeat([]byte("abc"), i), time: int64(i)})
			b.add(want[i].message())
		}
		first := bytes.Clone(b.seal(1, 2, 3))
		second := bytes.Clone(b.seal(math.MaxInt64, math.MaxInt16, math.MaxInt32))
		wantBatch(t, second, codec, want)
		if !bytes.Equal(first[recordsAt:], second[recordsAt:]) || !bytes.Equal(first[:crcAt], second[:crcAt]) {
			t.Errorf("%v: sealed again, the records differ", codec)
		}
		if bytes.Equal(first[crcAt:crcAt+4], second[crcAt:crcAt+4]) {
			t.Errorf("%v: the checksum is the old one", codec)
		}
		if third := b.seal(1, 2, 3); !bytes.Equal(first, third) {
			t.Errorf("%v: the same producer and sequence give other bytes", codec)
		}
		b.add(record{time: 1}.message())
		wantBatch(t, b.seal(1, 2, 103), codec, append(want, record{time: 1}))
	}
}

// TestBatchIsUsedAgain has nothing of an earlier use in a later one, and lets go of what a large event needed.
func TestBatchIsUsedAgain(t *testing.T) {
	for _, codec := range codecs {
		b := newBatch(codec)
		noise := make([]byte, 3*keptBuffer)
		for i := range noise {
			noise[i] = byte(i * i >> 3)
		}
		b.add(record{key: []byte("large"), value: noise, time: 9}.message())
		wantBatch(t, b.seal(1, 1, 1), codec, []record{{key: []byte("large"), value: noise, time: 9}})
		b.reset()
		if cap(b.buf) > keptBuffer || cap(b.packed) > keptBuffer {
			t.Errorf("%v: buffers of %d and %d bytes are kept", codec, cap(b.buf), cap(b.packed))
		}
		b.add(record{value: []byte("small"), time: 5}.message())
		wantBatch(t, b.seal(1, 1, 2), codec, []record{{value: []byte("small"), time: 5}})
	}
}

// TestBatchIsFull has a record that would make the batch longer than the protocol can say.
func TestBatchIsFull(t *testing.T) {
	b := newBatch(compress.None)
	b.add(record{value: []byte("first"), time: 1}.message())
	if b.add(record{value: huge(t, math.MaxInt32-64), time: 2}.message()) {
		t.Fatal("it is said to fit")
	}
	b.add(record{value: []byte("second"), time: 3}.message())
	wantBatch(t, b.seal(1, 1, 1), compress.None, []record{{value: []byte("first"), time: 1}, {value: []byte("second"), time: 3}})
}

func TestVarintSize(t *testing.T) {
	for shift := range 64 {
		for _, i := range []int64{1 << shift, 1<<shift - 1, 1<<shift + 1, -1 << shift, -1<<shift - 1} {
			if got, want := varintSize(i), len(binary.AppendVarint(nil, i)); got != want {
				t.Errorf("%d: %d, want %d", i, got, want)
			}
		}
	}
}

func TestBatchAllocates(t *testing.T) {
	l := layoutOf(t, Config{Columns: []string{"tenant"}, Headers: []HeaderColumn{{"x-tenant", "tenant"}}})
	m, b := newMessage(l), newBatch(compress.None)
	ev := someEvent(1, "key")
	ev.Columns = [][]byte{[]byte("acme")}
	call := func() {
		b.reset()
		for range 100 {
			if fault := m.build(ev); fault != nil || !b.add(m) {
				t.Fatal(fault)
			}
		}
		b.seal(1, 1, 1)
	}
	call()
	if n := testing.AllocsPerRun(100, call); n > 0 {
		t.Errorf("%v allocations for 100 records", n)
	}
	ev.Headers = []byte(`{"source": "web", "attempt": 3}`)
	if n := testing.AllocsPerRun(100, call); n >= 100 { // encoding/json checks with a scanner from a pool
		t.Errorf("%v allocations for 100 records with a headers column", n)
	}
}

// FuzzBatch has one record of any bytes, on its own and behind another one.
func FuzzBatch(f *testing.F) {
	f.Add([]byte("key"), []byte("value"), "header", []byte("text"), int64(1_700_000_000_000), uint8(0))
	f.Add([]byte{}, []byte{}, "", []byte{}, int64(0), uint8(3))
	f.Fuzz(func(t *testing.T, key, value []byte, name string, text []byte, at int64, codec uint8) {
		c := codecs[int(codec)%len(codecs)]
		at &= 1<<45 - 1
		records := []record{
			{key: key, value: value, time: at, headers: []protocol.Header{{Key: name, Value: text}}},
			{time: 1, headers: []protocol.Header{{Key: name}}},
			{key: value, value: key, time: at},
		}
		b := newBatch(c)
		for i := range records {
			b.add(records[i].message())
			wantBatch(t, b.seal(7, 0, int32(i)), c, records[:i+1])
		}
	})
}
