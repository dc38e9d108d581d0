package kafka_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/kafka"
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

// A mistake in the configuration is named.
func TestConfig(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://localhost/") // nobody connects
	await.Must(t, err)
	defer pool.Close()
	given := kafka.Config{Brokers: []string{"localhost:9092"}, Topics: []string{"orders"}}
	for _, tc := range []struct {
		change func(*kafka.Config)
		want   string
	}{
		{func(cfg *kafka.Config) { cfg.Brokers = nil }, "Brokers is empty"},
		{func(cfg *kafka.Config) { cfg.Topics = nil }, "Topics is empty"},
		{func(cfg *kafka.Config) { cfg.Topics = []string{"a b"} }, `"a b" is not the name of a topic`},
		{func(cfg *kafka.Config) { cfg.Topics = []string{"a", "a"} }, "the topic a is named twice"},
		{func(cfg *kafka.Config) { cfg.Topics = []string{"a", "mailer.dlq"} }, "mailer.dlq is a topic of the service itself"},
		{func(cfg *kafka.Config) { cfg.Topics = []string{"mailer.retry.5m"} }, "a topic of the service itself"},
		{func(cfg *kafka.Config) { cfg.Topics = []string{"mailer.return"} }, "a topic of the service itself"},
		{func(cfg *kafka.Config) { cfg.Brokers = []string{"kafka://a:9092"} }, `the broker "kafka://a:9092" is not one host:port`},
		{func(cfg *kafka.Config) { cfg.Brokers = []string{"b:9092", "a:9092,b:9092"} }, `the broker "a:9092,b:9092" is not one host:port`},
		{func(cfg *kafka.Config) { cfg.Brokers = []string{"localhost"} }, `the broker "localhost" is not one host:port`},
		{func(cfg *kafka.Config) { cfg.MaxInFlight = -1 }, "is negative"},
		{func(cfg *kafka.Config) { cfg.SessionTimeout = time.Millisecond }, "SessionTimeout is 1ms"},
	} {
		in, err := inbox.New(inbox.Config{Service: "mailer", Pool: pool, Handler: effect, Registerer: prometheus.NewRegistry()})
		await.Must(t, err)
		cfg := given
		tc.change(&cfg)
		if _, err := kafka.New(in, cfg); err == nil || !strings.HasPrefix(err.Error(), "kafka: ") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
	if _, err := kafka.New(nil, given); err == nil {
		t.Error("without an inbox there is no error")
	}
}
