// The contest on Kafka: one topic.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	debeziumserver "github.com/cdc-relay/cdc-relay/internal/devenv/servers/debezium"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// contestRows are the rows of the contest.
func (s *kafkaStand) contestRows() []row {
	c := &contest{stand: s.stand, at: kafkaContest{s}, events: s.size.drainKafka, dirs: map[string]string{}}
	return c.rows(3, 2.5)
}

// kafkaContest is Kafka's part.
type kafkaContest struct{ *kafkaStand }

const contestPartitions = 6

func (f kafkaContest) name() string { return "Kafka" }

func (f kafkaContest) ordering() string { return "key" } // partitions are read one after the other

func (f kafkaContest) destination(ctx context.Context, _ int, live bool) (destination, error) {
	t, err := f.newTopic(ctx, contestPartitions)
	if err != nil {
		return nil, err
	}
	g := &kafkaDestination{to: t}
	if live {
		g.consumer, err = consumers.StartKafkaConsumer(ctx, consumers.KafkaConsumerOptions{Brokers: f.cluster.Brokers(), Topics: []string{t.name}})
		if err != nil {
			return nil, errors.Join(err, t.close())
		}
	}
	return g, nil
}

// kafkaDestination is the topic, and with live rows its consumer.
type kafkaDestination struct {
	to       *topic
	consumer *consumers.KafkaConsumer // nil: nobody reads before the end
}

func (g *kafkaDestination) topic() string { return g.to.name }

func (g *kafkaDestination) close() error {
	if g.consumer != nil {
		g.consumer.Close()
	}
	return g.to.close()
}

// depth is what the consumer has, or the topic when there is none.
func (g *kafkaDestination) depth() (int, error) {
	if g.consumer == nil {
		return g.to.depth()
	}
	distinct, twice := g.consumer.Count()
	return distinct + twice, nil
}

func (g *kafkaDestination) arrivals(_ context.Context, n int) ([]checker.Delivery, error) {
	all := g.consumer.DeliveriesFrom(n)
	for i := range all {
		all[i].ID = unquoted(all[i].ID)
	}
	return all, nil
}

func (g *kafkaDestination) sink() string {
	return fmt.Sprintf("kafka: {brokers: [%q]}", g.to.cluster.Brokers()[0])
}

func (g *kafkaDestination) debezium() map[string]string {
	sink := debeziumserver.DebeziumKafka(g.to.cluster.Brokers()...)
	sink["debezium.format.header.schemas.enable"] = "false"
	return sink
}

// check reads the topic and compares: the same records of both sides.
func (g *kafkaDestination) check(ctx context.Context, h *history) error {
	var want []byte
	err := g.to.read(ctx, func(r *kafkaserver.Record) {
		own := 0
		for _, header := range r.Headers {
			if !isContext(header.Name) {
				own++
			}
		}
		id := unquoted(r.Header("id"))
		if i, ok := indexOf(id, h.first); ok {
			want = appendPayload(want[:0], i, h.payload)
			if !bytes.Equal(r.Value, want) || own != 2 || r.Header("eventType") != contestType {
				h.altered++
			}
		}
		h.note(id, string(r.Key))
	})
	if err != nil {
		return err
	}
	return h.verdict(0)
}
