package kafka_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// Topics are made once. A setting that could lose messages is refused, by Run as well, and named.
func TestTopology(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c := r.consumer()
	for range 2 {
		await.Must(t, c.Declare(r.ctx))
	}
	topics, err := r.broker.Topics(r.ctx)
	await.Must(t, err)
	found := 0
	for _, topic := range topics {
		if strings.HasPrefix(topic, r.service+".") {
			found++
		}
	}
	if found != 3 {
		t.Errorf("topics of the service: %d of %v, want .dlq, .return and .retry.1s", found, topics)
	}
	more := *r
	more.kafka.Partitions, more.kafka.ReplicationFactor, more.inbox.Registerer = 2, 2, prometheus.NewRegistry()
	err = more.consumer().Declare(r.ctx)
	for _, less := range []string{".dlq: the number of partitions is 1, want 2", ".retry.1s: the replication factor is 1, want 2"} {
		if err == nil || !strings.Contains(err.Error(), r.service+less) {
			t.Errorf("declare with more replicas: %v\nwant %s", err, less)
		}
	}
	await.Must(t, r.broker.SetTopicConfig(r.ctx, r.service+".retry.1s", "retention.ms", "60000"))
	await.Must(t, r.broker.SetTopicConfig(r.ctx, r.service+".dlq", "cleanup.policy", "compact"))
	await.Must(t, r.broker.SetTopicConfig(r.ctx, r.service+".dlq", "max.message.bytes", "1000000"))
	want := `the broker has topics of the service otherwise than they must be:
  SERVICE.dlq: cleanup.policy is compact, want delete
  SERVICE.dlq: max.message.bytes is 1000000, want 8388608
  SERVICE.retry.1s: retention.ms is 60000, want -1
set them with kafka-configs.sh --alter --entity-type topics, or change Config`
	want = strings.ReplaceAll(want, "SERVICE", r.service)
	if err := c.Declare(r.ctx); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("declare: %v\nwant %s", err, want)
	}
	if err := c.Run(r.ctx); err == nil || err.Error() != want {
		t.Errorf("run: %v\nwant %s", err, want)
	}
}

// A topic from which the broker removes messages that were not processed is warned of.
func TestCompacted(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	var log strings.Builder
	r.inbox.Log = slog.New(slog.NewTextHandler(&log, nil))
	c := r.consumer()
	warned := func() bool {
		await.Must(t, c.Declare(r.ctx))
		return strings.Contains(log.String(), "the topic is compacted")
	}
	if warned() {
		t.Errorf("a topic with the broker's default policy: %s", log.String())
	}
	await.Must(t, r.broker.SetTopicConfig(r.ctx, r.topic, "cleanup.policy", "compact,delete"))
	await.Until(t, "the warning", warned)
}
