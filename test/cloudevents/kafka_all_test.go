//go:build testall

// Kafka, and the SDK's protocol binding for it.

package cloudevents

import (
	"fmt"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

type kafkaTopic struct {
	cluster *kafkaserver.Kafka
	topic   string
}

func onKafka(t *testing.T) broker {
	t.Helper()
	cluster := servers.SharedKafka(t)
	return kafkaTopic{cluster, cluster.Topic(t, 1)}
}

func (k kafkaTopic) sink(more string) string {
	return fmt.Sprintf("kafka: {brokers: ['%s'], topic: %s%s}", strings.Join(k.cluster.Brokers(), "','"), k.topic, more)
}

func (k kafkaTopic) received(t *testing.T, n int) (list []message) {
	t.Helper()
	var records []kafkaserver.Record
	await.Until(t, fmt.Sprint(n, " records"), func() bool {
		var err error
		records, err = k.cluster.Records(await.Context(t), k.topic)
		await.Must(t, err)
		return len(records) >= n
	})
	for _, r := range records[:n] {
		given := &sarama.ConsumerMessage{Topic: k.topic, Offset: r.Offset, Key: r.Key, Value: r.Value, Timestamp: r.Time}
		headers := map[string]string{}
		for _, h := range r.Headers {
			given.Headers = append(given.Headers, &sarama.RecordHeader{Key: []byte(h.Name), Value: h.Value})
			headers[h.Name] = string(h.Value)
		}
		list = append(list, message{
			Message: kafka_sarama.NewMessageFromConsumerMessage(given), id: headers["id"], key: string(r.Key), contentType: headers["content-type"], value: r.Value, headers: headers,
		})
	}
	return list
}
