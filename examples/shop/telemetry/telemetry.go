// Package telemetry is what both services of the shop show of themselves: health, metrics and,
// when the OTEL_* variables name a collector, spans.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
)

// Trace exports spans under the service's name if OTEL_EXPORTER_OTLP_ENDPOINT is set. stop exports
// those that wait. A collector that is away costs spans, and nothing else.
func Trace(ctx context.Context, service string) (stop func(), err error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		return func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("export spans: %w", err)
	}
	name := resource.NewSchemaless(attribute.String("service.name", service))
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(name))
	otel.SetTracerProvider(provider)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			slog.Warn("the last spans were not exported", "error", err)
		}
	}, nil
}

// Serve answers on an address, also for /healthz and /metrics, until ctx ends and the requests
// that run have been answered.
func Serve(ctx context.Context, listen string, mux *http.ServeMux) error {
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("GET /metrics", promhttp.Handler())
	server := &http.Server{Addr: listen, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		stopped <- server.Shutdown(ctx)
	})()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return <-stopped
}

// Traced gives each request a span of the route's name, a child of the caller's.
func Traced(route string, next http.HandlerFunc) http.HandlerFunc {
	tracer := otel.Tracer("github.com/cdc-relay/cdc-relay/examples/shop/telemetry")
	return func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := tracer.Start(ctx, route, api.WithSpanKind(api.SpanKindServer))
		defer span.End()
		answer := &status{ResponseWriter: w, code: http.StatusOK}
		next(answer, r.WithContext(ctx))
		span.SetAttributes(attribute.String("http.request.method", r.Method), attribute.Int("http.response.status_code", answer.code))
	}
}

// status remembers the status code of an answer.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}
