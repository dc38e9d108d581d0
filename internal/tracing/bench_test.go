package tracing

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

func BenchmarkUnsampled(b *testing.B) {
	b.Setenv("OTEL_TRACES_EXPORTER", "otlp")
	b.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	b.Setenv("OTEL_TRACES_SAMPLER_ARG", "0")
	tr := New(Config{Log: zap.NewNop()})
	var room [64]byte
	for name, row := range map[string]string{"no row": "", "row": unrecorded} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			ev, now := newEvent(1, row), time.Now()
			for b.Loop() {
				tr.Traceparent(ev, room[:0])
				tr.Published(ev, 0, now)
			}
		})
	}
}

// BenchmarkSampled is a span with its export, and with the collector's reading of the bytes.
func BenchmarkSampled(b *testing.B) {
	asked := make(chan struct{}, 1)
	c := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			b.Error(err)
		}
		select {
		case asked <- struct{}{}:
		default:
		}
	}))
	defer c.Close()
	b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	b.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1000000") // batches are full
	tr := New(Config{Log: zap.NewNop()})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- tr.Run(ctx) }()
	await.Until(b, "the tracer to run", tr.queue.isOpen)
	ev, now := newEvent(1, recorded), time.Now()
	b.ReportAllocs()
	made := 0
	for b.Loop() {
		tr.Published(ev, 0, now)
		if made++; made%tr.env.batch == 0 {
			<-asked
		}
	}
	cancel()
	<-done
	if s := tr.Stats(); s.Dropped+s.Failed > 0 {
		b.Errorf("%+v of %d spans", s, made)
	}
}
