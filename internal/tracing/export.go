// Export of spans to the collector.

package tracing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	sender "go.opentelemetry.io/proto/otlp/resource/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
)

// flushTime bounds what the end of Run waits for the collector.
const flushTime = 3 * time.Second

// Run exports spans until ctx is done, and then, within a bound, those that wait. Before and after
// it none are made. It returns nil: what is wrong with the export is logged, it ends nothing.
func (t *Tracer) Run(ctx context.Context) error {
	// The library's messages go into the relay's log. Without this it writes to stderr.
	otel.SetLogger(funcr.New(func(_, text string) { t.exportLog.failure(errors.New(text)) }, funcr.Options{}))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(t.exportLog.failure))
	out := t.client()
	if err := out.Start(context.WithoutCancel(ctx)); err != nil {
		t.exportLog.failure(fmt.Errorf("open exporter: %w", err))
		t.shut.Store(true) // messages shall not name spans that are never made
		<-ctx.Done()
		return nil
	}
	x := &export{Tracer: t, out: out, frame: t.frame(ctx)}
	t.queue.setOpen(true)
	x.run(ctx)
	return nil
}

// export is a run of the export.
type export struct {
	*Tracer
	out   otlptrace.Client
	frame []*otlp.ResourceSpans // with the spans of a batch in it, what is sent
	batch []*span
}

func (x *export) run(ctx context.Context) {
	sending, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(flushTime, end) })()
	tick := time.NewTicker(x.env.delay)
	defer tick.Stop()
	for ctx.Err() == nil {
		least := 1
		select {
		case <-ctx.Done():
			continue
		case <-x.queue.full:
			least = x.queue.batch
		case <-tick.C:
		}
		for ctx.Err() == nil && x.exportBatch(sending, least) {
		}
	}
	x.queue.setOpen(false)
	for x.exportBatch(sending, 1) {
	}
	_ = x.out.Stop(sending) //nolint:errcheck // no export is running, and no caller could act on it
}

// exportBatch sends a batch, and reports whether there was one, of at least so many.
func (x *export) exportBatch(ctx context.Context, least int) bool {
	x.batch = x.queue.take(x.batch, least)
	n := len(x.batch)
	if n == 0 {
		return false
	}
	scope := x.frame[0].ScopeSpans[0]
	scope.Spans = scope.Spans[:0]
	for _, s := range x.batch {
		scope.Spans = append(scope.Spans, &s.span)
	}
	err := x.upload(ctx)
	for _, s := range x.batch {
		spans.Put(s)
	}
	x.queue.done(n)
	switch {
	case err == nil:
		x.exported.Add(uint64(n))
		x.exportLog.recovery()
		return true
	case ctx.Err() != nil:
		err = fmt.Errorf("the last spans are not exported: %w", err)
	}
	x.failed.Add(uint64(n))
	x.exportLog.failure(err)
	return true
}

func (x *export) upload(ctx context.Context) error {
	if x.env.timeout > 0 {
		bounded, cancel := context.WithTimeout(ctx, x.env.timeout)
		defer cancel()
		ctx = bounded
	}
	return x.out.UploadTraces(ctx, x.frame)
}

// client reads endpoint, headers, certificates, compression and timeouts from the environment.
func (t *Tracer) client() otlptrace.Client {
	if t.env.grpc {
		return otlptracegrpc.NewClient()
	}
	return otlptracehttp.NewClient()
}

// frame is what is around the spans: who sends. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
func (t *Tracer) frame(ctx context.Context) []*otlp.ResourceSpans {
	r, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "cdc-relay"), attribute.String("service.version", t.cfg.Version),
		attribute.String("outbox.slot", t.cfg.Slot),
	), resource.WithFromEnv())
	if err != nil {
		t.exportLog.failure(fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err))
	}
	var who []*common.KeyValue
	for _, a := range r.Attributes() {
		who = append(who, text(string(a.Key), strings.ToValidUTF8(a.Value.String(), "?")))
	}
	return []*otlp.ResourceSpans{{
		Resource: &sender.Resource{Attributes: who}, SchemaUrl: r.SchemaURL(),
		ScopeSpans: []*otlp.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "github.com/cdc-relay/cdc-relay", Version: t.cfg.Version}}},
	}}
}
