//go:build nightly

package kafka

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

func init() {
	onCluster = append(onCluster, clusterTest{"leader moved", testLeaderMoved}, clusterTest{"two killed", testTwoKilled})
}

func testLeaderMoved(t *testing.T, k *kafkaserver.Kafka) {
	topic := replicated(t, k, 1)
	r := start(t, Config{Brokers: k.Brokers()})
	f := flow(t, r, topic, 50)
	f.wait(500)
	for range 3 {
		before, err := k.Leader(await.Context(t), topic, 0)
		must(t, err)
		must(t, k.MoveLeader(await.Context(t), topic, 0, before%3+1))
		f.wait(500)
	}
	wantStored(t, k, topic, f.end()...)
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
