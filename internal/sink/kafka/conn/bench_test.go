package conn

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	kafkabatch "github.com/cdc-relay/cdc-relay/internal/sink/kafka/batch"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

// produceOf is a request of one batch for each of the partitions, size bytes in all.
func produceOf(tb testing.TB, partitions, size int) *rawproduce.Request {
	tb.Helper()
	batch := kafkabatch.New(0)
	batch.Add(&kafkabatch.Record{Key: []byte("k"), Value: make([]byte, size/partitions-100), Time: 1})
	sealed := bytes.Clone(batch.Seal(1, 1, 1))
	topic := rawproduce.RequestTopic{Topic: "outbox.event.order"}
	for p := range partitions {
		topic.Partitions = append(topic.Partitions, rawproduce.RequestPartition{
			Partition: int32(p), RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(sealed)},
		})
	}
	return &rawproduce.Request{Acks: -1, Timeout: 30_000, Topics: []rawproduce.RequestTopic{topic}}
}

func rewind(req *rawproduce.Request) {
	for i := range req.Topics[0].Partitions {
		_, _ = req.Topics[0].Partitions[i].RecordSet.Reader.(*bytes.Reader).Seek(0, io.SeekStart)
	}
}

// BenchmarkWriteRequest is what kafka-go's encoding of a produce request costs, next to a bare copy
// of as many bytes.
func BenchmarkWriteRequest(b *testing.B) {
	for _, size := range []int{16 << 10, 128 << 10, 1 << 20, 4 << 20} {
		req := produceOf(b, 12, size)
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				rewind(req)
				if err := protocol.WriteRequest(io.Discard, 8, 1, "cdc-relay", req); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%dKiB-copy", size>>10), func(b *testing.B) {
			from, to := make([]byte, size), make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				copy(to, from)
			}
		})
	}
}

// BenchmarkRoundTrip is a produce request over loopback TCP to a server that reads and answers it
// at once.
func BenchmarkRoundTrip(b *testing.B) {
	for _, size := range []int{16 << 10, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			f := newFake(b, func(f *fake, c net.Conn) {
				f.greet(c)
				answer := f.produced(12)
				var head [12]byte
				for {
					if _, err := io.ReadFull(c, head[:]); err != nil {
						return
					}
					id := be32(head[8:])
					if _, err := io.CopyN(io.Discard, c, int64(be32(head[:]))-8); err != nil {
						return
					}
					if err := protocol.WriteResponse(c, 8, id, answer); err != nil {
						return
					}
				}
			})
			c := f.dial()
			req := produceOf(b, 12, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				rewind(req)
				if _, err := Ask[*produce.Response](context.Background(), c, 10*time.Second, req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
