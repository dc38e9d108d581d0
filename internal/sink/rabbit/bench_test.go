package rabbit

import (
	"context"
	"fmt"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// BenchmarkPublish is 1,000 keys over 32 lanes in calls of 31, as strict order makes them.
func BenchmarkPublish(b *testing.B) {
	broker := newBroker(b)
	broker.exchange("events", amqp.Table{"x-max-length": 100000})
	for _, connections := range []int{1, 2, 4} {
		b.Run(fmt.Sprint("connections-", connections), func(b *testing.B) {
			cfg := broker.config()
			cfg.Connections, cfg.Lanes, cfg.Log = connections, 32, zap.NewNop()
			s := start(b, cfg)
			const size = 31
			calls := b.N/(32*size) + 1
			b.ReportAllocs()
			b.ResetTimer()
			var lanes sync.WaitGroup
			for lane := range 32 {
				lanes.Go(func() {
					call, outcomes := benchEvents(size), make([]sink.Outcome, size)
					for range calls {
						clear(outcomes)
						if err := s.Publish(context.Background(), lane, call, outcomes); err != nil || outcomes[size-1].State != sink.Confirmed {
							b.Error(err)
							return
						}
					}
				})
			}
			lanes.Wait()
			b.ReportMetric(float64(calls*32*size)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func benchEvents(n int) []*event.Event {
	call := events(n, "created")
	for _, ev := range call {
		ev.Payload = make([]byte, 512)
	}
	return call
}
