// Kafka as the place of a stand.

package stand

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// Kafka is a stand's topics: those of one prefix, the rest of whose name is the aggregate. The
// workload's is "order".
type Kafka struct {
	Cluster *kafkaserver.Kafka
	Prefix  string
	// Brokers are the addresses that the relay is given. Set before Start.
	Brokers []string
	// Template is that of the topics; "" for the prefix and the aggregate. Set before Start.
	Template string

	t testing.TB
}

// Topics says how a stand's topic for orders is made.
type Topics struct {
	Partitions int // 3
	Replicas   int // 1
	Configs    map[string]string
	None       bool     // it is not made
	More       []string // aggregates whose topics are read, too, and not made
}

// SharedKafka is the one that all tests of the process use that neither stop nor reconfigure it.
func SharedKafka(t testing.TB) Place {
	t.Helper()
	return SharedKafkaWith(t, Topics{})
}

// SharedKafkaWith is SharedKafka with other topics.
func SharedKafkaWith(t testing.TB, topics Topics) Place {
	t.Helper()
	cluster, way := servers.SharedKafkaWay(t)
	return kafka{cluster, way, topics}
}

// OwnKafka starts a cluster that only this test uses, until it ends.
func OwnKafka(t testing.TB, opt kafkaserver.Options) *kafkaserver.Kafka {
	t.Helper()
	cluster, err := kafkaserver.Start(await.Context(t), opt)
	await.Must(t, err)
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// OnKafka makes places on a cluster: each stand has topics of its own, and goes to the brokers
// themselves.
func OnKafka(cluster *kafkaserver.Kafka, topics Topics) Server { return kafka{cluster, nil, topics} }

type kafka struct {
	cluster *kafkaserver.Kafka
	way     *kafkaserver.Way // nil: there is none
	topics  Topics
}

func (k kafka) open(s *Stand) {
	s.T.Helper()
	s.Kafka = &Kafka{Cluster: k.cluster, Prefix: fmt.Sprintf("fault.%d", time.Now().UnixNano()), Brokers: k.cluster.Brokers(), t: s.T}
	if k.way != nil {
		s.Broker, s.Kafka.Brokers = k.way.Proxy(1), k.way.Brokers()
	}
	topic := s.Kafka.Topic("order")
	if !k.topics.None {
		s.Must(k.cluster.CreateTopic(s.Context(), topic, cmp.Or(k.topics.Partitions, 3), cmp.Or(k.topics.Replicas, 1), k.topics.Configs))
	}
	read := []string{topic}
	for _, aggregate := range k.topics.More {
		read = append(read, s.Kafka.Topic(aggregate))
	}
	consumer, err := consumers.StartKafkaConsumer(s.Context(), consumers.KafkaConsumerOptions{Brokers: k.cluster.Brokers(), Topics: read})
	s.Must(err)
	s.Consumer = consumer
}

func (k kafka) sink(s *Stand) string {
	topic := fmt.Sprintf(", topic: '%s'", cmp.Or(s.Kafka.Template, s.Kafka.Prefix+".{aggregate}"))
	if s.Compat != "" {
		topic = ""
	}
	return fmt.Sprintf("kafka: {brokers: ['%s']%s%s}", strings.Join(s.Kafka.Brokers, "','"), topic, more(s.Sink))
}

func (k kafka) Start(ctx context.Context) error { return k.cluster.StartNode(ctx, 1) }
func (k kafka) Kill() error                     { return k.cluster.KillNode(1) }

// Topic is where the events of an aggregate go.
func (k *Kafka) Topic(aggregate string) string { return k.Prefix + "." + aggregate }

// Records are what the topic of an aggregate holds, by partition and offset.
func (k *Kafka) Records(aggregate string) []kafkaserver.Record {
	k.t.Helper()
	records, err := k.Cluster.Records(context.Background(), k.Topic(aggregate))
	await.Must(k.t, err)
	return records
}

// Ends are the ends of the logs of an aggregate's topic, by partition.
func (k *Kafka) Ends(aggregate string) map[int]int64 {
	k.t.Helper()
	ends, err := k.Cluster.EndOffsets(context.Background(), k.Topic(aggregate))
	await.Must(k.t, err)
	return ends
}
