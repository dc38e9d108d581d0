package kafka

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// BenchmarkBatch is the cost of a record: its message, its place in a batch of 100, its share of the seal.
func BenchmarkBatch(b *testing.B) {
	for _, size := range []int{200, 2048} {
		for _, codec := range codecs {
			b.Run(fmt.Sprintf("%d/%v", size, codec), func(b *testing.B) {
				m, batch := newMessage(layoutOf(b, Config{})), newBatch(codec)
				ev := someEvent(1, "0123456789")
				ev.Traceparent = nil
				ev.Payload = bytes.Repeat([]byte(`{"order": 12345, "lines": [1, 2]}`), size/33+1)[:size]
				b.ReportAllocs()
				for i := range b.N {
					if i%100 == 0 {
						batch.reset()
					}
					if fault := m.build(ev); fault != nil || !batch.add(m) {
						b.Fatal(fault)
					}
					if i%100 == 99 {
						batch.seal(1, 1, int32(i))
					}
				}
			})
		}
	}
}

// BenchmarkTraced is what an event costs that is not sampled, with tracing off and on: off there is nothing to ask.
func BenchmarkTraced(b *testing.B) {
	for name, trace := range map[string]func(*outbox.Event, []byte) []byte{
		"off": nil, "on": func(ev *outbox.Event, _ []byte) []byte { return ev.Traceparent },
	} {
		b.Run(name, func(b *testing.B) {
			m, ev := newMessage(layoutOf(b, Config{Traceparent: trace})), someEvent(1, "0123456789")
			b.ReportAllocs()
			for b.Loop() {
				if fault := m.build(ev); fault != nil {
					b.Fatal(fault)
				}
			}
		})
	}
}

func BenchmarkHeadersColumn(b *testing.B) {
	m, batch := newMessage(layoutOf(b, Config{})), newBatch(0)
	ev := someEvent(1, "0123456789")
	ev.Headers = []byte(`{"tenant": "acme", "attempt": 3, "ok": true}`)
	b.ReportAllocs()
	for i := range b.N {
		if i%100 == 0 {
			batch.reset()
		}
		if fault := m.build(ev); fault != nil || !batch.add(m) {
			b.Fatal(fault)
		}
	}
}

func BenchmarkMurmur2(b *testing.B) {
	key := []byte("00000000-0000-4000-8000-000000000007")
	for b.Loop() {
		murmur2(key)
	}
}

// produceOf is a request of one batch for each of the partitions, size bytes in all.
func produceOf(tb testing.TB, partitions, size int) *rawproduce.Request {
	tb.Helper()
	batch := newBatch(0)
	batch.add(record{key: []byte("k"), value: make([]byte, size/partitions-100), time: 1}.message())
	sealed := bytes.Clone(batch.seal(1, 1, 1))
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

// BenchmarkWriteRequest is what kafka-go's encoding of a produce request costs, beside a bare copy of as many bytes.
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

// BenchmarkRoundTrip is a produce request over loopback TCP to a server that reads and answers it at once.
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
				if _, err := ask[*produce.Response](context.Background(), c, 10*time.Second, req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
