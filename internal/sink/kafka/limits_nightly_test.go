//go:build nightly

package kafka

import (
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// TestLimitsOfARecord has the reasons of the limits that a record is held to before it is sent: what is larger costs the
// connection, and no answer tells why; the largest that is sent is answered.
func TestLimitsOfARecord(t *testing.T) {
	k := devenv.SharedKafka(t)
	topic := k.Topic(t, 1)
	b := newBatch(compress.None)
	b.add(record{value: make([]byte, maxRecord), time: 1}.message())
	if answer := send(t, dialReal(t, Config{}, k.Brokers()[0]), topic, 0, b.seal(-1, -1, -1)); kafkago.Error(answer.ErrorCode) != kafkago.MessageSizeTooLarge {
		t.Errorf("got %+v", answer)
	}
	b.add(record{value: make([]byte, 64<<10), time: 1}.message())
	if _, err := dialReal(t, Config{}, k.Brokers()[0]).roundTrip(t.Context(), within, request(topic, 0, b.seal(-1, -1, -1))); err == nil {
		t.Error("a request above socket.request.max.bytes has an answer")
	}
}
