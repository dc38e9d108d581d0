// Kafka in the shop.

package main

import (
	"context"
	"fmt"
	"strings"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// kafka is one broker of Kafka with the topic of the orders.
type kafka struct {
	cluster *kafkaserver.Kafka
	client  *kafkago.Client
}

const (
	topic      = "outbox.event.order"
	partitions = 6
	node       = 1
)

func (k *kafka) name() string        { return "Kafka" }
func (k *kafka) place() string       { return fmt.Sprintf("topic %q", topic) }
func (k *kafka) destination() string { return topic }
func (k *kafka) system() string      { return "kafka" }
func (k *kafka) again() string {
	return "Kafka delivers them again once it has given up the process, after 10 seconds."
}
func (k *kafka) later() string { return "retry topics" }
func (k *kafka) addr() string  { return strings.Join(k.cluster.Brokers(), ",") }

func (k *kafka) start(ctx context.Context) (err error) {
	if k.cluster, err = kafkaserver.Start(ctx, kafkaserver.Options{}); err != nil {
		return err
	}
	k.client = &kafkago.Client{Addr: kafkago.TCP(k.cluster.Brokers()...), Transport: &kafkago.Transport{}}
	return k.cluster.CreateTopic(ctx, topic, partitions, 1, nil)
}

func (k *kafka) sink() string { return fmt.Sprintf("  kafka:\n    brokers: [%s]\n", k.addr()) }

func (k *kafka) environment() []string                { return []string{"KAFKA_BROKERS=" + k.addr()} }
func (k *kafka) way() *netproxy.Proxy                 { return nil }
func (k *kafka) stop(ctx context.Context) error       { return k.cluster.StopNode(ctx, node) }
func (k *kafka) startAgain(ctx context.Context) error { return k.cluster.StartNode(ctx, node) }

// waiting counts what the group has not committed, and what is in the service's own topics: what
// was handled is deleted from them.
func (k *kafka) waiting(ctx context.Context) (n int, err error) {
	for _, own := range []string{".retry.1s", ".retry.2s", ".retry.5s", ".return"} {
		here, err := k.messages(ctx, notificationService+own, nil)
		if err != nil {
			return 0, err
		}
		n += here
	}
	all := make([]int, partitions)
	for i := range all {
		all[i] = i
	}
	answer, err := k.client.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: notificationService, Topics: map[string][]int{topic: all}})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		return 0, fmt.Errorf("read offsets of group %s: %w", notificationService, err)
	}
	committed := map[int]int64{}
	for _, p := range answer.Topics[topic] {
		committed[p.Partition] = p.CommittedOffset
	}
	here, err := k.messages(ctx, topic, committed)
	return n + here, err
}

func (k *kafka) deadLetters(ctx context.Context) (int, error) {
	return k.messages(ctx, notificationService+".dlq", nil)
}

// messages counts those of a topic, from an offset on in each partition.
func (k *kafka) messages(ctx context.Context, name string, from map[int]int64) (n int, err error) {
	about, err := k.client.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{name}})
	if err == nil {
		err = about.Topics[0].Error
	}
	if err != nil {
		return 0, fmt.Errorf("find topic %s: %w", name, err)
	}
	var ask []kafkago.OffsetRequest
	for _, p := range about.Topics[0].Partitions {
		ask = append(ask, kafkago.FirstOffsetOf(p.ID), kafkago.LastOffsetOf(p.ID))
	}
	answer, err := k.client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{name: ask}})
	if err != nil {
		return 0, fmt.Errorf("read offsets of topic %s: %w", name, err)
	}
	for _, p := range answer.Topics[name] {
		if p.Error != nil {
			return 0, fmt.Errorf("read offsets of topic %s: %w", name, p.Error)
		}
		n += int(p.LastOffset - max(p.FirstOffset, from[p.Partition]))
	}
	return n, nil
}

func (k *kafka) close() error {
	if k.client != nil {
		k.client.Transport.(*kafkago.Transport).CloseIdleConnections()
	}
	if k.cluster == nil {
		return nil
	}
	return k.cluster.Close()
}
