//go:build testall

package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/plain"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
)

// While the brokers are away the consumer waits and says so. Then it goes on where it was.
func TestBrokerAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	_, way := servers.SharedKafkaWay(t)
	r.kafka.Brokers = way.Brokers()
	r.publish(event("1", "a"))
	defer r.run(r.consumer())()
	r.wantEffects("1")
	up := func(want float64) func() bool {
		return func() bool { return r.metric("cdc_relay_inbox_broker_up", "") == want }
	}
	await.Until(t, "the broker to be up", up(1))
	way.Proxies[0].Cut()
	r.publish(event("2", "a"))
	await.Until(t, "the broker to be away", up(0))
	await.Must(t, way.Proxies[0].Restore())
	r.wantEffects("1", "2")
	await.Until(t, "the broker to be up again", up(1))
}

// A message that failed and does not fit into a topic of the service stops its partition, and is
// processed once there is room.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.inbox.Handler = failUntilRetried
	large := event("large", "a")
	large.Value = []byte(`"` + strings.Repeat("x", 5000) + `"`)
	r.kafka.MaxMessageBytes = 4000
	r.publish(large, event("2", "a"))
	stop := r.run(r.consumer())
	await.Until(t, "the failed publish", func() bool { return r.metric("cdc_relay_inbox_messages_total", "failed") > 0 })
	if got := r.effects(); got != "" {
		t.Errorf("effects %s: the message was passed", got)
	}
	stop()
	r.kafka.MaxMessageBytes = 10_000
	for _, topic := range []string{".dlq", ".return", ".retry.1s"} {
		await.Must(t, r.broker.SetTopicConfig(r.ctx, r.service+topic, "max.message.bytes", "10000"))
	}
	defer r.run(r.consumer())()
	await.Until(t, "both effects", func() bool { return len(strings.Fields(r.effects())) == 2 })
}

// A login that is refused ends a consumer that was never connected.
func TestRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.kafka.SASL = plain.Mechanism{Username: "u", Password: "p"} // the listener knows no login
	err := r.consumer().Run(r.ctx)
	if !errors.Is(err, kafkago.IllegalSASLState) {
		t.Errorf("run: %v", err)
	}
}

// failUntilRetried is a handler that fails at the first attempt.
func failUntilRetried(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	if m.Attempt == 1 && m.ID == "large" {
		return errors.New("not yet")
	}
	return effect(ctx, tx, m)
}

// TestTwoNodes is on one cluster.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	k, err := kafkaserver.Start(await.Context(t), kafkaserver.Options{Nodes: 2, Settings: map[string]string{"default.replication.factor": "1"}})
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, k.Close()) })
	t.Run("durability", func(t *testing.T) { testDurability(t, k) })
	t.Run("coordinator moves", func(t *testing.T) { testCoordinatorMoves(t, k) })
}

// The topics of the service are as safe as those that its messages come from.
func testDurability(t *testing.T, k *kafkaserver.Kafka) {
	r := newRig(t, 1)
	await.Must(t, k.CreateTopic(r.ctx, r.topic, 1, 2, map[string]string{"min.insync.replicas": "2"}))
	r.kafka.Brokers = k.Brokers()
	await.Must(t, r.consumer().Declare(r.ctx))
	for _, topic := range []string{".dlq", ".return", ".retry.1s"} {
		var replicas []int
		var err error
		var answer *kafkago.DescribeConfigsResponse
		await.Until(t, "the node that is asked to know "+topic, func() bool {
			if replicas, _, err = k.Replicas(r.ctx, r.service+topic, 0); err != nil {
				return false
			}
			answer, err = (&kafkago.Client{Addr: kafkago.TCP(k.Brokers()...), Transport: r.writer.Transport}).DescribeConfigs(r.ctx, &kafkago.DescribeConfigsRequest{
				Resources: []kafkago.DescribeConfigRequestResource{{
					ResourceType: kafkago.ResourceTypeTopic, ResourceName: r.service + topic, ConfigNames: []string{"min.insync.replicas"},
				}},
			})
			return err == nil && len(answer.Resources) == 1 && len(answer.Resources[0].ConfigEntries) == 1
		}, func() any { return err })
		if inSync := answer.Resources[0].ConfigEntries[0].ConfigValue; len(replicas) != 2 || inSync != "2" {
			t.Errorf("%s has %d replicas and min.insync.replicas %s, want 2 and 2", topic, len(replicas), inSync)
		}
	}
}

// The group's coordinator moves, as when brokers are restarted one after the other: the consumer
// goes on with the partitions that it has, and its offsets are committed.
func testCoordinatorMoves(t *testing.T, k *kafkaserver.Kafka) {
	r := newRig(t, 1)
	await.Must(t, k.CreateTopic(r.ctx, r.topic, 1, 2, nil))
	r.broker, r.kafka.Brokers = k, k.Brokers()
	r.writer.Addr = kafkago.TCP(k.Brokers()...)
	r.client.Addr = r.writer.Addr
	var assigned, others atomic.Int32
	r.inbox.Log = slog.New(logged(func(line string) {
		switch line {
		case "partitions assigned":
			assigned.Add(1)
		case "the group is joined again":
			others.Add(1)
		}
	}))
	r.publish(event("0", "a"))
	defer r.run(r.consumer())()
	want := []string{"0"}
	r.wantEffects(want...)
	r.wantOffset(0, 1)
	before := assigned.Load()
	for n := range int64(2) {
		now, err := k.Leader(r.ctx, "__consumer_offsets", 0)
		await.Must(t, err)
		await.Must(t, k.MoveLeader(r.ctx, "__consumer_offsets", 0, 3-now))
		id := fmt.Sprint(n + 1)
		r.publish(event(id, "a"))
		want = append(want, id)
		r.wantEffects(want...)
		r.wantOffset(0, n+2)
	}
	if n, m := assigned.Load()-before, others.Load(); n+m > 0 {
		t.Errorf("the partitions were given to the consumer %d times more, it has joined again %d times", n, m)
	}
}

// logged is a log whose lines' texts are given to a function.
type logged func(line string)

func (logged) Enabled(context.Context, slog.Level) bool { return true }
func (l logged) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l logged) WithGroup(string) slog.Handler          { return l }
func (l logged) Handle(_ context.Context, r slog.Record) error {
	l(r.Message)
	return nil
}

// A broker that is frozen while a failed message is written does not hold up what follows: a stop,
// or the next session.
func TestFrozen(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	_, way := servers.SharedKafkaWay(t)
	k := kafkaclient.NewPool(kafkaclient.DialOptions{}, way.Brokers()...)
	m := event("1", "a")
	m.Topic = r.topic
	await.Must(t, k.Write(r.ctx, &m))
	way.Proxies[0].Hold(netproxy.Down)
	ctx, cancel := context.WithCancel(r.ctx)
	written := make(chan error, 1)
	go func() { written <- k.Write(ctx, &m) }()
	r.wantRecords(r.topic, 2) // it is there, and the answer is kept back
	cancel()
	if err := <-written; !errors.Is(err, context.Canceled) {
		t.Errorf("write: %v", err)
	}
	closed := make(chan struct{})
	go func() {
		k.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(kafkaclient.RequestTimeout / 2):
		t.Error("Close waits for the broker")
	}
}

// A batch that takes more memory than is given to it stops its partition, however small it is as it
// was sent, and is read once there is more. Little is allocated for it.
func TestBatchTooLarge(t *testing.T) {
	r := newRig(t, 1)
	grows := event("2", "a")
	grows.Value = make([]byte, 80<<20)
	r.writer.Compression, r.writer.BatchBytes = kafkago.Gzip, 1<<30
	r.publish(event("1", "a"))
	r.publish(grows)
	grows.Value = nil
	read := func(memory int) ([]kafkago.Message, uint64, error) {
		link := kafkaclient.NewPool(kafkaclient.DialOptions{Limit: memory}, r.kafka.Brokers...)
		defer link.Close()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		messages, _, err := link.Fetch(r.ctx, r.topic, 0, 1, 1<<20)
		runtime.ReadMemStats(&after)
		return messages, after.TotalAlloc - before.TotalAlloc, err
	}
	messages, allocated, err := read(1)
	if err == nil || !strings.Contains(err.Error(), "offset 1 of "+r.topic+"-0 is too large") || allocated > 50<<20 {
		t.Errorf("%d messages, %d bytes allocated, %v", len(messages), allocated, err)
	}
	if messages, _, err = read(300 << 20); err != nil || len(messages) != 1 || len(messages[0].Value) != 80<<20 {
		t.Errorf("with more memory: %d messages, %v", len(messages), err)
	}
	link := kafkaclient.NewPool(kafkaclient.DialOptions{}, r.kafka.Brokers...)
	defer link.Close()
	if messages, next, err := link.Fetch(r.ctx, r.topic, 0, 0, 1<<20); err != nil || len(messages) != 1 || next != 1 {
		t.Errorf("the batch before it: %d messages, next %d, %v", len(messages), next, err)
	}
}
