//go:build testall

// Kafka, as the matrix needs it.

package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	inboxkafka "github.com/cdc-relay/cdc-relay/inbox/kafka"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// kafkaBroker is a broker, and the ways of the points that have one.
type kafkaBroker struct {
	*kafkaserver.Kafka
	ways map[string]*kafkaserver.Way
}

func newKafka(t *testing.T) *kafkaBroker {
	t.Helper()
	server, err := kafkaserver.Start(t.Context(), kafkaserver.Options{Proxied: 2, Settings: map[string]string{
		"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0",
	}})
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, server.Close()) })
	return &kafkaBroker{server, map[string]*kafkaserver.Way{retrying: server.Way(0), dying: server.Way(1)}}
}

func (b *kafkaBroker) job(j job) job {
	j.Kafka, j.Topic = b.Brokers(), topicOf(j.Service)
	if way := b.ways[j.Point]; way != nil {
		j.Kafka = way.Brokers()
	}
	return j
}

func topicOf(service string) string { return "outbox.event." + service }

func (b *kafkaBroker) prepare(t *testing.T, service string, in *inbox.Inbox) {
	t.Helper()
	await.Must(t, b.CreateTopic(t.Context(), topicOf(service), 2, 1, nil))
	c, err := inboxkafka.New(in, inboxkafka.Config{Brokers: b.Brokers(), Topics: []string{topicOf(service)}})
	await.Must(t, err)
	await.Must(t, c.Declare(t.Context()))
}

func (b *kafkaBroker) publish(t *testing.T, service string, messages []message) {
	t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{Addr: kafka.TCP(b.Brokers()...), Topic: topicOf(service), Balancer: &kafka.Hash{}, RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond, Transport: transport}
	var records []kafka.Message
	for _, m := range messages {
		records = append(records, kafka.Message{Key: []byte(m.key), Value: []byte(`{}`), Headers: []kafka.Header{
			{Key: "id", Value: []byte(m.id)}, {Key: "eventType", Value: []byte(m.kind)}, {Key: "aggregateType", Value: []byte(service)},
		}})
	}
	await.Must(t, w.WriteMessages(t.Context(), records...))
	await.Must(t, w.Close())
}

// delivered: it reads ahead.
func (b *kafkaBroker) delivered(*testing.T, string) {}

func (b *kafkaBroker) hold(point string) { b.ways[point].Proxy(1).Hold(netproxy.Down) }

func (b *kafkaBroker) published(t *testing.T, service, point string) {
	t.Helper()
	topic := service + ".retry.1s"
	if point == dying {
		topic = service + ".dlq"
	}
	await.Until(t, topic+" to have a message", func() bool {
		for _, end := range b.ends(t, topic) {
			if end > 0 {
				return true
			}
		}
		return false
	})
}

func (b *kafkaBroker) release(point string) { b.ways[point].Proxy(1).Release(netproxy.Down) }

func (b *kafkaBroker) restart(t *testing.T) {
	t.Helper()
	await.Must(t, b.KillNode(1))
	for _, way := range b.ways {
		way.Proxy(1).Reset()
	}
	await.Must(t, b.StartNode(t.Context(), 1))
}

// kept: the group's offset says it.
func (b *kafkaBroker) kept(t *testing.T, service string, _ int) {
	t.Helper()
	records, err := b.Records(t.Context(), topicOf(service))
	await.Must(t, err)
	for _, r := range records {
		if r.Header("eventType") != target {
			continue
		}
		if at := b.committed(t, service, topicOf(service))[r.Partition]; at > r.Offset {
			t.Errorf("%s: the group's offset is %d, behind the message at %d that was not processed", service, at, r.Offset)
		}
	}
}

func (b *kafkaBroker) left(t *testing.T, service string) string {
	for _, topic := range []string{topicOf(service), service + ".retry.1s"} {
		at := b.committed(t, service, topic)
		for partition, end := range b.ends(t, topic) {
			if end > max(at[partition], 0) {
				return fmt.Sprintf("partition %d of %s ends at %d, and the group's offset is %d", partition, topic, end, at[partition])
			}
		}
	}
	return ""
}

func (b *kafkaBroker) dead(t *testing.T, service string) (ids []string) {
	records, err := b.Records(t.Context(), service+".dlq")
	await.Must(t, err)
	for _, r := range records {
		ids = append(ids, r.Header("id"))
	}
	return ids
}

func (b *kafkaBroker) ends(t *testing.T, topic string) map[int]int64 {
	t.Helper()
	ends, err := b.EndOffsets(t.Context(), topic)
	await.Must(t, err)
	return ends
}

// committed are the offsets of the service's group, -1 where it has none.
func (b *kafkaBroker) committed(t *testing.T, service, topic string) map[int]int64 {
	t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(b.Brokers()...), Transport: transport}
	at := map[int]int64{}
	for partition := range b.ends(t, topic) {
		res, err := client.OffsetFetch(t.Context(), &kafka.OffsetFetchRequest{GroupID: service, Topics: map[string][]int{topic: {partition}}})
		await.Must(t, err)
		await.Must(t, res.Error)
		for _, p := range res.Topics[topic] {
			await.Must(t, p.Error)
			at[p.Partition] = p.CommittedOffset
		}
	}
	return at
}
