//go:build nightly

package kafka

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

func init() {
	onCluster = append(onCluster, clusterTest{"leader moved", testLeaderMoved}, clusterTest{"leader frozen", testLeaderFrozen}, clusterTest{"two killed", testTwoKilled})
}

func testLeaderMoved(t *testing.T, k *kafkaserver.Kafka) {
	topic := replicated(t, k, 1)
	r := start(t, Config{Brokers: k.Brokers()})
	f := flow(t, r, topic, 50)
	f.wait(500)
	for range 3 {
		before, err := k.Leader(await.Context(t), topic, 0)
		must(t, err)
		f.mu.Lock()
		f.longest = 0
		f.mu.Unlock()
		moved := make(chan time.Time, 1)
		go func() { moved <- elected(t, k, topic, before) }()
		t.Logf("%s: move from %d to %d", time.Now().Format("05.000"), before, before%3+1)
		must(t, k.MoveLeader(await.Context(t), topic, 0, before%3+1))
		t.Logf("%s: another leader is known", (<-moved).Format("05.000"))
		f.wait(500)
		f.mu.Lock()
		t.Logf("the longest stall was %s, up to %s", f.longest, f.at.Format("05.000"))
		f.mu.Unlock()
	}
	wantStored(t, k, topic, f.end()...)
}

// A frozen broker keeps its connections and answers nothing. Its requests are given up when others
// lead.
func testLeaderFrozen(t *testing.T, k *kafkaserver.Kafka) {
	topic := replicated(t, k, 3)
	r := start(t, Config{Brokers: k.Brokers(), ConfirmTimeout: time.Minute})
	f := flow(t, r, topic, 50)
	f.wait(500)
	before, err := k.Leader(await.Context(t), topic, 0)
	must(t, err)
	frozen := time.Now()
	must(t, k.FreezeNode(before))
	thawed := false
	defer func() {
		if !thawed {
			must(t, k.ThawNode(before))
		}
	}()
	ctx := await.Context(t)
	var moved time.Time
	await.Until(t, "another leads", func() bool {
		leader, ok := r.client.Metadata.Load().Leader(topic, 0)
		moved = time.Now()
		return ok && leader.Node != int32(before) || ctx.Err() != nil
	})
	f.wait(500)
	f.mu.Lock()
	t.Logf("another leader was known after %s, longest stall of any partition %s", moved.Sub(frozen), f.longest)
	f.mu.Unlock()
	must(t, k.ThawNode(before))
	thawed = true
	must(t, k.WaitInSync(await.Context(t), topic))
	f.wait(500)
	wantStored(t, k, topic, f.end()...)
	await.Until(t, "all is well", func() bool { up, _ := r.Up(); return up })
}

// Two of three brokers are killed under load and start again: what was under way comes again as the
// same bytes.
func testTwoKilled(t *testing.T, k *kafkaserver.Kafka) {
	topic := replicated(t, k, 6)
	r := start(t, Config{Brokers: k.Brokers()})
	f := flow(t, r, topic, 50)
	f.wait(1000)
	must(t, k.KillNode(1))
	must(t, k.KillNode(2))
	await.Until(t, "the brokers are missed", func() bool { up, why := r.Up(); return !up && why != "" })
	must(t, k.StartNode(await.Context(t), 1))
	must(t, k.StartNode(await.Context(t), 2))
	f.wait(1000)
	must(t, k.WaitInSync(await.Context(t), topic))
	wantStored(t, k, topic, f.end()...)
	await.Until(t, "all is well", func() bool { up, _ := r.Up(); return up })
}
