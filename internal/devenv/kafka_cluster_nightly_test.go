//go:build nightly

package devenv

import (
	"slices"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// TestKafkaOfThree has three brokers, and a consumer that sees each record once through all that happens to them.
func TestKafkaOfThree(t *testing.T) {
	ctx := await.Context(t)
	k, err := StartKafka(ctx, KafkaOptions{Nodes: 3, Authorizer: true})
	await.Must(t, err)
	defer func() { await.Must(t, k.Close()) }()
	const topic = "events"
	await.Must(t, k.CreateTopic(ctx, topic, 3, 3, map[string]string{"min.insync.replicas": "2"}))
	c, err := StartKafkaConsumer(ctx, KafkaConsumerOptions{Brokers: k.Brokers(), Topics: []string{topic}})
	await.Must(t, err)
	defer c.Close()

	rows := numberedRows(1000)
	sent := 0
	// send writes ten rows to each partition, a key to one partition only, at the leader of now.
	send := func() {
		t.Helper()
		for p := range 3 {
			part := slices.DeleteFunc(slices.Clone(rows[sent:sent+30]), func(r Row) bool { return int(r.Key[1]-'0')%3 != p })
			produceRows(t, k.running(), topic, p, part...)
		}
		sent += 30
	}
	leader := func(p int) int {
		t.Helper()
		id, err := k.Leader(ctx, topic, p)
		await.Must(t, err)
		return id
	}
	send()

	t.Run("a leader is moved", func(t *testing.T) {
		for p := range 3 {
			for range 3 {
				to := leader(p)%3 + 1
				await.Must(t, k.MoveLeader(ctx, topic, p, to))
				if now := leader(p); now != to {
					t.Fatalf("leader is %d, want %d", now, to)
				}
				send()
			}
			await.Must(t, k.MoveLeader(ctx, topic, p, leader(p))) // where it is
		}
		if err := k.MoveLeader(ctx, topic, 0, 4); err == nil {
			t.Fatal("a leader was moved to a node that there is not")
		}
	})

	for id := 1; id <= 3; id++ {
		await.Must(t, k.MoveLeader(ctx, topic, id-1, id))
		await.Must(t, k.KillNode(id))
		for p := range 3 {
			await.Must(t, poll(ctx, 10*time.Millisecond, func() (bool, error) {
				now, err := k.Leader(ctx, topic, p)
				return now != id && now != 0, err
			}))
		}
		send()
		await.Must(t, k.StartNode(ctx, id))
		await.Must(t, k.WaitInSync(ctx, topic))
		send()
	}

	t.Run("a frozen broker is replaced", func(t *testing.T) {
		await.Must(t, k.MoveLeader(ctx, topic, 0, 1))
		await.Must(t, k.FreezeNode(1))
		await.Must(t, poll(ctx, 10*time.Millisecond, func() (bool, error) {
			now, err := k.Leader(ctx, topic, 0)
			return now > 1, err
		}))
		await.Must(t, k.ThawNode(1))
		await.Must(t, k.WaitInSync(ctx, topic))
		send()
	})

	t.Run("too few in sync", func(t *testing.T) {
		await.Must(t, k.SetTopicConfig(ctx, topic, "min.insync.replicas", "3"))
		await.Must(t, k.StopNode(ctx, 2))
		p := slices.IndexFunc([]int{leader(0), leader(1), leader(2)}, func(id int) bool { return id == 1 || id == 3 })
		await.Must(t, poll(ctx, 10*time.Millisecond, func() (bool, error) {
			_, inSync, err := k.Replicas(ctx, topic, p)
			return len(inSync) == 2, err
		}))
		err := client{brokers: k.running()}.produce(ctx, topic, p, protocol.Record{Key: text("k")})
		wantKafkaError(t, err, kafkago.NotEnoughReplicas)
		await.Must(t, k.StartNode(ctx, 2))
		await.Must(t, k.WaitInSync(ctx, topic))
		send()
	})

	t.Run("a denial holds on all", func(t *testing.T) {
		await.Must(t, k.Deny(ctx, topic, "User:ANONYMOUS"))
		for p := range 3 {
			err := client{brokers: k.Brokers()}.produce(ctx, topic, p, protocol.Record{Key: text("k")})
			wantKafkaError(t, err, kafkago.TopicAuthorizationFailed)
		}
		await.Must(t, k.Allow(ctx, topic, "User:ANONYMOUS"))
	})

	await.Must(t, c.Drain(ctx))
	if v := Check(History{Committed: rows[:sent], Deliveries: c.Deliveries()}); v.Err() != nil {
		t.Fatal(v)
	}
	records, err := k.Records(ctx, topic)
	await.Must(t, err)
	if len(records) != sent {
		t.Fatalf("%d records, want %d", len(records), sent)
	}
}
