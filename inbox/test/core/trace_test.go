package core

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// Each delivery is a span below the one that its traceparent names, and the handler runs in it.
func TestSpans(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	t.Cleanup(func() { await.Must(t, provider.Shutdown(context.WithoutCancel(t.Context()))) })
	var inHandler trace.SpanContext
	r := newRig(t, func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		inHandler = trace.SpanContextFromContext(ctx)
		switch m.Type {
		case "poison":
			return permanent(errMailer)
		case "fails":
			return errMailer
		}
		return write(ctx, tx, m)
	}, func(cfg *inbox.Config) { cfg.TracerProvider = provider })
	headers := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
	away := publisher{err: errMailer}
	for _, tc := range []struct {
		m       inbox.Message
		p       *publisher
		outcome string
		failed  bool
		retries int64
	}{
		{inbox.Message{ID: "1", Headers: headers, Source: "notifier"}, &r.published, "success", false, 0},
		{inbox.Message{ID: "1", Headers: headers, Attempt: 1}, &r.published, "success", false, 0},
		{inbox.Message{ID: "2", Headers: headers, Type: "fails", Attempt: 2}, &r.published, "retry", true, 1},
		{inbox.Message{ID: "3", Headers: headers, Type: "poison", Attempt: 3}, &r.published, "dead_letter", true, 2},
		{inbox.Message{ID: "4", Headers: headers, Type: "poison"}, &away, "failed", true, 0},
	} {
		err := r.Transport("rabbitmq").Handle(t.Context(), tc.m, tc.p)
		if (err != nil) != (tc.outcome == "failed") {
			t.Errorf("%s: %v", tc.outcome, err)
		}
		all := spans.Ended()
		span := all[len(all)-1]
		is := attribute.NewSet(span.Attributes()...)
		text := func(key attribute.Key) string { v, _ := is.Value(key); return v.AsString() }
		retries, _ := is.Value("rabbitmq.retry_count")
		if text("consumer.outcome") != tc.outcome || retries.AsInt64() != tc.retries || text("messaging.message.id") != tc.m.ID || text("messaging.system") != "rabbitmq" || text("messaging.consumer.group.name") != "notifier" {
			t.Errorf("%s: attributes %v", tc.outcome, span.Attributes())
		}
		if p := span.Parent(); p.SpanID().String() != "b7ad6b7169203331" || p.TraceID() != span.SpanContext().TraceID() || p.TraceState().String() != "a=b" || span.SpanKind() != trace.SpanKindConsumer {
			t.Errorf("%s: parent %v, kind %s", tc.outcome, p, span.SpanKind())
		}
		if (span.Status().Code == codes.Error) != tc.failed {
			t.Errorf("%s: status %v", tc.outcome, span.Status())
		}
		if _, dup := is.Value("consumer.duplicate"); dup != (len(all) == 2) {
			t.Errorf("span %d: consumer.duplicate is there: %v", len(all), dup)
		} else if !dup && inHandler.SpanID() != span.SpanContext().SpanID() {
			t.Errorf("%s: the handler's span is %s", tc.outcome, inHandler.SpanID())
		}
	}
	if got := spans.Ended()[0].Name(); got != "process notifier" {
		t.Errorf("span %q", got)
	}
	if !r.said.has("trace_id=0af7651916cd43dd8448eb211c80319c") || !r.said.has("event_id=3") {
		t.Errorf("log lines name no trace:\n%s", &r.said)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if m.Type == "fails" {
			return errMailer
		}
		return write(ctx, tx, m)
	}, nil)
	await.Must(t, r.handle(t.Context(), inbox.Message{ID: "1", Committed: time.Now().Add(-time.Minute)}))
	await.Must(t, r.handle(t.Context(), inbox.Message{ID: "1", Committed: time.Now()}))
	await.Must(t, r.handle(t.Context(), inbox.Message{ID: "2", Committed: time.Now().Add(time.Hour)}))
	await.Must(t, r.handle(t.Context(), inbox.Message{ID: "3", Type: "fails"}))
	await.Must(t, r.handle(t.Context(), inbox.Message{ID: "3", Type: "fails", Attempt: 2}))
	await.Must(t, r.handle(t.Context(), inbox.Message{ID: "3", Type: "fails", Attempt: 3}))
	transport := r.Transport("rabbitmq")
	transport.Waiting("notifier.dlq", 1)
	transport.BrokerUp(true)
	got := r.gathered()
	for _, want := range []string{
		`cdc_relay_inbox_messages_total{outcome="success",service="notifier"} 2`,
		`cdc_relay_inbox_messages_total{outcome="duplicate",service="notifier"} 1`,
		`cdc_relay_inbox_messages_total{outcome="retry",service="notifier"} 2`,
		`cdc_relay_inbox_messages_total{outcome="dead_letter",service="notifier"} 1`,
		`cdc_relay_inbox_messages_total{outcome="failed",service="notifier"} 0`,
		`cdc_relay_inbox_failures_total{class="transient",service="notifier"} 3`,
		`cdc_relay_inbox_failures_total{class="panic",service="notifier"} 0`,
		`cdc_relay_inbox_retries_total{level="1s",service="notifier"} 1`,
		`cdc_relay_inbox_retries_total{level="1m",service="notifier"} 1`,
		`cdc_relay_inbox_retries_returned_total{level="1s",service="notifier"} 1`,
		`cdc_relay_inbox_retries_returned_total{level="1m",service="notifier"} 1`,
		`cdc_relay_inbox_dead_letters_total{service="notifier"} 1`,
		`cdc_relay_inbox_dead_letter_failures_total{service="notifier"} 0`,
		`cdc_relay_inbox_processing_seconds_count{service="notifier"} 6`,
		`cdc_relay_inbox_commit_to_processed_seconds_count{service="notifier"} 2`,
		`cdc_relay_inbox_commit_to_processed_seconds_bucket{service="notifier",le="30"} 1`,
		`cdc_relay_inbox_waiting_messages{queue="notifier.dlq",service="notifier"} 1`,
		`cdc_relay_inbox_database_up{service="notifier"} 1`,
		`cdc_relay_inbox_broker_up{service="notifier"} 1`,
		`cdc_relay_inbox_messages_in_progress{service="notifier"} 0`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}
