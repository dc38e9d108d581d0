package record

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/kafkatest"
)

// BenchmarkTraced is what an event costs that is not sampled, with tracing off and on: off there is
// nothing to ask.
func BenchmarkTraced(b *testing.B) {
	for name, trace := range map[string]func(*event.Event, []byte) []byte{
		"off": nil, "on": func(ev *event.Event, _ []byte) []byte { return ev.Traceparent },
	} {
		b.Run(name, func(b *testing.B) {
			e, ev := NewBuilder(layoutOf(b, Config{PlainConfig: sink.PlainConfig{Traceparent: trace}})), kafkatest.Event(1, "0123456789")
			b.ReportAllocs()
			for b.Loop() {
				if fault := e.Build(ev); fault != nil {
					b.Fatal(fault)
				}
			}
		})
	}
}
