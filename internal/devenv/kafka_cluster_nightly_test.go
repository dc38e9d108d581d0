//go:build nightly

package devenv

import (
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// TestKafkaOfThree has three brokers, and a consumer that sees each record once through all that happens to them.
func TestKafkaOfThree(t *testing.T) {
	ctx := await.Context(t)
	k, err := StartKafka(ctx, KafkaOptions{Nodes: 3, Authorizer: true})
	must(t, err)
	defer func() { must(t, k.Close()) }()
	const topic = "events"
	must(t, k.CreateTopic(ctx, topic, 3, 3, map[string]string{"min.insync.replicas": "2"}))
	c, err := StartKafkaConsumer(ctx, KafkaConsumerOptions{Brokers: k.Brokers(), Topics: []string{topic}})
	must(t, err)
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
		must(t, err)
		return id
	}
	send()

	t.Run("a leader is moved", func(t *testing.T) {
		for p := range 3 {
			for range 3 {
				to := leader(p)%3 + 1
				must(t, k.MoveLeader(ctx, topic, p, to))
				if now := leader(p); now != to {
					t.Fatalf("leader is %d, want %d", now, to)
				}
				send()
			}
			must(t, k.MoveLeader(ctx, topic, p, leader(p))) // where it is
		}
		if err := k.MoveLeader(ctx, topic, 0, 4); err == nil {
			t.Fatal("a leader was moved to a node that there is not")
		}
	})

	for id := 1; id <= 3; id++ {
		must(t, k.MoveLeader(ctx, topic, id-1, id))
		must(t, k.KillNode(id))
		for p := range 3 {
			must(t, poll(ctx, 10*time.Millisecond, func() (bool, error) {
				now, err := k.Leader(ctx, topic, p)
				return now != id && now != 0, err
			}))
		}
		send()
		must(t, k.StartNode(ctx, id))
		must(t, k.WaitInSync(ctx, topic))
		send()
	}

	t.Run("a frozen broker is replaced", func(t *testing.T) {
		must(t, k.MoveLeader(ctx, topic, 0, 1))
		must(t, k.FreezeNode(1))
		must(t, poll(ctx, 10*time.Millisecond, func() (bool, error) {
			now, err := k.Leader(ctx, topic, 0)
			return now > 1, err
		}))
		must(t, k.ThawNode(1))
		must(t, k.WaitInSync(ctx, topic))
		send()
	})

	t.Run("too few in sync", func(t *testing.T) {
		must(t, k.SetTopicConfig(ctx, topic, "min.insync.replicas", "3"))
		must(t, k.StopNode(ctx, 2))
		p := slices.IndexFunc([]int{leader(0), leader(1), leader(2)}, func(id int) bool { return id == 1 || id == 3 })
		must(t, poll(ctx, 10*time.Millisecond, func() (bool, error) {
			_, inSync, err := k.Replicas(ctx, topic, p)
			return len(inSync) == 2, err
		}))
		err := client{brokers: k.running()}.produce(ctx, topic, p, protocol.Record{Key: text("k")})
		wantKafkaError(t, err, kafkago.NotEnoughReplicas)
		must(t, k.StartNode(ctx, 2))
		must(t, k.WaitInSync(ctx, topic))
		send()
	})

	t.Run("a denial holds on all", func(t *testing.T) {
		must(t, k.Deny(ctx, topic, "User:ANONYMOUS"))
		for p := range 3 {
			err := client{brokers: k.Brokers()}.produce(ctx, topic, p, protocol.Record{Key: text("k")})
			wantKafkaError(t, err, kafkago.TopicAuthorizationFailed)
		}
		must(t, k.Allow(ctx, topic, "User:ANONYMOUS"))
	})

	must(t, c.Drain(ctx))
	if v := Check(History{Committed: rows[:sent], Deliveries: c.Deliveries()}); v.Err() != nil {
		t.Fatal(v)
	}
	records, err := k.Records(ctx, topic)
	must(t, err)
	if len(records) != sent {
		t.Fatalf("%d records, want %d", len(records), sent)
	}
}
