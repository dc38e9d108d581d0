// The answer to a produce request: how it is read.

package conn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/segmentio/kafka-go/protocol/produce"
)

// readProduced decodes the body of an answer to a produce request of version v3 to v8 into res, and
// uses res's memory again: what an earlier answer said is gone. What is left behind the answer is
// ignored, as kafka-go does.
//
// kafka-go's decoder is not used, for three reasons. If the bytes end too early, it returns a
// missing partition as partition 0 with code 0, which is a confirm, and notices the end only later.
// It allocates as many elements as an answer claims to have, which may be more than fit into
// memory. And it makes two thirds of the allocations of a request.
func readProduced(body []byte, version int16, res *produce.Response) error {
	b := &bytesLeft{rest: body}
	res.Topics = room(res.Topics, b.Count(2+4))
	for i := range res.Topics {
		topic := &res.Topics[i]
		b.text(&topic.Topic)
		topic.Partitions = room(topic.Partitions, b.Count(4+2+8+8))
		for j := range topic.Partitions {
			b.Partition(version, &topic.Partitions[j])
		}
	}
	res.ThrottleTimeMs = b.int32()
	return b.err
}

func (b *bytesLeft) Partition(version int16, p *produce.ResponsePartition) {
	p.Partition, p.ErrorCode, p.BaseOffset, p.LogAppendTime = b.int32(), b.int16(), b.int64(), b.int64()
	if version >= 5 {
		p.LogStartOffset = b.int64()
	}
	if version >= 8 {
		p.RecordErrors = room(p.RecordErrors, b.Count(4+2))
		for i := range p.RecordErrors {
			p.RecordErrors[i].BatchIndex = b.int32()
			b.text(&p.RecordErrors[i].BatchIndexErrorMessage)
		}
		b.text(&p.ErrorMessage)
	}
}

// room is s with n elements, of which each is what it was before, or zero.
func room[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// bytesLeft is the part of a body that is not decoded. When it has too few bytes err is set, and
// all that is read from then on is zero.
type bytesLeft struct {
	rest []byte
	err  error
}

var errShort = errors.New("the answer ends before its end")

func (b *bytesLeft) Next(n int) []byte {
	if b.err == nil && n > len(b.rest) {
		b.err = errShort
	}
	if b.err != nil {
		return make([]byte, 8)[:min(n, 8)]
	}
	next := b.rest[:n]
	b.rest = b.rest[n:]
	return next
}

func (b *bytesLeft) int16() int16 { return int16(binary.BigEndian.Uint16(b.Next(2))) }
func (b *bytesLeft) int32() int32 { return int32(binary.BigEndian.Uint32(b.Next(4))) }
func (b *bytesLeft) int64() int64 { return int64(binary.BigEndian.Uint64(b.Next(8))) }

// Count is how many elements an array has, of least bytes each: never more than there are bytes
// for.
func (b *bytesLeft) Count(least int) int {
	n := int(b.int32())
	if n > len(b.rest)/least && b.err == nil {
		b.err = fmt.Errorf("the answer has %d elements in %d bytes", n, len(b.rest))
	}
	if b.err != nil {
		return 0
	}
	return max(n, 0) // -1 is an array that is null
}

// text reads a string, with an allocation only when it is another one than before.
func (b *bytesLeft) text(s *string) {
	if next := b.Next(int(max(b.int16(), 0))); b.err != nil {
		*s = ""
	} else if *s != string(next) {
		*s = string(next)
	}
}
