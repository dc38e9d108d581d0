package rabbit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

// BenchmarkBuild is the cost of making a message, without amqp091's.
func BenchmarkBuild(b *testing.B) {
	s, err := New(Config{
		URLs: []string{"amqp://localhost/"}, Exchange: tpl(b, "events"), RoutingKey: tpl(b, "{aggregate}.{type}"),
		Connections: 1, Lanes: 1,
	})
	if err != nil {
		b.Fatal(err)
	}
	for name, headers := range map[string]string{"plain": "", "headers": `{"tenant": "acme", "attempt": 3, "ok": true}`} {
		b.Run(name, func(b *testing.B) {
			ev := newEvent("12345", "created")
			ev.Headers = []byte(headers)
			m := message.New(&s.layout, &s.limits)
			b.ReportAllocs()
			for b.Loop() {
				if fault := m.Build(ev); fault != nil {
					b.Fatal(fault)
				}
			}
		})
	}
}

// BenchmarkPublish is 1,000 keys over 32 lanes in calls of 31, as strict order makes them;
// BenchmarkBare is a pipelined publisher of the same messages on one channel of each of the same
// connections, which keeps nothing in order.
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

func BenchmarkBare(b *testing.B) {
	broker := newBroker(b)
	broker.exchange("events", amqp.Table{"x-max-length": 100000})
	for _, connections := range []int{1, 2, 4} {
		b.Run(fmt.Sprint("connections-", connections), func(b *testing.B) {
			cfg := broker.config()
			cfg.Log = zap.NewNop()
			s, err := New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			const budget = 2000
			each := b.N/connections + 1
			b.ReportAllocs()
			b.ResetTimer()
			var publishers sync.WaitGroup
			for range connections {
				sess, err := s.Dial(broker.ctx, nil)
				if err != nil {
					b.Fatal(err)
				}
				defer sess.Close(time.Second)
				ch, err := sess.OpenChannel(broker.ctx)
				if err != nil {
					b.Fatal(err)
				}
				publishers.Go(func() {
					m, call := message.New(&s.layout, &s.limits), benchEvents(31)
					var ring [budget]*amqp.DeferredConfirmation
					for i := range each {
						if old := ring[i%budget]; old != nil && !old.Wait() {
							b.Error("not confirmed")
							return
						}
						m.Build(call[i%31])
						if ring[i%budget], err = ch.AMQP.PublishWithDeferredConfirm(m.Exchange, m.RoutingKey, true, false, m.Pub); err != nil {
							b.Error(err)
							return
						}
					}
					for _, last := range ring {
						if last != nil {
							last.Wait()
						}
					}
				})
			}
			publishers.Wait()
			b.ReportMetric(float64(each*connections)/b.Elapsed().Seconds(), "events/s")
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
