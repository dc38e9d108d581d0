// The records of an answer to a fetch request.

package kafkaguard

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/compress"
)

const (
	perRecord = 256 // about what kafka-go takes for a record, apart from its bytes
	perHeader = 64

	magicAt   = 16
	batchHead = 61 // up to the first record of a batch
)

// records passes a record set. A broker may cut its last batch.
func (w *walk) records() {
	n := int(int32(binary.BigEndian.Uint32(w.next(4))))
	if n <= 0 {
		return
	}
	for set := w.next(n); w.err == nil && len(set) > magicAt; {
		size := int(int32(binary.BigEndian.Uint32(set[8:])))
		if size < 0 {
			w.fail("a batch has %d bytes", size)
		}
		if size < 0 || size > len(set)-12 {
			return
		}
		var err error
		if one := set[:12+size]; set[magicAt] < 2 {
			err = w.message(one)
		} else if size >= batchHead-12 {
			err = w.batch(one)
		} else {
			err = fmt.Errorf("%w: a batch has %d bytes", ErrAnswer, size)
		}
		if err != nil {
			w.err = err
		}
		set = set[12+size:]
	}
}

// batch passes a batch of records.
func (w *walk) batch(b []byte) error {
	records := int(int32(binary.BigEndian.Uint32(b[batchHead-4:])))
	from, err := w.decompressed(b[batchHead:], binary.BigEndian.Uint16(b[21:]))
	if err != nil {
		return err
	}
	if records < 0 {
		return fmt.Errorf("%w: a batch has %d records", ErrAnswer, records)
	}
	for range records {
		if err := from.record(); err != nil {
			return err
		}
	}
	return from.rest()
}

// message passes a message of the formats before batches. A compressed one has others in it.
func (w *walk) message(b []byte) error {
	key := magicAt + 2
	if len(b) > magicAt && b[magicAt] == 1 {
		key += 8 // the time
	}
	if err := w.budget.take(perRecord + len(b)); err != nil || len(b) < key+4 || b[magicAt+1]&7 == 0 {
		return err
	}
	value := key + 4 + max(int(int32(binary.BigEndian.Uint32(b[key:]))), 0)
	if len(b) < value+4 {
		return nil
	}
	from, err := w.decompressed(b[value+4:], uint16(b[magicAt+1]))
	if err != nil {
		return err
	}
	for {
		var head [12]byte
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return from.rest() // kafka-go takes it for the end
		}
		size := int(int32(binary.BigEndian.Uint32(head[8:])))
		if size < 0 {
			return fmt.Errorf("%w: a message has %d bytes", ErrAnswer, size)
		}
		if err := w.budget.take(perRecord); err != nil {
			return err
		}
		if err := from.skip(int64(size)); err != nil {
			return err
		}
	}
}

// contents are the records of a batch. All that is read of them is charged.
type contents struct {
	*bufio.Reader
	budget *budget
}

// decompressed is what a batch has.
func (w *walk) decompressed(b []byte, attributes uint16) (*contents, error) {
	var r io.Reader = bytes.NewReader(b)
	switch codec := compress.Compression(attributes & 7); codec {
	case compress.None:
	case compress.Gzip, compress.Lz4:
		r = codec.Codec().NewReader(r)
	case compress.Snappy:
		if err := checkSnappy(b, w.budget.left); err != nil {
			return nil, err
		}
		r = codec.Codec().NewReader(r)
	case compress.Zstd:
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(uint64(max(w.budget.left, 1<<10))))
		if err != nil {
			return nil, err
		}
		r = d.IOReadCloser()
	default: // kafka-go refuses it
		r = bytes.NewReader(nil)
	}
	return &contents{bufio.NewReaderSize(&charged{r, &w.budget}, 32<<10), &w.budget}, nil
}

// checkSnappy compares the lengths in a snappy stream with its bytes: kafka-go allocates what they
// say.
func checkSnappy(b []byte, left int) error {
	const head = 16
	if len(b) < head || !bytes.HasPrefix(b, []byte("\x82SNAPPY\x00")) {
		return checkBlock(b, left)
	}
	for b = b[head:]; len(b) >= 4; {
		n := int(binary.BigEndian.Uint32(b))
		if n > len(b)-4 {
			return fmt.Errorf("%w: %d compressed bytes are announced, %d are there", ErrAnswer, n, len(b)-4)
		}
		if err := checkBlock(b[4:4+n], left); err != nil {
			return err
		}
		b = b[4+n:]
	}
	return nil
}

func checkBlock(b []byte, left int) error {
	if n, err := snappy.DecodedLen(b); err == nil && n > left { // else the decoder says it
		return &TooLarge{left}
	}
	return nil
}

// charged takes what is read from a budget.
type charged struct {
	from   io.Reader
	budget *budget
}

func (c *charged) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if over := c.budget.take(n); over != nil {
		return 0, over
	}
	return n, err
}

// record passes one record.
func (c *contents) record() error {
	if err := c.budget.take(perRecord); err != nil {
		return err
	}
	if _, err := binary.ReadVarint(c); err != nil { // its length, which kafka-go does not use
		return c.short(err)
	}
	if _, err := c.Discard(1); err != nil { // attributes
		return c.short(err)
	}
	for range 2 { // time, offset
		if _, err := binary.ReadVarint(c); err != nil {
			return c.short(err)
		}
	}
	for range 2 { // key, value
		if err := c.field(); err != nil {
			return err
		}
	}
	headers, err := binary.ReadVarint(c)
	if err != nil {
		return c.short(err)
	}
	for ; headers > 0; headers-- {
		if err := c.budget.take(perHeader); err != nil {
			return err
		}
		for range 2 {
			if err := c.field(); err != nil {
				return err
			}
		}
	}
	return nil
}

// field passes a length and as many bytes.
func (c *contents) field() error {
	n, err := binary.ReadVarint(c)
	if err != nil {
		return c.short(err)
	}
	return c.skip(n)
}

func (c *contents) skip(n int64) error {
	for n > 0 {
		did, err := c.Discard(int(min(n, 1<<20)))
		if err != nil {
			return c.short(err)
		}
		n -= int64(did)
	}
	return nil
}

// rest passes what is behind the records: kafka-go reads it, too.
func (c *contents) rest() error {
	_, err := io.Copy(io.Discard, c.Reader)
	return c.short(err)
}

// short is the error of records that end too early, or cannot be decompressed.
func (c *contents) short(err error) error {
	var over *TooLarge
	switch {
	case err == nil, errors.As(err, &over):
		return err
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return &TooLarge{c.budget.limit}
	}
	return fmt.Errorf("%w: its records: %w", ErrAnswer, err)
}
