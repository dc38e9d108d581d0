package record

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/segmentio/kafka-go/compress"

	"github.com/cdc-relay/cdc-relay/internal/event"
	kafkabatch "github.com/cdc-relay/cdc-relay/internal/sink/kafka/batch"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/kafkatest"
)

// BenchmarkBatch is the cost of a record: its message, its place in a batch of 100, its share of
// the seal.
func BenchmarkBatch(b *testing.B) {
	for _, size := range []int{200, 2048} {
		for _, codec := range []compress.Compression{compress.None, compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd} {
			b.Run(fmt.Sprintf("%d/%v", size, codec), func(b *testing.B) {
				m, batch := NewEncoder(layoutOf(b, Config{})), kafkabatch.New(codec)
				ev := kafkatest.Event(1, "0123456789")
				ev.Traceparent = nil
				ev.Payload = bytes.Repeat([]byte(`{"order": 12345, "lines": [1, 2]}`), size/33+1)[:size]
				b.ReportAllocs()
				for i := range b.N {
					if i%100 == 0 {
						batch.Reset()
					}
					if fault := m.Build(ev); fault != nil || !batch.Add(&m.Record) {
						b.Fatal(fault)
					}
					if i%100 == 99 {
						batch.Seal(1, 1, int32(i))
					}
				}
			})
		}
	}
}

// BenchmarkTraced is what an event costs that is not sampled, with tracing off and on: off there is
// nothing to ask.
func BenchmarkTraced(b *testing.B) {
	for name, trace := range map[string]func(*event.Event, []byte) []byte{
		"off": nil, "on": func(ev *event.Event, _ []byte) []byte { return ev.Traceparent },
	} {
		b.Run(name, func(b *testing.B) {
			m, ev := NewEncoder(layoutOf(b, Config{Traceparent: trace})), kafkatest.Event(1, "0123456789")
			b.ReportAllocs()
			for b.Loop() {
				if fault := m.Build(ev); fault != nil {
					b.Fatal(fault)
				}
			}
		})
	}
}

func BenchmarkHeadersColumn(b *testing.B) {
	m, batch := NewEncoder(layoutOf(b, Config{})), kafkabatch.New(0)
	ev := kafkatest.Event(1, "0123456789")
	ev.Headers = []byte(`{"tenant": "acme", "attempt": 3, "ok": true}`)
	b.ReportAllocs()
	for i := range b.N {
		if i%100 == 0 {
			batch.Reset()
		}
		if fault := m.Build(ev); fault != nil || !batch.Add(&m.Record) {
			b.Fatal(fault)
		}
	}
}
