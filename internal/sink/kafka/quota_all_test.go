//go:build testall

package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
)

// Over its quota the sink slows down: it is no reason to call anybody down, or to send anything
// twice.
func TestQuota(t *testing.T) {
	t.Parallel()
	k := servers.SharedKafka(t)
	topic := topicWith(t, k, 2, 1, nil)
	client := "slow-" + topic
	must(t, k.SetProducerQuota(await.Context(t), client, 20_000))
	t.Cleanup(func() { must(t, k.SetProducerQuota(context.Background(), client, 0)) })
	r := start(t, Config{Brokers: k.Brokers(), DialOptions: kafkaclient.DialOptions{ClientID: client}})
	f := flow(t, r, topic, 20)
	began := time.Now()
	f.wait(1000)
	if up, why := r.Up(); !up {
		t.Errorf("down: %s", why)
	}
	t.Logf("1000 events in %s", time.Since(began))
	must(t, k.SetProducerQuota(await.Context(t), client, 0))
	f.wait(200)
	wantStored(t, k, topic, f.end()...)
}
