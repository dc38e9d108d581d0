//go:build testall

package kafka

import (
	"os"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
)

// Kafka's storage is taken back to a snapshot under a relay that lives; the cluster's id stays the
// same. The producer id of that relay is given a second time, to one that starts now. Under its old
// id the first relay's next batch would look like one of the second's last five: acknowledged, and
// stored nowhere.
func testTakenBackToASnapshot(t *testing.T, k *kafkaserver.Kafka) {
	ctx := await.Context(t)
	topic := topicWith(t, k, 1, 1, nil)
	snapshot := t.TempDir()
	must(t, k.StopNode(ctx, 1))
	must(t, os.CopyFS(snapshot, os.DirFS(k.Data(1))))
	must(t, k.StartNode(ctx, 1))

	a := start(t, Config{Brokers: k.Brokers()})
	wantConfirmed(t, a.send(newEvent(topic, "a")))
	former := idOf(a)

	must(t, k.StopNode(ctx, 1))
	must(t, os.RemoveAll(k.Data(1)))
	must(t, os.CopyFS(k.Data(1), os.DirFS(snapshot)))
	must(t, k.StartNode(ctx, 1))

	b := start(t, Config{Brokers: k.Brokers()})
	all := events(3, topic)
	for _, ev := range all {
		wantConfirmed(t, b.send(ev))
	}
	if id := idOf(b); id != former {
		t.Errorf("the second relay has producer id %d, not %d again", id, former)
	}
	ev := newEvent(topic, "a")
	wantConfirmed(t, a.send(ev))
	wantStored(t, k, topic, append(all, ev)...)
}

// idOf is the producer id of a relay that has sent to one partition.
func idOf(r *running) int64 {
	for _, l := range r.lanes {
		for _, route := range l.routes {
			return route.producers[0].id
		}
	}
	return kafkaclient.None
}
