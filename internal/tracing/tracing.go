// Package tracing makes a span of each sampled event and exports it by OTLP, with OpenTelemetry's
// SDK. It is the only importer of OpenTelemetry.
//
// An event has one span, outbox.publish: a child of what its row's traceparent names, from the
// commit to the confirm, or to the dead letter. The message carries the span's context long before
// the span is made, and perhaps several times. So nothing is kept between: trace and span id are a
// digest of the event's position, and whether it is sampled follows from them.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/secretfile"
)

// Config is the part of the configuration that the environment variables of OpenTelemetry do not
// have.
type Config struct {
	Version   string
	Slot      string
	System    string // messaging.system: rabbitmq, kafka
	Operation string // what the broker's own tools call it: publish, send
	Log       *zap.Logger
}

// Destination is where an event went, as a span may say it: without what is made from keys.
type Destination struct {
	Name       string // exchange or topic
	RoutingKey string
	Partition  int // -1: there is none, or it is not known
}

// Tracer says what each message's traceparent is, and makes the spans. Its methods but Run may be
// called from any goroutine; they wait for nothing.
type Tracer struct {
	cfg         Config
	grpc        bool // the protocol; else protobuf over HTTP
	destination func(*event.Event) Destination
	seed        uint64                       // of ids
	tracer      atomic.Pointer[trace.Tracer] // nil: Run does not run, and no event is sampled
}

// New reads which exporter the OTEL_* variables name; nil: none. It starts nothing. What it does
// not know there is logged and left out, as OpenTelemetry's specification has it: no event waits
// for a span.
func New(cfg Config) *Tracer {
	exporter, protocol := variable("OTEL_TRACES_EXPORTER"), variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	if exporter == "" && variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") != "" {
		exporter = "otlp"
	}
	switch {
	case exporter == "", exporter == "none", strings.EqualFold(variable("OTEL_SDK_DISABLED"), "true"):
		return nil
	case exporter != "otlp":
		cfg.Log.Warn("value of an OTEL_* variable is not supported",
			zap.String("why", fmt.Sprintf("OTEL_TRACES_EXPORTER is %q, known are otlp and none: no traces are exported", exporter)))
		return nil
	case protocol != "" && protocol != "grpc" && protocol != "http/protobuf":
		cfg.Log.Warn("value of an OTEL_* variable is not supported",
			zap.String("why", fmt.Sprintf("OTEL_EXPORTER_OTLP_PROTOCOL is %q, known are http/protobuf, which is taken, and grpc", protocol)))
	}
	if err := secretfile.Check(variable("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY")); err != nil {
		cfg.Log.Warn("value of an OTEL_* variable is not supported", zap.String("why", err.Error()+": no traces are exported"))
		return nil
	}
	t := &Tracer{cfg: cfg, grpc: protocol == "grpc", seed: rand.Uint64()}
	t.destination = func(*event.Event) Destination { return Destination{Partition: -1} }
	return t
}

// variable is the value of the first of these that is set; an empty one is as if it was not.
func variable(names ...string) string {
	for _, name := range names {
		if v := strings.TrimSpace(os.Getenv(name)); v != "" {
			return v
		}
	}
	return ""
}

// SendsTo sets how to find out where an event went. Call it before Run.
func (t *Tracer) SendsTo(destination func(*event.Event) Destination) { t.destination = destination }

// flushTime bounds what the end of Run waits for the collector.
const flushTime = 3 * time.Second

// Run exports spans until ctx is done, and then, within a bound, those that wait. Before and after
// it none are made. It returns nil: what is wrong with the export is logged, a line a minute at
// most of each kind, and ends nothing. The SDK reads all other OTEL_* variables: sampler, queue,
// endpoint, headers, certificates.
func (t *Tracer) Run(ctx context.Context) error {
	log := t.cfg.Log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Minute, 1, 0)
	}))
	failed := func(err error) { log.Warn("spans are not exported, events flow on", zap.Error(err)) }
	otel.SetErrorHandler(otel.ErrorHandlerFunc(failed))
	otel.SetLogger(funcr.New(func(_, text string) { failed(errors.New(text)) }, funcr.Options{}))

	var client otlptrace.Client
	if t.grpc {
		client = otlptracegrpc.NewClient()
	} else {
		client = otlptracehttp.NewClient()
	}
	exporter, err := otlptrace.New(context.WithoutCancel(ctx), client)
	if err != nil {
		failed(fmt.Errorf("open exporter: %w", err))
		<-ctx.Done()
		return nil
	}
	// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
	sender, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "cdc-relay"), attribute.String("service.version", t.cfg.Version), attribute.String("outbox.slot", t.cfg.Slot),
	), resource.WithFromEnv())
	if err != nil {
		failed(fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err))
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithIDGenerator(ids{}), sdk.WithResource(sender))
	tracer := provider.Tracer("github.com/cdc-relay/cdc-relay", trace.WithInstrumentationVersion(t.cfg.Version))
	t.tracer.Store(&tracer)
	<-ctx.Done()
	t.tracer.Store(nil)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	if err := provider.Shutdown(ending); err != nil {
		failed(fmt.Errorf("the last spans: %w", err))
	}
	return nil
}
