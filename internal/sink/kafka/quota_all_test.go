//go:build testall

package kafka

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// Over its quota the sink slows down: it is no reason to call anybody down, or to send anything twice.
func TestQuota(t *testing.T) {
	k := devenv.SharedKafka(t)
	topic := topicWith(t, k, 2, 1, nil)
	must(t, k.SetProducerQuota(await.Context(t), "slow", 20_000))
	r := start(t, Config{Brokers: k.Brokers(), ClientID: "slow"})
	f := flow(t, r, topic, 20)
	began := time.Now()
	f.wait(1000)
	if up, why := r.Up(); !up {
		t.Errorf("down: %s", why)
	}
	t.Logf("1000 events in %s", time.Since(began))
	must(t, k.SetProducerQuota(await.Context(t), "slow", 0))
	f.wait(200)
	wantStored(t, k, topic, f.end()...)
}
