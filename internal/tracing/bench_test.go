package tracing

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/zap"
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
			ev, now := event(1, row), time.Now()
			for b.Loop() {
				tr.Traceparent(ev, room[:0])
				tr.Published(ev, 0, now)
			}
		})
	}
}

// BenchmarkSampled is a span with its export, and with the collector's reading of the bytes.
func BenchmarkSampled(b *testing.B) {
	c := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) //nolint:errcheck // nobody misses it
	}))
	defer c.Close()
	b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	tr := New(Config{Log: zap.NewNop()})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- tr.Run(ctx) }()
	for !tr.queue.isOpen() {
		time.Sleep(time.Millisecond)
	}
	ev, now := event(1, recorded), time.Now()
	b.ReportAllocs()
	made := uint64(0)
	for b.Loop() {
		tr.Published(ev, 0, now)
		if made++; made%512 == 0 {
			for tr.Stats().Exported+1024 < made {
				time.Sleep(20 * time.Microsecond)
			}
		}
	}
	cancel()
	<-done
	if s := tr.Stats(); s.Exported != made {
		b.Errorf("%+v of %d spans", s, made)
	}
}
