// Reading the log of a partition.
//
// kafka-go's Reader will not do. Each time it connects, it begins with the first message that the
// broker has if its offset is lower, also with ReaderConfig.OffsetOutOfRangeError: messages that
// were deleted before they were processed would be skipped without a word. It also delivers
// messages of transactions that were aborted, does not say that it has passed offsets without
// messages, and decompresses whatever comes.

package kafkaclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol/fetch"
)

// How records are fetched and decoded.
const (
	// fetchVersion is the first version with batches and transactions, and the last one that Kafka
	// will drop.
	fetchVersion = 4
	// maxWait is how long a broker holds a request until there are messages.
	maxWait = 2 * time.Second

	perRecord = 256 // about the memory that a message takes, apart from its bytes
	perHeader = 64
	batchHead = 61 // the bytes of a batch before its first record
)

// Fetch returns messages of a partition from an offset on, and the offset to continue with. It
// waits up to maxWait for the first message. It fails when the broker does not have the offset.
// When the messages would take too much memory it asks again for a single batch.
func (p *Pool) Fetch(ctx context.Context, topic string, partition int, from int64, size int) ([]kafkago.Message, int64, error) {
	messages, next, err := p.fetchOnce(ctx, topic, partition, from, size)
	var over *TooLargeError
	if errors.As(err, &over) && size > 1 {
		messages, next, err = p.fetchOnce(ctx, topic, partition, from, 1)
	}
	if errors.As(err, &over) {
		err = fmt.Errorf("the batch of messages with offset %d of %s-%d is too large: %w", from, topic, partition, err)
	}
	return messages, next, err
}

func (p *Pool) fetchOnce(ctx context.Context, topic string, partition int, from int64, size int) (messages []kafkago.Message, next int64, err error) {
	addr, err := p.leaderAddress(ctx, topic, int32(partition))
	if err != nil {
		return nil, from, err
	}
	req := &fetch.Request{
		ReplicaID: None, MaxWaitTime: int32(maxWait.Milliseconds()), MinBytes: 1, MaxBytes: int32(size),
		IsolationLevel: 1, // read only committed messages
		Topics: []fetch.RequestTopic{{Topic: topic, Partitions: []fetch.RequestPartition{{
			Partition: int32(partition), FetchOffset: from, PartitionMaxBytes: int32(size),
		}}}},
	}
	var code int16
	err = p.withConn(ctx, addr, func(c *Conn) error {
		return c.exchange(ctx, RequestTimeout, req, func(body []byte, _ int16) (err error) {
			messages, next, code, err = readFetchAnswer(body, topic, partition, from, max(p.opts.Limit, FetchLimit))
			return err
		})
	})
	if err == nil {
		err = p.codeError(code)
	}
	if err != nil {
		return nil, from, err
	}
	return messages, next, nil
}

// readFetchAnswer decodes an answer for one partition, within limit bytes of memory.
func readFetchAnswer(body []byte, topic string, partition int, from int64, limit int) (_ []kafkago.Message, next int64, code int16, err error) {
	answer, err := readFetchHead(body, topic, partition)
	if err != nil || answer.code != 0 {
		return nil, from, answer.code, err
	}
	r := fetchedBatches{topic: topic, partition: partition, next: from, aborted: answer.aborted, budget: budget{limit, limit}}
	if err := eachBatch(answer.set, r.readBatch); err != nil {
		return nil, from, 0, fmt.Errorf("read messages of %s-%d from offset %d: %w", topic, partition, from, err)
	}
	return r.messages, r.next, 0, nil
}

// fetchAnswer is an answer for one partition.
type fetchAnswer struct {
	code    int16
	aborted []abortedTransaction
	set     []byte // the batches; a part of the frame
}

func readFetchHead(body []byte, topic string, partition int) (answer fetchAnswer, err error) {
	b := &bytesLeft{rest: body}
	b.int32() // throttle time
	var name string
	topics := b.count(1)
	b.text(&name)
	partitions, number := b.count(1), b.int32()
	answer.code = b.int16()
	b.nextBytes(8 + 8) // high watermark and last stable offset
	answer.aborted = make([]abortedTransaction, b.count(8+8))
	for i := range answer.aborted {
		answer.aborted[i] = abortedTransaction{b.int64(), b.int64()}
	}
	answer.set = b.nextBytes(int(max(b.int32(), 0)))
	switch {
	case b.err != nil:
		return fetchAnswer{}, b.err
	case topics != 1 || partitions != 1 || name != topic || int(number) != partition:
		return fetchAnswer{}, fmt.Errorf("%w: it is not one for %s-%d", ErrDamaged, topic, partition)
	}
	return answer, nil
}

// abortedTransaction is a transaction that the answer names as aborted: its producer, and its first
// offset.
type abortedTransaction struct{ producer, first int64 }

// fetchedBatches collects the messages of an answer.
type fetchedBatches struct {
	topic     string
	partition int
	next      int64 // the first offset that was not read yet
	aborted   []abortedTransaction
	budget    budget
	messages  []kafkago.Message
}

// eachBatch calls read with each batch of an answer. It ignores the last one when it is incomplete,
// which brokers allow.
func eachBatch(set []byte, read func(batch []byte) error) error {
	for len(set) >= batchHead {
		size := int(int32(binary.BigEndian.Uint32(set[8:])))
		switch {
		case set[16] != 2:
			return errors.New("the messages are in a format from before Kafka 0.11, which is not read")
		case size < batchHead-12:
			return fmt.Errorf("%w: a batch has %d bytes", ErrDamaged, size)
		case size > len(set)-12:
			return nil
		}
		if err := read(set[:12+size]); err != nil {
			return err
		}
		set = set[12+size:]
	}
	return nil
}

const (
	codecBits     = 0x07
	transactional = 0x10
	controlBatch  = 0x20
)

// readBatch reads one batch, and adds the messages in it that a consumer may see. It leaves out
// batches of aborted transactions, the markers that end transactions, and messages before the
// offset that was asked for. A batch of a compacted log may have fewer messages than offsets: next
// is then set behind all of its offsets.
func (r *fetchedBatches) readBatch(b []byte) error {
	if crc32.Checksum(b[21:], CRCTable) != binary.BigEndian.Uint32(b[17:]) {
		return fmt.Errorf("%w: a batch has another checksum", ErrDamaged)
	}
	head := &bytesLeft{rest: b[21:]}
	base, attributes, last := int64(binary.BigEndian.Uint64(b)), head.int16(), head.int32()
	first := head.int64()
	head.int64() // the latest time
	producer := head.int64()
	head.nextBytes(2 + 4) // the producer's epoch, and the sequence
	count := head.int32()
	from, err := r.decompress(b[batchHead:], compress.Compression(attributes&codecBits))
	if err != nil {
		return err
	}
	hidden := attributes&controlBatch != 0 || attributes&transactional != 0 && r.isAborted(producer, base)
	for range count {
		m, err := from.readRecord(base, first)
		if err != nil {
			return err
		}
		if attributes&controlBatch != 0 {
			r.endAborted(producer, &m)
		}
		if !hidden && m.Offset >= r.next { // a batch may begin before the offset that was asked for
			m.Topic, m.Partition = r.topic, r.partition
			r.messages = append(r.messages, m)
		}
	}
	r.next = max(r.next, base+int64(max(last, 0))+1)
	return nil
}

// records reads the records of a batch. It charges the memory for each before it allocates it.
type records struct {
	*bufio.Reader
	budget *budget
	err    error
}

// readRecord reads one record into memory of its own.
func (r *records) readRecord(base, first int64) (m kafkago.Message, err error) {
	r.charge(perRecord)
	r.readVarint() // its length, which follows from its parts
	if r.err == nil {
		_, r.err = r.Discard(1) // attributes
	}
	m.Time = time.UnixMilli(first + r.readVarint())
	m.Offset = base + r.readVarint()
	m.Key, m.Value = r.readNullable(), r.readNullable()
	for headers := r.readVarint(); headers > 0 && r.err == nil; headers-- {
		r.charge(perHeader)
		m.Headers = append(m.Headers, kafkago.Header{Key: string(r.readNullable()), Value: r.readNullable()})
	}
	return m, r.err
}

func (r *records) charge(n int) {
	if r.err == nil {
		r.err = r.budget.charge(n)
	}
}

func (r *records) readVarint() (n int64) {
	if r.err == nil {
		n, r.err = binary.ReadVarint(r.Reader)
		r.err = r.readError(r.err)
	}
	return n
}

// readNullable reads a byte string. It returns nil for null.
func (r *records) readNullable() []byte {
	n := r.readVarint()
	if n < 0 {
		return nil
	}
	r.charge(int(min(n, math.MaxInt32)))
	if r.err != nil {
		return nil
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r.Reader, b)
	r.err = r.readError(err)
	return b
}

// readError makes the error for records that end too early or cannot be decompressed.
func (r *records) readError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return &TooLargeError{r.budget.limit}
	}
	return fmt.Errorf("%w: its records: %w", ErrDamaged, err)
}

// decompress returns a reader of the records of a batch. It takes no more memory than is left.
func (r *fetchedBatches) decompress(b []byte, codec compress.Compression) (*records, error) {
	var from io.Reader = bytes.NewReader(b)
	switch codec {
	case compress.None:
	case compress.Gzip, compress.Lz4:
		from = codec.Codec().NewReader(from)
	case compress.Snappy:
		if err := checkSnappy(b, r.budget.left); err != nil {
			return nil, err
		}
		from = codec.Codec().NewReader(from)
	case compress.Zstd:
		d, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(uint64(max(r.budget.left, 1<<10))))
		if err != nil {
			return nil, err
		}
		from = d.IOReadCloser()
	default:
		return nil, fmt.Errorf("%w: it is compressed in an unknown way, %d", ErrDamaged, codec)
	}
	return &records{Reader: bufio.NewReader(from), budget: &r.budget}, nil
}

// checkSnappy compares the lengths in a snappy stream with the bytes that are there, because
// kafka-go allocates what the lengths say.
func checkSnappy(b []byte, left int) error {
	const head = 16
	if len(b) < head || !bytes.HasPrefix(b, []byte("\x82SNAPPY\x00")) {
		return checkSnappyBlock(b, left)
	}
	for b = b[head:]; len(b) >= 4; {
		n := int(binary.BigEndian.Uint32(b))
		if n > len(b)-4 {
			return fmt.Errorf("%w: %d compressed bytes are announced, %d are there", ErrDamaged, n, len(b)-4)
		}
		if err := checkSnappyBlock(b[4:4+n], left); err != nil {
			return err
		}
		b = b[4+n:]
	}
	return nil
}

func checkSnappyBlock(b []byte, left int) error {
	// the decoder reports any other error
	if n, err := snappy.DecodedLen(b); err == nil && n > left {
		return &TooLargeError{left}
	}
	return nil
}

// isAborted reports whether a batch belongs to an aborted transaction: its producer has begun one
// at this offset or before, and the end of it was not read yet.
func (r *fetchedBatches) isAborted(producer, offset int64) bool {
	return slices.ContainsFunc(r.aborted, func(t abortedTransaction) bool { return t.producer == producer && t.first <= offset })
}

// endAborted forgets a producer's aborted transaction once the marker of its end was read.
func (r *fetchedBatches) endAborted(producer int64, marker *kafkago.Message) {
	const abort = 0
	if len(marker.Key) != 4 || marker.Key[2] != 0 || marker.Key[3] != abort {
		return
	}
	i := slices.IndexFunc(r.aborted, func(t abortedTransaction) bool { return t.producer == producer && t.first <= marker.Offset })
	if i >= 0 {
		r.aborted = slices.Delete(r.aborted, i, i+1)
	}
}

// MessageSize returns about how much memory a message takes, in bytes.
func MessageSize(m *kafkago.Message) int {
	n := perRecord + len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		n += perHeader + len(h.Key) + len(h.Value)
	}
	return n
}
