package kafka

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/kafkatest"
)

// BenchmarkPublish publishes to twelve partitions of a real broker, each lane one call after the
// other, and reports what an event costs this process.
func BenchmarkPublish(b *testing.B) {
	k := servers.SharedKafka(b)
	for _, size := range []int{1, 20, 100, 500} {
		b.Run(fmt.Sprintf("calls of %d", size), func(b *testing.B) {
			topic := k.Topic(b, 12)
			s, err := New(Config{Brokers: k.Brokers(), Topic: kafkatest.Template(b, topic)})
			must(b, err)
			r := startSink(b, s)
			lanes := lanesFull(b, r, topic, size)
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu()
			publishAll(b, r, lanes, b.N)
			b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// lanesFull is a call of so many events for each of twelve lanes.
func lanesFull(b *testing.B, r *running, topic string, size int) map[int][]*event.Event {
	lanes := map[int][]*event.Event{}
	for i, full := 0, 0; full < 12; i++ {
		ev := kafkatest.Event(i, fmt.Sprint("key-", i))
		ev.Columns = [][]byte{[]byte(topic)}
		ev.Payload = make([]byte, 200)
		n := r.laneOf(ev)
		if len(lanes[n]) < size {
			if lanes[n] = append(lanes[n], ev); len(lanes[n]) == size {
				full++
			}
		}
	}
	return lanes
}

// publishAll publishes n events, spread over the lanes.
func publishAll(b *testing.B, r *running, lanes map[int][]*event.Event, n int) {
	var left atomic.Int64
	left.Store(int64(n))
	var done sync.WaitGroup
	for lane, call := range lanes {
		done.Go(func() {
			outcomes := make([]sink.Outcome, len(call))
			for {
				size := int64(len(call))
				if rest := left.Add(-size) + size; rest <= 0 {
					return
				} else if rest < size {
					size = rest
				}
				if err := r.Publish(context.Background(), lane, call[:size], outcomes[:size]); err != nil {
					b.Error(err)
					return
				}
				if !allConfirmed(outcomes[:size]) {
					b.Errorf("not all confirmed")
					return
				}
			}
		})
	}
	done.Wait()
}

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
