package kafka

import (
	"bytes"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/cloudevents"
)

// cloudEvents is the layout of a sink that sends CloudEvents in a mode.
func cloudEvents(t testing.TB, mode string) *layout {
	t.Helper()
	s := cloudevents.Default()
	s.Mode, s.Source = mode, parseTemplate(t, "/cdc-relay/shop/public.outbox")
	cfg := RecordConfig{Topic: parseTemplate(t, "events"), PlainConfig: sink.PlainConfig{Taken: Driver().CloudEvents.Taken}}
	plain, err := newPlain(&cfg)
	must(t, err)
	cfg.Encoder, err = s.Encoder(Driver().CloudEvents, nil, plain)
	must(t, err)
	return layoutOf(t, cfg)
}

// A record has the attributes besides the relay's own headers, by the Kafka protocol binding. What
// a row has under their names is dropped.
func TestCloudEventInBinaryMode(t *testing.T) {
	ev := plainEvent(7, "k1")
	ev.Headers = []byte(`{"ce_id": "of the row", "Content-Type": "text/html", "a": "b"}`)
	got := built(t, newBuilder(cloudEvents(t, cloudevents.Binary)), ev)
	if string(got.Key) != "k1" || string(got.Value) != `{"order": 1}` {
		t.Errorf("key %q, value %q", got.Key, got.Value)
	}
	kafkatest.WantHeaders(t, got.Headers,
		header("id", "00000000-0000-4000-8000-000000000007"), header("eventType", "OrderCreated"), header("aggregateType", "order"),
		header("cdc_position", "000000001a2b3c4d-00000007"), header("traceparent", string(ev.Traceparent)), header("a", "b"),
		header("ce_specversion", "1.0"), header("ce_id", "00000000-0000-4000-8000-000000000007"), header("ce_source", "/cdc-relay/shop/public.outbox"),
		header("ce_type", "OrderCreated"), header("ce_subject", "order/k1"), header("ce_time", "2023-11-14T22:13:20.007Z"),
		header("ce_traceparent", string(ev.Traceparent)), header("ce_partitionkey", "k1"), header("ce_sequence", "000000001a2b3c4d-00000007"),
		header("content-type", "application/json"),
	)
}

// In structured mode NULL is an object without data, and no deletion for a compacted topic.
func TestCloudEventInStructuredMode(t *testing.T) {
	ev := plainEvent(7, "k1")
	ev.Payload = nil
	got := built(t, newBuilder(cloudEvents(t, cloudevents.Structured)), ev)
	if !bytes.HasPrefix(got.Value, []byte(`{"specversion":"1.0","id":"0000`)) || bytes.Contains(got.Value, []byte(`"data`+`":`)) {
		t.Errorf("the value is %s", got.Value)
	}
	last := got.Headers[len(got.Headers)-1]
	if last.Key != "content-type" || string(last.Value) != "application/cloudevents+json" {
		t.Errorf("the last header is %s: %s", last.Key, last.Value)
	}
}

// A batch of CloudEvents costs as little as one of other events.
func TestCloudEventsAllocate(t *testing.T) {
	for _, mode := range []string{cloudevents.Binary, cloudevents.Structured} {
		e, b, ev := newBuilder(cloudEvents(t, mode)), kafkaclient.NewBatch(0), plainEvent(1, "key")
		call := func() {
			b.Reset()
			for range 100 {
				if fault := e.Build(ev); fault != nil {
					t.Fatal(fault)
				}
				b.Add(&e.Record)
			}
			b.Seal(1, 1, 1)
		}
		call()
		if n := testing.AllocsPerRun(100, call); n > 0 {
			t.Errorf("%s: %v allocations for 100 records", mode, n)
		}
	}
}
