package cli

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// brokered is a rig whose events go to a virtual host of the shared broker, where a consumer takes them.
type brokered struct {
	*rig
	broker   *devenv.Rabbit
	vhost    string
	consumer *devenv.Consumer
}

func withBroker(t *testing.T) *brokered {
	t.Helper()
	b := &brokered{rig: newRig(t), broker: devenv.SharedRabbitMQ(t)}
	b.vhost = b.broker.VHost(t)
	var err error
	b.consumer, err = devenv.StartConsumer(within(t, bound), devenv.ConsumerOptions{URL: b.vhost})
	must(t, err)
	t.Cleanup(b.consumer.Close)
	b.sink = "  rabbitmq: {url: '" + b.vhost + "'}"
	return b
}

// A PostgreSQL whose port does not answer is waited for: healthy, not ready, one line in the log; the relay begins when
// it is there.
func TestWaitsForPostgreSQL(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := proxy(t, devenv.SharedPostgres(t).Addr())
	p.Cut()
	r.db = through(r.db, p.Addr())
	relay := devenv.StartRelay(t, r.binary, r.yaml())
	state(t, relay, "waiting for postgres", "connection refused")
	eventually(t, func() string { return answers(t, relay, "/healthz", 200) })
	eventually(t, func() string { return answers(t, relay, "/readyz", 503, "waiting for postgres", "connection refused") })
	must(t, p.Mend())
	must(t, relay.WaitReady(within(t, bound)))
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
	relay := devenv.StartRelay(t, b.binary, b.yaml())
	state(t, relay, "broker down", "connection refused")
	b.insert(2)
	eventually(t, func() string { return answers(t, relay, "/healthz", 200) })
	eventually(t, func() string { return answers(t, relay, "/readyz", 503, "broker down", "connection refused") })
	eventually(t, func() string {
		return answers(t, relay, "/metrics", 200, "\noutbox_sink_up 0\n", "\noutbox_backlog 2\n")
	})
	must(t, p.Mend())
	must(t, b.consumer.WaitCount(within(t, bound), 2))
	must(t, relay.WaitReady(within(t, bound)))
	if n := strings.Count(relay.Log(), "broker unavailable"); n != 1 {
		t.Errorf("%d lines about the broker, want 1: %s", n, relay.Log())
	}
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// An exchange that does not exist holds the event: status, readiness and one log line name it with the broker's words, the
// relay does not end, and goes on without a restart when the exchange is there.
func TestUnknownExchange(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	b.sink = "  rabbitmq: {url: '" + b.vhost + "', exchange: later}"
	relay := b.start()
	b.insert(1)
	id := ask[string](b.rig, `SELECT id::text FROM outbox`)
	s := state(t, relay, "held")
	if s.HeldTotal != 1 || len(s.Held) != 1 {
		t.Fatalf("held is %+v", s)
	}
	h := s.Held[0]
	if h.ID != id || h.Destination != `exchange "later"` || h.Class != "destination" || h.Reason != "no_exchange" || !strings.Contains(h.Words, "404 NOT_FOUND - no exchange 'later'") {
		t.Errorf("held is %+v", h)
	}
	if why := answers(t, relay, "/readyz", 200, `"ready":true`, `"held_total":1`, id, "no exchange 'later'"); why != "" {
		t.Error(why)
	}
	if why := answers(t, relay, "/api/v1/status", 200, `"paused":[{"destination":"exchange \"later\"","reason":"no_exchange","words":"404`, `"paused_total":1`); why != "" {
		t.Error(why)
	}
	if n := scrape(t, relay).values["outbox_destinations_paused"]; n != 1 {
		t.Errorf("outbox_destinations_paused is %g", n)
	}
	for _, words := range []string{"paused ", "1 destination; ", "held ", id, "404 NOT_FOUND", "1 event"} {
		if out := b.ok("status", "--admin", relay.Admin()); !strings.Contains(out, words) {
			t.Errorf("status does not say %q: %s", words, out)
		}
	}
	second, err := devenv.StartConsumer(within(t, bound), devenv.ConsumerOptions{URL: b.vhost, Exchange: "later", Queue: "later"})
	must(t, err)
	t.Cleanup(second.Close)
	must(t, second.WaitCount(within(t, bound), 1))
	eventually(t, func() string { return answers(t, relay, "/readyz", 200, `"held_total":0`) })
	if why := answers(t, relay, "/api/v1/status", 200, `"paused":[],"paused_total":0`); why != "" {
		t.Error(why)
	}
	if n := strings.Count(relay.Log(), "event rejected"); n != 1 || !strings.Contains(relay.Log(), id) {
		t.Errorf("%d lines about the event, want 1 with its id: %s", n, relay.Log())
	}
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// declare: true makes the exchange; what no queue takes is still held, by name.
func TestDeclaredExchange(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	b.sink = "  rabbitmq: {url: '" + b.vhost + "', exchange: made, declare: true}"
	relay := b.start()
	b.insert(1)
	s := state(t, relay, "held")
	if h := s.Held[0]; h.Reason != "unroutable" || h.Destination != `exchange "made", routing key "order.created"` {
		t.Errorf("held is %+v", h)
	}
	consumer, err := devenv.StartConsumer(within(t, bound), devenv.ConsumerOptions{URL: b.vhost, Exchange: "made", Queue: "made"})
	must(t, err)
	t.Cleanup(consumer.Close)
	must(t, consumer.WaitCount(within(t, bound), 1))
	relay.Stop(t)
}

// Two relays of one slot: one leads, the other stands by, ready to; it takes over when the leader is killed.
func TestStandby(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	leader := b.start()
	standby := devenv.StartRelay(t, b.binary, b.yaml())
	s := state(t, standby, "standby", "held by cdc-relay/"+b.slot)
	if s.Role != "standby" {
		t.Errorf("its role is %q", s.Role)
	}
	for _, why := range []string{
		answers(t, standby, "/readyz", 200, `"role":"standby"`),
		answers(t, standby, "/readyz?role=leader", 503, "standby: slot is held by"),
		answers(t, standby, "/healthz", 200),
		answers(t, leader, "/readyz?role=leader", 200, `"role":"leader"`),
		answers(t, leader, "/readyz?role=follower", 400, "role is leader"),
		answers(t, standby, "/metrics", 200, "\noutbox_leader 0\n", "\noutbox_stream_up 0\n"),
		answers(t, leader, "/metrics", 200, "\noutbox_leader 1\n", "\noutbox_stream_up 1\n"),
	} {
		if why != "" {
			t.Error(why)
		}
	}
	if out := b.ok("status", "--admin", standby.Admin()); !strings.Contains(out, "state      standby: slot is held by") {
		t.Errorf("status says %s", out)
	}
	b.insert(1)
	must(t, b.consumer.WaitCount(within(t, bound), 1))
	must(t, leader.Kill())
	eventually(t, func() string { return answers(t, standby, "/readyz?role=leader", 200) })
	b.insert(1)
	must(t, b.consumer.WaitCount(within(t, bound), 2))
	if code := standby.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
