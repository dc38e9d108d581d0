// Kafka in the demo.

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// kafka is one broker of Kafka with the topic of the orders.
type kafka struct {
	cluster *kafkaserver.Kafka
	reader  *consumers.KafkaConsumer
}

const (
	topic      = "outbox.event.order"
	partitions = 12
	node       = 1
)

func (k *kafka) words() words {
	return words{
		name: "Kafka", place: "topic", id: "the header id", once: true, limited: topicSizeSetting,
		mistake: fmt.Sprintf("takes away the right to write to topic %q", topic), undo: "gives the right back",
	}
}

const (
	topicSizeSetting = "max.message.bytes"
	anonymous        = "User:ANONYMOUS" // the relay, which has no login
)

func (k *kafka) start(ctx context.Context) (err error) {
	k.cluster, err = kafkaserver.Start(ctx, kafkaserver.Options{Authorizer: true})
	return err
}

func (k *kafka) addr() string { return strings.Join(k.cluster.Brokers(), ", ") }

func (k *kafka) openConsumer(ctx context.Context) (said string, err error) {
	if err := k.cluster.CreateTopic(ctx, topic, partitions, 1, map[string]string{topicSizeSetting: fmt.Sprint(smallLimit)}); err != nil {
		return "", err
	}
	k.reader, err = consumers.StartKafkaConsumer(ctx, consumers.KafkaConsumerOptions{Brokers: k.cluster.Brokers(), Topics: []string{topic}})
	return fmt.Sprintf("A consumer reads the %d partitions of topic %q.", partitions, topic), err
}

func (k *kafka) consumer() consumer { return k.reader }

func (k *kafka) sink() string { return fmt.Sprintf("  kafka:\n    brokers: [%s]\n", k.addr()) }

func (k *kafka) watch(db string) consumers.FlushWatch {
	return consumers.FlushWatch{DB: db, Slot: slot, Consumer: k.reader, RetryTable: true}
}

func (k *kafka) stop(ctx context.Context) error { return k.cluster.StopNode(ctx, node) }

func (k *kafka) startAgain(ctx context.Context) error {
	if err := k.cluster.StartNode(ctx, node); err != nil {
		return err
	}
	return k.cluster.SetTopicConfig(ctx, topic, topicSizeSetting, fmt.Sprint(largeLimit))
}

func (k *kafka) mistake(ctx context.Context) error { return k.cluster.Deny(ctx, topic, anonymous) }

func (k *kafka) undo(ctx context.Context) error { return k.cluster.Allow(ctx, topic, anonymous) }

func (k *kafka) close() error {
	if k.reader != nil {
		k.reader.Close()
	}
	if k.cluster == nil {
		return nil
	}
	return k.cluster.Close()
}
