//go:build nightly

package kafka

import (
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
)

// TestLimitsOfARecord has the reasons of the limits that a record is checked against before it is
// sent: what is larger costs the connection, without a reason; the largest that is sent is
// answered.
func TestLimitsOfARecord(t *testing.T) {
	k := servers.SharedKafka(t)
	topic := k.Topic(t, 1)
	b := kafkaclient.NewBatch(compress.None)
	b.Add(&kafkaclient.Record{Value: make([]byte, maxRecord), Time: 1})
	if answer := send(t, dialReal(t, kafkaclient.DialOptions{}, k.Brokers()[0]), topic, 0, b.Seal(-1, -1, -1)); kafkago.Error(answer.ErrorCode) != kafkago.MessageSizeTooLarge {
		t.Errorf("got %+v", answer)
	}
	b.Add(&kafkaclient.Record{Value: make([]byte, 64<<10), Time: 1})
	if _, err := dialReal(t, kafkaclient.DialOptions{}, k.Brokers()[0]).RoundTrip(t.Context(), within, request(topic, 0, b.Seal(-1, -1, -1))); err == nil {
		t.Error("a request above socket.request.max.bytes has an answer")
	}
}
