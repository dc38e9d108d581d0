package kafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, shows, func(t *testing.T) sinktest.Broker {
		k, way := servers.SharedKafkaWay(t)
		return openConformance(t, k, way, sinktest.DestinationMissing)
	})
}

// conformance is a real cluster behind proxies, with a topic for each way in which a destination
// fails.
type conformance struct {
	t        *testing.T
	ctx      context.Context
	kafka    *kafkaserver.Kafka
	way      *kafkaserver.Way
	sink     *running
	consumer *consumers.KafkaConsumer
	topic    string // of good events; the others' names begin with it
	stopped  int    // the node that DestinationRefusing has stopped
	others   *flowing
	n        uint64
}

// topicOf is what follows the topic's name of a destination's kind. None is full: a log drops its
// oldest records before that, and a disk that is full takes the whole broker down.
var topicOf = map[sinktest.Kind]string{
	sinktest.DestinationMissing:   "-missing",
	sinktest.DestinationForbidden: "-forbidden",
	sinktest.DestinationRefusing:  "-refusing",
}

func openConformance(t *testing.T, k *kafkaserver.Kafka, way *kafkaserver.Way, destination sinktest.Kind) *conformance {
	c := &conformance{t: t, ctx: await.Context(t), kafka: k, way: way}
	c.topic = topicWith(t, k, 3, max(1, k.Nodes()), map[string]string{
		"max.message.bytes":              "65536",
		"message.timestamp.after.max.ms": "3600000", // the default of Kafka 4
	})
	c.create(destination)
	t.Cleanup(func() { remove(t, k, c.topic+topicOf[destination]) })
	topics := []string{c.topic, c.topic + topicOf[destination]}
	var err error
	c.consumer, err = consumers.StartKafkaConsumer(c.ctx, consumers.KafkaConsumerOptions{Brokers: k.Brokers(), Topics: topics})
	must(t, err)
	t.Cleanup(c.consumer.Close)
	t.Cleanup(func() {
		c.way.Proxy(1).Release(netproxy.Down)
		must(t, c.way.Proxy(1).Restore())
	})
	cfg := Config{Brokers: c.way.Brokers()}
	if destination == sinktest.DestinationRefusing {
		cfg.ConfirmTimeout = 2 * time.Second
	}
	c.sink = start(t, cfg)
	return c
}

// create makes the topic of a destination's kind.
func (c *conformance) create(kind sinktest.Kind) {
	partitions, replicas, configs := 2, max(1, c.kafka.Nodes()), map[string]string(nil)
	if kind == sinktest.DestinationRefusing {
		partitions, replicas, configs = 1, min(replicas, 2), map[string]string{"min.insync.replicas": "2"}
	}
	must(c.t, c.kafka.CreateTopic(c.ctx, c.topic+topicOf[kind], partitions, replicas, configs))
}

func (c *conformance) Sink() sink.Sink { return c.sink }

func (c *conformance) Stop() error {
	c.sink.stop()
	err := <-c.sink.done
	c.sink.done <- err
	return err
}

// shows: what is full is not shown (topicOf), what refuses has too few replicas, which takes
// several brokers (TestCluster), and what is forbidden takes a broker that obeys ACLs
// (TestOwnBroker/conformance). Nothing blocks: over its quota a producer's request is stored and
// answered all the same, and it is the next one on that connection that is not read, until a time
// that no end of the quota brings nearer (TestQuota).
func shows(kind sinktest.Kind) bool {
	switch kind {
	case sinktest.Blocked, sinktest.DestinationFull, sinktest.DestinationRefusing, sinktest.DestinationForbidden:
		return false
	default:
		return true
	}
}

// Idempotent is true of the sink's producers.
func (c *conformance) Idempotent() bool { return true }

func (c *conformance) Event(kind sinktest.Kind, key string) *event.Event {
	c.n++
	ev := sinktest.NewEvent(c.n, key)
	ev.Columns = [][]byte{[]byte(c.topic + topicOf[kind])}
	switch kind {
	case sinktest.EventTooLarge:
		ev.Payload = make([]byte, 70_000)
	case sinktest.EventInvalid: // an hour is allowed
		ev.Time = time.Now().Add(48 * time.Hour)
	case sinktest.EventUndecodable:
		ev.Fault = errors.New("the id is NULL")
	default:
	}
	return ev
}

func (c *conformance) Delivered() []sinktest.Delivery {
	must(c.t, c.consumer.Drain(c.ctx)) // what is stored twice may lie behind all that is waited for
	got := c.consumer.Deliveries()
	all := make([]sinktest.Delivery, len(got))
	for i, d := range got {
		all[i] = sinktest.Delivery{Position: d.Position, ID: d.ID, Key: d.Key}
	}
	return all
}

func (c *conformance) Break(kind sinktest.Kind) { c.turn(kind, true) }
func (c *conformance) Fix(kind sinktest.Kind)   { c.turn(kind, false) }

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
			must(c.t, proxy.Restore())
		}
	case sinktest.AnswersLost:
		if broken {
			proxy.Hold(netproxy.Down)
		} else {
			c.cut(true)
			proxy.Release(netproxy.Down)
			c.cut(false)
		}
	case sinktest.DestinationMissing:
		if broken {
			must(c.t, c.kafka.DeleteTopic(c.ctx, topic))
		} else {
			c.create(kind)
		}
	case sinktest.DestinationRefusing:
		c.refuse(topic, broken)
	case sinktest.DestinationForbidden:
		if broken {
			must(c.t, c.kafka.Deny(c.ctx, topic, anybody))
		} else {
			must(c.t, c.kafka.Allow(c.ctx, topic, anybody))
		}
	default: // the fault is the event's
	}
}

// refuse takes one of the two replicas away from the topic's partition, or brings it back. Others
// confirm meanwhile: if nobody does, nobody is accused.
func (c *conformance) refuse(topic string, on bool) {
	c.t.Helper()
	if !on {
		must(c.t, c.kafka.StartNode(c.ctx, c.stopped))
		c.others.end()
		return
	}
	leader, err := c.kafka.Leader(c.ctx, topic, 0)
	must(c.t, err)
	all, _, err := c.kafka.Replicas(c.ctx, topic, 0)
	must(c.t, err)
	c.stopped = all[0] + all[1] - leader
	must(c.t, c.kafka.StopNode(c.ctx, c.stopped))
	await.Until(c.t, "one replica in sync", func() bool {
		_, inSync, err := c.kafka.Replicas(c.ctx, topic, 0)
		return err == nil && len(inSync) == 1
	})
	c.others = flow(c.t, c.sink, topicWith(c.t, c.kafka, 1, c.kafka.Nodes(), nil), 10)
}

func (c *conformance) cut(on bool) {
	if on {
		c.way.Proxy(1).Cut()
		return
	}
	must(c.t, c.way.Proxy(1).Restore())
}
