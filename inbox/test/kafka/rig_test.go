package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/kafka"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

func TestMain(m *testing.M) { servers.Main(m, servers.ExampleDatabase, servers.ExampleTopic) }

// rig is a topic, a service of its own and a database, in which a handler writes what it has done.
type rig struct {
	t       *testing.T
	ctx     context.Context
	broker  *kafkaserver.Kafka
	topic   string
	service string
	pool    *pgxpool.Pool
	writer  *kafkago.Writer
	client  *kafkago.Client
	metrics *prometheus.Registry

	inbox inbox.Config
	kafka kafka.Config
}

func newRig(t *testing.T, partitions int) *rig {
	t.Helper()
	r := &rig{t: t, ctx: await.Context(t), broker: servers.SharedKafka(t)}
	r.topic = r.broker.Topic(t, partitions)
	r.service = "of." + r.topic
	pool, err := pgxpool.New(r.ctx, servers.SharedPostgres(t).Database(t))
	await.Must(t, err)
	t.Cleanup(pool.Close)
	r.pool = pool
	_, err = pool.Exec(r.ctx, inbox.Schema("")+"CREATE TABLE effect (n bigint GENERATED ALWAYS AS IDENTITY, id text, key text, payload text, attempt int)")
	await.Must(t, err)
	transport := &kafkago.Transport{MetadataTTL: time.Minute} // and so long may its requests take
	t.Cleanup(transport.CloseIdleConnections)
	r.writer = &kafkago.Writer{
		Addr: kafkago.TCP(r.broker.Brokers()...), Transport: transport, RequiredAcks: kafkago.RequireAll,
		BatchTimeout: time.Millisecond, Balancer: &kafkago.Murmur2Balancer{},
	}
	t.Cleanup(func() { _ = r.writer.Close() })
	r.client = &kafkago.Client{Addr: r.writer.Addr, Transport: transport}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	r.metrics = prometheus.NewRegistry()
	r.inbox = inbox.Config{
		Service: r.service, Pool: pool, Handler: effect, Levels: []time.Duration{time.Second, time.Second},
		Registerer: r.metrics, Log: log,
	}
	r.kafka = kafka.Config{Brokers: r.broker.Brokers(), Topics: []string{r.topic}, SessionTimeout: 6 * time.Second, Partitions: 1}
	return r
}

// effect writes that a message was processed.
func effect(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	_, err := tx.Exec(ctx, "INSERT INTO effect (id, key, payload, attempt) VALUES ($1, $2, $3, $4)", m.ID, m.Key, string(m.Payload), m.Attempt)
	return err
}

// consumer makes one with the configuration of the rig.
func (r *rig) consumer() *kafka.Consumer {
	r.t.Helper()
	in, err := inbox.New(r.inbox)
	await.Must(r.t, err)
	c, err := kafka.New(in, r.kafka)
	await.Must(r.t, err)
	return c
}

// run starts a consumer, and returns what stops it.
func (r *rig) run(c *kafka.Consumer) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil || ctx.Err() == nil {
			r.t.Errorf("run: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	r.t.Cleanup(stop)
	return stop
}

// committed is the time of all events: of now, because retention goes by it.
var committed = time.Now().Truncate(time.Millisecond)

// event is a message as the relay publishes it.
func event(id, key string) kafkago.Message {
	return kafkago.Message{
		Key: []byte(key), Value: fmt.Appendf(nil, `{"id": %q}`, id), Time: committed,
		Headers: []kafkago.Header{
			{Key: "id", Value: []byte(id)},
			{Key: "eventType", Value: []byte("created")},
			{Key: "aggregateType", Value: []byte("order")},
			{Key: "tenant", Value: []byte("t1")},
			{Key: "attempts", Value: []byte("one of our names")},
		},
	}
}

func (r *rig) publish(messages ...kafkago.Message) {
	r.t.Helper()
	for i := range messages {
		messages[i].Topic = r.topic
	}
	await.Must(r.t, r.writer.WriteMessages(r.ctx, messages...))
}

// write writes a message to a partition of any topic.
func (r *rig) write(topic string, partition int, m kafkago.Message) {
	r.t.Helper()
	conn, err := kafkago.DialLeader(r.ctx, "tcp", r.broker.Brokers()[0], topic, partition)
	await.Must(r.t, err)
	_, err = conn.WriteMessages(m)
	await.Must(r.t, errors.Join(err, conn.Close()))
}

// effects are the ids in the order of their effects.
func (r *rig) effects() string {
	r.t.Helper()
	var ids *string
	await.Must(r.t, r.pool.QueryRow(r.ctx, "SELECT string_agg(id, ' ' ORDER BY n) FROM effect").Scan(&ids))
	if ids == nil {
		return ""
	}
	return *ids
}

func (r *rig) wantEffects(want ...string) {
	r.t.Helper()
	await.Until(r.t, "effects of "+strings.Join(want, " "), func() bool { return len(strings.Fields(r.effects())) >= len(want) })
	if got := r.effects(); got != strings.Join(want, " ") {
		r.t.Errorf("effects: %s, want %s", got, strings.Join(want, " "))
	}
}

// records are those of a topic that were not deleted: none when it does not exist yet.
func (r *rig) records(topic string) []kafkaserver.Record {
	r.t.Helper()
	records, err := r.broker.Records(r.ctx, topic)
	if errors.Is(err, kafkago.UnknownTopicOrPartition) {
		return nil
	}
	await.Must(r.t, err)
	return records
}

func (r *rig) wantRecords(topic string, n int) []kafkaserver.Record {
	r.t.Helper()
	await.Until(r.t, fmt.Sprintf("%d records in %s", n, topic), func() bool { return len(r.records(topic)) == n })
	return r.records(topic)
}

// offset is the one that the group has committed for a partition of the topic, -1 for none: also
// while the cluster makes the topic of its first group.
func (r *rig) offset(topic string, partition int) int64 {
	r.t.Helper()
	answer, err := r.client.OffsetFetch(r.ctx, &kafkago.OffsetFetchRequest{GroupID: r.service, Topics: map[string][]int{topic: {partition}}})
	await.Must(r.t, err)
	if answer.Error != nil {
		return -1
	}
	return answer.Topics[topic][0].CommittedOffset
}

func (r *rig) wantOffset(partition int, want int64) {
	r.t.Helper()
	await.Until(r.t, fmt.Sprintf("offset %d of partition %d", want, partition), func() bool { return r.offset(r.topic, partition) == want },
		func() any { return r.offset(r.topic, partition) })
}

// metric is the sum of a counter or gauge over all of its labels that have the value.
func (r *rig) metric(name, value string) (sum float64) {
	r.t.Helper()
	families, err := r.metrics.Gather()
	await.Must(r.t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			labelled := slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetValue() == value })
			if f.GetName() == name && (value == "" || labelled) {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
