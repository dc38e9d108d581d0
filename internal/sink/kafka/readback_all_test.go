//go:build testall

package kafka

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// TestReadBackWantsAConfirm: a record that consumers see, and that too few replicas have, is not
// taken for stored. It is sent, and waits for the replicas.
func TestReadBackWantsAConfirm(t *testing.T) {
	t.Parallel()
	k, err := kafkaserver.Start(await.Context(t), kafkaserver.Options{Nodes: 3})
	must(t, err)
	t.Cleanup(func() { must(t, k.Close()) })
	topic := topicWith(t, k, 1, 3, map[string]string{"min.insync.replicas": "3"})
	ev := repeated(1, topic)[0]
	must(t, k.WaitInSync(await.Context(t), topic))
	must(t, k.StopNode(await.Context(t), 3))
	await.Until(t, "the replica to be missed", func() bool {
		_, inSync, err := k.Replicas(await.Context(t), topic, 0)
		return err == nil && len(inSync) == 2
	})
	storeUnconfirmed(t, k, topic, ev)
	next := nextTerm(t, k)
	confirmed := make(chan error, 1)
	go func() {
		_, err := next.try(await.Context(t), ev)
		confirmed <- err
	}()
	await.Until(t, "the reading to be given up", func() bool { return next.states.stateOf(topic, 0).tail.term.Load() == 1 })
	if n := next.readBack.found.Load(); n != 0 {
		t.Errorf("%d events are taken for stored", n)
	}
	must(t, k.StartNode(await.Context(t), 3))
	must(t, <-confirmed)
	wantRecords(t, k, topic, 2)
}
