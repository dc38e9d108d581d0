package tracing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// flushTime bounds what the end of Run waits for the collector.
const flushTime = 3 * time.Second

// Run exports spans until ctx is done, and then, within a bound, those that wait. Before and after it none are made. It returns
// nil: what is wrong with the export is logged, it ends nothing.
func (t *Tracer) Run(ctx context.Context) error {
	// What the library has to say goes into the log of the relay: it writes to stderr by itself otherwise.
	otel.SetLogger(funcr.New(func(_, text string) { t.trouble.tell(errors.New(text)) }, funcr.Options{}))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(t.trouble.tell))
	out, err := t.exporter(ctx)
	if err != nil {
		t.trouble.tell(fmt.Errorf("open exporter: %w", err))
		<-ctx.Done()
		return nil
	}
	counted := &counted{out, t}
	provider := sdk.NewTracerProvider(sdk.WithIDGenerator(given{}), sdk.WithSampler(sdk.AlwaysSample()), // it was decided before
		sdk.WithResource(t.resource(ctx)), sdk.WithSpanProcessor(sdk.NewBatchSpanProcessor(counted)))
	tracer := provider.Tracer("github.com/cdc-relay/cdc-relay")
	t.tracer.Store(&tracer)

	<-ctx.Done()

	t.tracer.Store(nil)
	flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	if err := provider.Shutdown(flushing); err != nil {
		t.trouble.tell(fmt.Errorf("the last spans are not exported: %w", err))
	}
	// Once more, should the processor still wait for an answer: this ends the request that is on its way.
	ended, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel()
	_ = out.Shutdown(ended) //nolint:errcheck // it was shut down before, or is left behind
	return nil
}

// exporter reads endpoint, headers, certificates, compression and timeouts from the environment.
func (t *Tracer) exporter(ctx context.Context) (*otlptrace.Exporter, error) {
	ctx = context.WithoutCancel(ctx)
	if t.env.grpc {
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

// resource says who sends; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
func (t *Tracer) resource(ctx context.Context) *resource.Resource {
	r, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "cdc-relay"), attribute.String("service.version", t.cfg.Version),
		attribute.String("outbox.slot", t.cfg.Slot),
	), resource.WithFromEnv())
	if err != nil {
		t.trouble.tell(fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err))
	}
	return r
}

// counted is an exporter whose spans are counted: more than the queue's size are never in the processor's hands, so that it
// drops none without a word.
type counted struct {
	sdk.SpanExporter
	t *Tracer
}

// ExportSpans implements sdk.SpanExporter.
func (c *counted) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	c.t.pending.Add(-int64(len(spans)))
	if err != nil {
		c.t.failed.Add(uint64(len(spans)))
		c.t.trouble.tell(err)
		return nil
	}
	c.t.exported.Add(uint64(len(spans)))
	c.t.trouble.over()
	return nil
}
