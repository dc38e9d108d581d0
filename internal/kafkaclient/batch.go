// How records are encoded into a record batch of version 2,
// https://kafka.apache.org/documentation/#recordbatch, with its compression, and which partition a
// key belongs to.

package kafkaclient

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
	"slices"

	"github.com/segmentio/kafka-go/compress"
)

// The offsets of the fields of a sealed batch, in bytes. kafka-go's RawRecordSet wants the int32
// length of the batch before it, which is the length of the RECORDS field of a produce request.
const (
	lengthAt        = 0
	baseOffsetAt    = 4  // int64, 0: the broker assigns it
	batchLengthAt   = 12 // int32, of all that follows
	leaderEpochAt   = 16 // int32, -1: the broker sets it
	magicAt         = 20 // int8
	CrcAt           = 21 // uint32, CRC-32C of all that follows
	AttributesAt    = 25 // int16: the compression
	lastOffsetAt    = 27 // int32
	baseTimeAt      = 31 // int64
	maxTimeAt       = 39 // int64
	producerIDAt    = 47 // int64
	producerEpochAt = 55 // int16
	baseSequenceAt  = 57 // int32
	countAt         = 61 // int32
	recordsAt       = 65
)

// RecordFrame is an upper bound for what the lengths and deltas of one record take, in bytes.
const RecordFrame = 48

// keptBuffer is the largest buffer that a batch keeps between uses, in bytes: twice the largest
// ordinary size. A buffer that grew further for a large event is given back.
const keptBuffer = 2 << 20

// CRCTable is the table for a record batch's checksum, CRC-32C.
var CRCTable = crc32.MakeTable(crc32.Castagnoli)

// Batch gathers records and makes one record batch of them, in buffers that it uses again. It is
// not safe for concurrent use.
type Batch struct {
	codec           compress.Codec // nil means that records are not compressed
	buf             []byte         // recordsAt bytes of room, then the records
	compressedBytes appendBuffer   // the same, compressed; valid while isCompressed
	isCompressed    bool
	records         int
	baseTime        int64
	maxTime         int64
}

// NewBatch makes an empty batch with this compression.
func NewBatch(c compress.Compression) *Batch {
	b := &Batch{codec: c.Codec()}
	b.Reset()
	return b
}

// Reset empties the batch. The bytes that Seal returned before are no longer valid.
func (b *Batch) Reset() {
	if cap(b.buf) < recordsAt || cap(b.buf) > keptBuffer {
		b.buf = make([]byte, recordsAt, 16<<10)
	}
	b.buf = b.buf[:recordsAt]
	if cap(b.compressedBytes) > keptBuffer {
		b.compressedBytes = nil
	}
	b.records, b.isCompressed = 0, false
}

// Count is the number of records.
func (b *Batch) Count() int { return b.records }

// Size is the number of bytes that Seal returns, before compression.
func (b *Batch) Size() int { return len(b.buf) }

// Add appends a record. The caller keeps the batch below 2 GiB, because the protocol's lengths are
// int32: the sink bounds the size of a record, and a record that is larger than a batch should be
// has a batch of its own.
func (b *Batch) Add(r *Record) {
	if b.records == 0 {
		b.baseTime, b.maxTime = r.Time, r.Time
	}
	timeDelta, offsetDelta := r.Time-b.baseTime, int64(b.records)
	length := 1 + varintSize(timeDelta) + varintSize(offsetDelta) + nullableSize(r.Key) + nullableSize(r.Value) +
		varintSize(int64(r.HeaderCount)) + len(r.Headers)
	if need := length + binary.MaxVarintLen64; cap(b.buf)-len(b.buf) < need {
		// doubled: append would grow it in many steps
		b.buf = slices.Grow(b.buf, max(need, len(b.buf)))
	}
	buf := binary.AppendVarint(b.buf, int64(length))
	buf = append(buf, 0) // attributes: the protocol defines none
	buf = binary.AppendVarint(buf, timeDelta)
	buf = binary.AppendVarint(buf, offsetDelta)
	buf = appendNullable(buf, r.Key)
	buf = appendNullable(buf, r.Value)
	buf = appendLength(buf, r.HeaderCount)
	b.buf = append(buf, r.Headers...)
	b.maxTime = max(b.maxTime, r.Time)
	b.records++
	b.isCompressed = false
}

// Seal returns the encoded batch for a request, with the producer and the sequence of its first
// record. All three are -1 for a batch of no idempotent producer. The bytes belong to the batch and
// are valid until its next Reset, Add or Seal. The batch must have a record. A second Seal returns
// the same bytes except for producer, epoch, sequence and checksum.
func (b *Batch) Seal(producerID int64, epoch int16, sequence int32) []byte {
	out, attributes := b.compressed()
	be := binary.BigEndian
	be.PutUint32(out[lengthAt:], uint32(len(out)-baseOffsetAt))
	be.PutUint64(out[baseOffsetAt:], 0)
	be.PutUint32(out[batchLengthAt:], uint32(len(out)-leaderEpochAt))
	be.PutUint32(out[leaderEpochAt:], math.MaxUint32)
	out[magicAt] = 2
	be.PutUint16(out[AttributesAt:], attributes)
	be.PutUint32(out[lastOffsetAt:], uint32(b.records-1))
	be.PutUint64(out[baseTimeAt:], uint64(b.baseTime))
	be.PutUint64(out[maxTimeAt:], uint64(b.maxTime))
	be.PutUint64(out[producerIDAt:], uint64(producerID))
	be.PutUint16(out[producerEpochAt:], uint16(epoch))
	be.PutUint32(out[baseSequenceAt:], uint32(sequence))
	be.PutUint32(out[countAt:], uint32(b.records))
	be.PutUint32(out[CrcAt:], crc32.Checksum(out[AttributesAt:], CRCTable))
	return out
}

// compressed returns the records with room for the fields in front of them. It compresses them only
// once.
func (b *Batch) compressed() (out []byte, attributes uint16) {
	if b.codec == nil {
		return b.buf, 0
	}
	if !b.isCompressed {
		b.compressedBytes = append(b.compressedBytes[:0], b.buf[:recordsAt]...)
		w := b.codec.NewWriter(&b.compressedBytes)
		_, err := w.Write(b.buf[recordsAt:])
		if closed := w.Close(); err != nil || closed != nil {
			// no codec fails to write to memory, and a broker takes uncompressed records as well
			return b.buf, 0
		}
		b.isCompressed = true
	}
	return b.compressedBytes, uint16(b.codec.Code())
}

// appendBuffer is an io.Writer that appends.
type appendBuffer []byte

func (b *appendBuffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// Record is one record of a batch. Its headers are encoded already, by AddHeader.
type Record struct {
	Key, Value  []byte // nil is null
	Time        int64  // ms since 1970
	Headers     []byte
	HeaderCount int
}

// AddHeader appends a header. A nil value is null.
func (r *Record) AddHeader(name string, value []byte) {
	r.HeaderCount++
	r.Headers = appendNullable(append(appendLength(r.Headers, len(name)), name...), value)
}

// appendNullable appends a byte string with its length. nil is null.
func appendNullable(buf, s []byte) []byte {
	if s == nil {
		return binary.AppendVarint(buf, -1)
	}
	return append(appendLength(buf, len(s)), s...)
}

// appendLength is binary.AppendVarint for a length, with a fast path for short ones.
func appendLength(buf []byte, n int) []byte {
	if n < 64 {
		return append(buf, byte(n<<1))
	}
	return binary.AppendVarint(buf, int64(n))
}

func nullableSize(s []byte) int {
	if s == nil {
		return 1
	}
	return varintSize(int64(len(s))) + len(s)
}

// varintSize returns how many bytes a zigzag varint takes.
func varintSize(i int64) int {
	zigzag := uint64(i)<<1 ^ uint64(i>>63)
	return (bits.Len64(zigzag|1) + 6) / 7
}

// PartitionOf returns the partition of a key among count of them, which must be above 0. It is the
// one that Java's producer chooses.
func PartitionOf(key []byte, count int32) int32 { return int32(Murmur2(key)&0x7fffffff) % count }

// Murmur2 is org.apache.kafka.common.utils.Utils.murmur2: 32-bit MurmurHash2 with Kafka's seed.
func Murmur2(key []byte) uint32 {
	const (
		seed = 0x9747b28c
		mul  = 0x5bd1e995
	)
	h := seed ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key) * mul
		k ^= k >> 24
		h = h*mul ^ k*mul
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * mul
	}
	h = (h ^ h>>13) * mul
	return h ^ h>>15
}
