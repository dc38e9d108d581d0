//go:build testall

package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// running is a shop in the background, whose spans are collected.
type running struct {
	*shop
	ctx       context.Context // bounds the test
	out       *console.Recording
	spans     *servers.Collector
	interrupt func() error // ends it and returns what run returned
}

func startShop(t *testing.T, sink string, short length) running {
	ctx := await.Context(t)
	life, stop := context.WithCancel(ctx)
	out, spans := &console.Recording{}, servers.StartCollector(t)
	s := &shop{Console: console.To(out), length: short, keep: true, programs: programs{
		broker: brokers[sink](), env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + spans.URL(), "OTEL_BSP_SCHEDULE_DELAY=100"},
	}}
	ended := make(chan error, 1)
	go func() {
		err := s.run(life)
		out.End(err)
		ended <- err
	}()
	interrupt := sync.OnceValue(func() error {
		stop()
		return <-ended
	})
	t.Cleanup(func() { _ = interrupt() }) // a test that failed has not ended it
	return running{s, ctx, out, spans, interrupt}
}

// TestShop gives the whole shop in short. While it is kept open an order is followed by its trace.
func TestShop(t *testing.T) { testShop(t, "rabbitmq", "RabbitMQ") }

func testShop(t *testing.T, sink, name string) {
	t.Parallel()
	p := startShop(t, sink, length{flow: 200 * time.Millisecond, down: 100 * time.Millisecond, mailer: 500 * time.Millisecond})
	p.out.Await(t, "messages in its handler", name+" is down", "all orders were notified", "The customer's next order was notified",
		"The mailer is down", "None became a dead letter", "$ notification-service -replay", "The poison order is notified",
		"PASSED", "Everything still runs")
	traceOf(t, p)
	if err := p.interrupt(); err != nil {
		t.Fatalf("a good shop ends with %v:\n%s", err, p.out)
	}
	for _, line := range []string{" 0 lost, 0 twice, 0 out of order", ", 1 from a dead letter"} {
		if !strings.Contains(p.out.String(), line) {
			t.Errorf("no %q in the output:\n%s", line, p.out)
		}
	}
	if p.relay.Running() || p.orders.proc.Running() || p.notifications.proc.Running() {
		t.Error("something still runs")
	}
}
