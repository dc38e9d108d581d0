package kafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

func TestConformance(t *testing.T) {
	k := ownKafka(t, devenv.KafkaOptions{Authorizer: true, Proxied: 1})
	sinktest.Run(t, shows, func(t *testing.T) sinktest.Broker { return openConformance(t, k) })
}

// conformance is the real broker behind a proxy, with a topic for each way in which a destination fails.
type conformance struct {
	t        *testing.T
	ctx      context.Context
	kafka    *devenv.Kafka
	way      *devenv.KafkaWay
	sink     *running
	consumer *devenv.KafkaConsumer
	topic    string // of good events; the others' names begin with it
	n        uint64
}

// topicOf is what follows the topic's name of a destination's kind. Kafka has no destination that takes events and stores
// them nowhere, and none that is full; too few replicas take several brokers (TestCluster).
var topicOf = map[sinktest.Kind]string{
	sinktest.DestinationMissing:   "-missing",
	sinktest.DestinationForbidden: "-forbidden",
}

func openConformance(t *testing.T, k *devenv.Kafka) *conformance {
	c := &conformance{t: t, ctx: limited(t), kafka: k, way: k.Way(0)}
	c.topic = topicWith(t, k, 3, 1, map[string]string{"max.message.bytes": "65536"})
	topics := []string{c.topic}
	for _, suffix := range topicOf {
		c.create(c.topic + suffix)
		topics = append(topics, c.topic+suffix)
	}
	var err error
	c.consumer, err = devenv.StartKafkaConsumer(c.ctx, devenv.KafkaConsumerOptions{Brokers: k.Brokers(), Topics: topics})
	must(t, err)
	t.Cleanup(c.consumer.Close)
	t.Cleanup(func() {
		c.way.Proxy(1).Release(devenv.Down)
		must(t, c.way.Proxy(1).Mend())
	})
	c.sink = start(t, Config{Brokers: c.way.Brokers()})
	return c
}

func (c *conformance) create(topic string) {
	must(c.t, c.kafka.CreateTopic(c.ctx, topic, 2, 1, nil))
}

func (c *conformance) Sink() sink.Sink { return c.sink }

func (c *conformance) Stop() error {
	c.sink.stop()
	err := <-c.sink.done
	c.sink.done <- err
	return err
}

// shows: see topicOf; and what blocks a producer here is its quota, which slows it down and stops nothing (TestOneBroker).
func shows(kind sinktest.Kind) bool {
	return kind != sinktest.Blocked && kind != sinktest.DestinationFull && kind != sinktest.DestinationRefusing
}

func (c *conformance) Event(kind sinktest.Kind, key string) *outbox.Event {
	c.n++
	ev := sinktest.NewEvent(c.n, key)
	ev.Columns = [][]byte{[]byte(c.topic + topicOf[kind])}
	switch kind {
	case sinktest.EventTooLarge:
		ev.Payload = make([]byte, 70_000)
	case sinktest.EventInvalid: // message.timestamp.after.max.ms is an hour
		ev.Time = time.Now().Add(48 * time.Hour)
	case sinktest.EventUndecodable:
		ev.Fault = errors.New("the id is NULL")
	default:
	}
	return ev
}

func (c *conformance) Delivered() []sinktest.Delivery {
	got := c.consumer.Deliveries()
	all := make([]sinktest.Delivery, len(got))
	for i, d := range got {
		all[i] = sinktest.Delivery{Position: d.Position, ID: d.ID, Key: d.Key}
	}
	return all
}

func (c *conformance) Break(kind sinktest.Kind) { c.turn(kind, true) }
func (c *conformance) Mend(kind sinktest.Kind)  { c.turn(kind, false) }

func (c *conformance) turn(kind sinktest.Kind, broken bool) {
	const anybody = "User:ANONYMOUS"
	topic, proxy := c.topic+topicOf[kind], c.way.Proxy(1)
	switch kind {
	case sinktest.Unavailable:
		c.cut(broken)
	case sinktest.Stalled:
		if broken {
			proxy.Stall()
		} else {
			must(c.t, proxy.Mend())
		}
	case sinktest.AnswersLost:
		if broken {
			proxy.Hold(devenv.Down)
		} else {
			c.cut(true)
			proxy.Release(devenv.Down)
			c.cut(false)
		}
	case sinktest.DestinationMissing:
		if broken {
			must(c.t, c.kafka.DeleteTopic(c.ctx, topic))
		} else {
			c.create(topic)
		}
	case sinktest.DestinationForbidden:
		if broken {
			must(c.t, c.kafka.Deny(c.ctx, topic, anybody))
		} else {
			must(c.t, c.kafka.Allow(c.ctx, topic, anybody))
		}
	default: // the fault is the event's
	}
}

func (c *conformance) cut(on bool) {
	if on {
		c.way.Proxy(1).Cut()
		return
	}
	must(c.t, c.way.Proxy(1).Mend())
}
