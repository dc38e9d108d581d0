//go:build testall

package cli

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/outbox"
)

// On Kafka an event without a payload is a tombstone, and one without a key has none, or an empty
// one if it is a row: the column is NOT NULL.
func TestWrittenEventsOnKafka(t *testing.T) {
	t.Parallel()
	k := withKafka(t, 1)
	k.source = "  message_prefix: outbox"
	relay := k.start()
	for _, w := range []func(context.Context, pgx.Tx, ...outbox.Event) error{outbox.Write, outbox.Emit} {
		must(t, byPgx(w)(await.Context(t), k.rig,
			outbox.Event{Aggregate: "order", Key: "42", Type: "created", Payload: json.RawMessage(`{"n": 1}`), Headers: map[string]string{"tenant": "ü"}},
			outbox.Event{Aggregate: "order", Key: "42", Type: "removed"},
		))
		must(t, byPgx(w)(await.Context(t), k.rig, outbox.Event{Aggregate: "tick", Type: "tock", Payload: 1}))
	}
	keyless := 0
	for i, r := range k.records(k.topic, 6) {
		switch {
		case r.Header("eventType") == "created" && string(r.Key) == "42" && string(r.Value) == `{"n": 1}` && r.Header("tenant") == "ü" && r.Header("aggregateType") == "order":
		case r.Header("eventType") == "removed" && string(r.Key) == "42" && r.Value == nil:
		case r.Header("eventType") == "tock" && len(r.Key) == 0 && string(r.Value) == "1":
			keyless++
		default:
			t.Errorf("record %d is %+v", i, r)
		}
	}
	if keyless != 2 {
		t.Errorf("%d records have no key", keyless)
	}
	relay.Stop(t)
}
