package cli

import (
	"fmt"
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
	eventually(t, func() string { return answers(t, relay, "/healthz", 200) })
	eventually(t, func() string { return answers(t, relay, "/readyz", 503, "waiting for postgres", "connection refused") })
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
	eventually(t, func() string { return answers(t, relay, "/healthz", 200) })
	eventually(t, func() string { return answers(t, relay, "/readyz", 503, "broker down", "connection refused") })
	eventually(t, func() string {
		return answers(t, relay, "/metrics", 200, "\noutbox_sink_up 0\n", "\noutbox_backlog 2\n")
	})
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

// differs names a metric that is not as wanted; "" for none.
func differs(got, want map[string]float64) string {
	for name, value := range want {
		if got[name] != value {
			return fmt.Sprintf("%s is %g, want %g", name, got[name], value)
		}
	}
	return ""
}

// An exchange that does not exist is paused: status and readiness name it with the broker's words,
// and one log line; its events are deferred, the relay does not end, and goes on without a restart
// when the exchange is there.
func TestUnknownExchange(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	b.sink = "  rabbitmq: {url: '" + b.vhost + "', exchange: later}"
	relay := b.start()
	b.insert(1)
	s := deferred(t, relay, 1)
	if p := s.Broker.Paused[0]; p.Destination != `exchange "later"` || p.Reason != "no_exchange" || !strings.Contains(p.Error, "404 NOT_FOUND - no exchange 'later'") {
		t.Errorf("paused is %+v", p)
	}
	if !strings.Contains(s.Why, `exchange "later": 404`) {
		t.Errorf("why is %q", s.Why)
	}
	// A count of the rows that is under way when the row comes has it twice, until the next count.
	eventually(t, func() string {
		return answers(t, relay, "/readyz", 200, `"ready":true`, `"paused_total":1,"deferred_events":1`, "no exchange 'later'")
	})
	var m scraped
	eventually(t, func() string {
		m = scrape(t, relay)
		return differs(m.values, map[string]float64{
			"outbox_destinations_paused": 1, "outbox_deferred_events": 1, "outbox_waiting_keys": 1, "outbox_backlog": 1, "outbox_in_flight_events": 0,
			`outbox_events_total{outcome="dlq"}`: 0, "outbox_dead_letters": 0,
		})
	})
	// it is tried again meanwhile, and each refusal counts
	if n := m.values[`outbox_events_total{outcome="retry"}`]; n < 1 {
		t.Errorf("%g events are counted as deferred, want 1 or more", n)
	}
	eventually(t, func() string {
		out := b.ok("status", "--admin", relay.Admin())
		for _, words := range []string{"state      destination paused: exchange", "paused     1 destination; ", "404 NOT_FOUND", "deferred   1 event, oldest from ", "1 key waiting"} {
			if !strings.Contains(out, words) {
				return fmt.Sprintf("status does not say %q: %s", words, out)
			}
		}
		return ""
	})
	if out := b.ok("status", "--admin", "127.0.0.1:1"); !strings.Contains(out, "\n  1 event deferred, oldest from ") {
		t.Errorf("without the relay, status says %s", out)
	}
	second, err := consumers.StartConsumer(await.Context(t), consumers.ConsumerOptions{URL: b.vhost, Exchange: "later", Queue: "later"})
	must(t, err)
	t.Cleanup(second.Close)
	must(t, second.WaitCount(await.Context(t), 1))
	eventually(t, func() string { return drained(t, relay) })
	state(t, relay, "idle")
	if n := scrape(t, relay).values["outbox_retries_total"]; n < 1 {
		t.Errorf("%g attempts to send it again were counted", n)
	}
	// before its queue is bound, the exchange may return one: that is another pause
	if n := strings.Count(relay.Log(), `"reason":"no_exchange"`); n != 1 {
		t.Errorf("%d lines about the exchange, want 1: %s", n, relay.Log())
	}
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// Two relays of one slot: one leads, the other stands by, ready to; it takes over when the leader
// is killed.
func TestStandby(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	leader := b.start()
	standby := runner.Start(t, b.binary, b.yaml())
	s := state(t, standby, "standby", "active for cdc-relay/"+b.slot)
	if s.Role != "standby" {
		t.Errorf("its role is %q", s.Role)
	}
	for _, why := range []string{
		answers(t, standby, "/readyz", 200, `"role":"standby"`),
		answers(t, standby, "/readyz?role=leader", 503, "standby: slot is active for"),
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
	if out := b.ok("status", "--admin", standby.Admin()); !strings.Contains(out, "state      standby: slot is active for") {
		t.Errorf("status says %s", out)
	}
	b.insert(1)
	must(t, b.consumer.WaitCount(await.Context(t), 1))
	must(t, leader.Kill())
	eventually(t, func() string { return answers(t, standby, "/readyz?role=leader", 200) })
	b.insert(1)
	must(t, b.consumer.WaitCount(await.Context(t), 2))
	if code := standby.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
