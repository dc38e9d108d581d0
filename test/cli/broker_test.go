package cli

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

// brokered is a rig whose events go to a virtual host of the shared broker, where a consumer takes
// them.
type brokered struct {
	*rig
	broker   *rabbitserver.Rabbit
	vhost    string
	consumer *consumers.Consumer
}

func withBroker(t *testing.T) *brokered {
	t.Helper()
	b := &brokered{rig: newRig(t), broker: servers.SharedRabbitMQ(t)}
	b.vhost = b.broker.VHost(t)
	var err error
	b.consumer, err = consumers.StartConsumer(await.Context(t), consumers.ConsumerOptions{URL: b.vhost})
	must(t, err)
	t.Cleanup(b.consumer.Close)
	b.sink = "  rabbitmq: {url: '" + b.vhost + "'}"
	return b
}

// A PostgreSQL whose port does not answer is waited for: healthy, not ready, one line in the log;
// the relay begins when it is there.
func TestWaitsForPostgreSQL(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := proxy(t, servers.SharedPostgres(t).Addr())
	p.Cut()
	r.db = through(r.db, p.Addr())
	relay := runner.Start(t, r.binary, r.yaml())
	state(t, relay, "waiting for postgres", "connection refused")
	says(t, relay, "/healthz", 200)
	says(t, relay, "/readyz", 503, "waiting for postgres", "connection refused")
	must(t, p.Restore())
	must(t, relay.WaitReady(await.Context(t)))
	state(t, relay, "idle")
	if n := strings.Count(relay.Log(), "waiting for PostgreSQL"); n != 1 {
		t.Errorf("%d lines about the server, want 1: %s", n, relay.Log())
	}
	r.insert(1)
	eventually(t, func() string { return wantLines(relay, 1) })
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// So is a broker; what is committed meanwhile arrives when it comes.
func TestWaitsForTheBroker(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	p := proxy(t, b.broker.Addr())
	p.Cut()
	b.sink = "  rabbitmq: {url: '" + through(b.vhost, p.Addr()) + "'}"
	relay := runner.Start(t, b.binary, b.yaml())
	state(t, relay, "broker down", "connection refused")
	b.insert(2)
	says(t, relay, "/healthz", 200)
	says(t, relay, "/readyz", 503, "broker down", "connection refused")
	says(t, relay, "/metrics", 200, "\noutbox_sink_up 0\n", "\noutbox_backlog 2\n")
	must(t, p.Restore())
	must(t, b.consumer.WaitCount(await.Context(t), 2))
	must(t, relay.WaitReady(await.Context(t)))
	if n := strings.Count(relay.Log(), "broker unavailable"); n != 1 {
		t.Errorf("%d lines about the broker, want 1: %s", n, relay.Log())
	}
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
