//go:build testall

package servers

import (
	"bytes"
	"crypto/rand"
	"testing"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// A log that is longer than one answer is read to its end, and null is not empty.
func TestKafkaRecords(t *testing.T) {
	k := SharedKafka(t)
	topic := k.Topic(t, 1)
	write(t, k, topic, 0, protocol.Record{}, protocol.Record{Key: text(""), Value: text("")})
	value := make([]byte, 900<<10)
	_, _ = rand.Read(value)
	for range 10 {
		write(t, k, topic, 0, protocol.Record{Value: protocol.NewBytes(value)})
	}
	records, err := k.Records(await.Context(t), topic)
	await.Must(t, err)
	if len(records) != 12 || records[11].Offset != 11 || !bytes.Equal(records[11].Value, value) {
		t.Fatalf("%d records", len(records))
	}
	null, empty := records[0], records[1]
	if null.Key != nil || null.Value != nil || empty.Key == nil || empty.Value == nil || len(empty.Key)+len(empty.Value) > 0 {
		t.Errorf("null is %#v, empty %#v", null, empty)
	}
}
