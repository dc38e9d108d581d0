package tracing

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

const (
	recorded   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unrecorded = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// quiet clears the variables of the test's environment, and makes the tracer send spans at once.
func quiet(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_SAMPLER",
		"OTEL_TRACES_SAMPLER_ARG", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
		"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
}

// started is a tracer that runs until the test ends, or until stop.
func started(t *testing.T, cfg Config) (*Tracer, func()) {
	t.Helper()
	tr := New(cfg)
	if tr == nil {
		t.Fatal("no tracer: the environment asks for one")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tr.Run(ctx) }()
	ended := false
	stop := func() {
		if cancel(); ended {
			return
		}
		ended = true
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	await.Until(t, "the tracer to run", func() bool { return tr.tracer.Load() != nil })
	return tr, stop
}

func newEvent(n uint32, traceparent string) *event.Event {
	ev := &event.Event{
		Position: event.Position{Commit: 0x16B3748, Index: n}, CommitTime: time.Now().Add(-time.Second), ID: fmt.Append(nil, "id-", n),
		Key: []byte("secret-key"), Payload: []byte("secret-payload"), Headers: []byte(`{"h": "secret-header"}`),
	}
	if traceparent != "" {
		ev.Traceparent = []byte(traceparent)
	}
	return ev
}

// TestTraceparentNamesTheSpan: the message's traceparent names the span that is exported later, and
// that is a child of the row's, over both protocols.
func TestTraceparentNamesTheSpan(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			quiet(t)
			c := servers.StartCollector(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL())
			if protocol == "grpc" {
				t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.GRPC())
			}
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			tr, stop := started(t, Config{Log: zap.NewNop(), System: "rabbitmq", Operation: "publish", Slot: "orders", Version: "1.2.3"})
			tr.SendsTo(func(*event.Event) Destination {
				return Destination{Name: "outbox.events", RoutingKey: "order.placed", Partition: -1}
			})

			ev := newEvent(1, recorded)
			sent := string(tr.Traceparent(ev, nil))
			if again := string(tr.Traceparent(ev, nil)); again != sent {
				t.Fatalf("sent as %s, and then as %s", sent, again)
			}
			tr.Published(ev, 3, ev.CommitTime.Add(250*time.Millisecond))
			dead := newEvent(2, recorded)
			tr.DeadLettered(dead, 19, "too_large", time.Now())
			stop() // flushes

			own := parsed(t, sent)
			s, err := c.WaitSpan(await.Context(t), func(s servers.Span) bool { return s.ID == own.SpanID() })
			if err != nil {
				t.Fatal(err)
			}
			if s.Trace != "0af7651916cd43dd8448eb211c80319c" || s.Parent != "b7ad6b7169203331" || s.Name != "outbox.publish" || !s.Producer || s.Error != "" {
				t.Errorf("span %+v", s)
			}
			if d := s.End.Sub(s.Start); d != 250*time.Millisecond || s.Start.UnixNano() != ev.CommitTime.UnixNano() {
				t.Errorf("from %s, for %s", s.Start, d)
			}
			for name, want := range map[string]string{
				"outbox.outcome": "published", "event.retry_count": "3", "messaging.system": "rabbitmq", "messaging.operation.name": "publish",
				"messaging.operation.type": "send", "messaging.destination.name": "outbox.events", "messaging.message.id": "id-1",
				"messaging.rabbitmq.destination.routing_key": "order.placed", "outbox.position": ev.Position.String(), "messaging.message.body.size": "14",
			} {
				if s.Attributes[name] != want {
					t.Errorf("%s is %q, want %q", name, s.Attributes[name], want)
				}
			}
			if s.Resource["service.name"] != "cdc-relay" || s.Resource["service.version"] != "1.2.3" || s.Resource["outbox.slot"] != "orders" {
				t.Errorf("resource %v", s.Resource)
			}
			d, err := c.WaitSpan(await.Context(t), func(s servers.Span) bool { return s.Attributes["messaging.message.id"] == "id-2" })
			if err != nil {
				t.Fatal(err)
			}
			if d.Attributes["outbox.outcome"] != "dead_letter" || d.Error != "too_large" || d.Attributes["error.type"] != "too_large" || d.Attributes["event.retry_count"] != "19" {
				t.Errorf("dead letter's span %+v", d)
			}
			for _, s := range c.Spans() {
				if strings.Contains(s.Text, "secret") {
					t.Errorf("a span has personal data: %s", s.Text)
				}
			}
		})
	}
}

func parsed(t *testing.T, text string) event.TraceContext {
	t.Helper()
	c, ok := event.ParseTraceparent([]byte(text))
	if !ok {
		t.Fatalf("%q is no traceparent", text)
	}
	return c
}

// TestWhoDecides: what a message carries, by sampler and by what its row has.
func TestWhoDecides(t *testing.T) {
	const garbage = "Root=1-67891233-abcdef012345678912345678"
	for _, tc := range []struct {
		sampler, arg, row string
		want              string // "own": our span; "root": a new trace; else this, byte for byte
	}{
		{"", "", recorded, "own"},
		{"", "", unrecorded, unrecorded},
		{"", "", "", "root"},
		{"", "", garbage, "root"},
		{"always_on", "", unrecorded, "own"},
		{"always_off", "", recorded, recorded},
		{"always_off", "", "", ""},
		{"always_off", "", garbage, garbage},
		{"parentbased_always_off", "", recorded, "own"},
		{"parentbased_always_off", "", unrecorded, unrecorded},
		{"parentbased_always_off", "", "", ""},
		{"parentbased_always_off", "", garbage, garbage},
		{"traceidratio", "0", recorded, recorded},
		{"traceidratio", "1", unrecorded, "own"},
		{"parentbased_traceidratio", "0", recorded, "own"},
		{"parentbased_traceidratio", "0", "", ""},
		{"parentbased_traceidratio", "1", "", "root"},
		{"parentbased_traceidratio", "", "", "root"},
		{"parentbased_traceidratio", "7", "", "root"},
		{"xray", "", "", "root"},
		{"xray", "", unrecorded, unrecorded},
	} {
		t.Run(tc.sampler+tc.arg+" "+tc.row, func(t *testing.T) {
			quiet(t)
			t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
			t.Setenv("OTEL_TRACES_SAMPLER", tc.sampler)
			t.Setenv("OTEL_TRACES_SAMPLER_ARG", tc.arg)
			tr, _ := started(t, Config{Log: zap.NewNop()})
			ev := newEvent(7, tc.row)
			got := string(tr.Traceparent(ev, make([]byte, 0, 64)))
			if tc.want != "own" && tc.want != "root" {
				if got != tc.want {
					t.Errorf("the message has %q, want %q", got, tc.want)
				}
				if tc.want == "" && tr.Traceparent(ev, nil) != nil {
					t.Error("it has an empty one, want none")
				}
				return
			}
			own, row := parsed(t, got), event.TraceContext{}
			if tc.want == "own" {
				row = parsed(t, tc.row)
			}
			if !own.Sampled() || own.Span == row.Span || (tc.want == "own") != (own.Trace == row.Trace) {
				t.Errorf("the message has %q, the row %q", got, tc.row)
			}
			if other := string(tr.Traceparent(newEvent(8, tc.row), nil)); other == got {
				t.Error("two events have one span")
			}
			ev.Replay = true
			if again := string(tr.Traceparent(ev, nil)); again == got {
				t.Error("a dead letter that is replayed has the span of the event that died")
			}
			ev.Copy = true
			if copied := string(tr.Traceparent(ev, nil)); copied != tc.row {
				t.Errorf("the mirror's copy has %q", copied)
			}
		})
	}
}

// TestOffUnlessAskedFor: tracing is off unless a variable turns it on.
func TestOffUnlessAskedFor(t *testing.T) {
	for _, tc := range []struct {
		env  map[string]string
		on   bool
		warn string
	}{
		{nil, false, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, true, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, true, ""},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		{map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, false, ""},
		{map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, false, ""},
		{map[string]string{"OTEL_SDK_DISABLED": "false", "OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		{map[string]string{"OTEL_TRACES_SAMPLER": "always_on"}, false, ""},
		{map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, false, `"zipkin"`},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, true, `"http/json"`},
	} {
		t.Run(fmt.Sprint(tc.env), func(t *testing.T) {
			quiet(t)
			for name, value := range tc.env {
				t.Setenv(name, value)
			}
			log, said := logged()
			if tr := New(Config{Log: log}); (tr != nil) != tc.on {
				t.Errorf("tracing is on: %v", tr != nil)
			}
			switch text := said(); {
			case tc.warn == "" && text != "":
				t.Errorf("it says %q", text)
			case !strings.Contains(text, tc.warn):
				t.Errorf("it says %q, without %s", text, tc.warn)
			}
		})
	}
}

// TestEnvironmentNames: the service is named by the standard variables.
func TestEnvironmentNames(t *testing.T) {
	quiet(t)
	c := servers.StartCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", c.URL()+"/v1/traces")
	t.Setenv("OTEL_SERVICE_NAME", "shop-relay")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	tr, stop := started(t, Config{Log: zap.NewNop()})
	ev := newEvent(1, "")
	ev.ID = []byte("not \xff UTF-8") // would cost the whole batch
	sent := string(tr.Traceparent(ev, nil))
	tr.Published(ev, 0, time.Now())
	stop()
	s, err := c.WaitSpan(await.Context(t), func(servers.Span) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if s.Resource["service.name"] != "shop-relay" || s.Resource["deployment.environment.name"] != "test" || s.Parent != "" {
		t.Errorf("resource %v, parent %q", s.Resource, s.Parent)
	}
	if own := parsed(t, sent); s.Trace != own.TraceID() || s.ID != own.SpanID() {
		t.Errorf("span %s of trace %s, the message has %+v", s.ID, s.Trace, own)
	}
}
