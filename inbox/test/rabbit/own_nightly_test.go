//go:build nightly

// What a broker does that is reconfigured meanwhile: one of this process.

package rabbit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// A message that is larger than the broker takes by now becomes a dead letter by being rejected,
// with others in flight on the same connection. A replay leaves it, says why, and brings back the
// rest.
func TestLimitLowered(t *testing.T) {
	r := newRigOn(t, servers.OwnRabbitMQ(t))
	r.inbox.Handler = func(context.Context, pgx.Tx, inbox.Message) error { return inbox.ErrPermanent }
	c := r.consumer()
	r.must(c.Declare(r.ctx))
	big := event("big", "a")
	big.Body = []byte(`"` + strings.Repeat("x", 100_000) + `"`)
	r.publish(big, event("1", "b"), event("2", "c"), event("3", "d"))
	r.must(r.broker.SetMaxMessageSize(r.ctx, 65536))
	t.Cleanup(func() { r.must(r.broker.SetMaxMessageSize(context.Background(), 134217728)) })
	stop := r.run(c)
	r.depthOf("mailer.dlq", 4)
	stop()

	r.inbox.Handler = effect
	c = r.consumer()
	n, err := c.Replay(r.ctx, inbox.ReplayFilter{})
	if n != 3 || err == nil || !strings.Contains(err.Error(), "larger than configured max size 65536") {
		t.Errorf("replayed %d, %v", n, err)
	}
	r.must(r.broker.SetMaxMessageSize(r.ctx, 134217728))
	if n, err := c.Replay(r.ctx, inbox.ReplayFilter{Class: inbox.Rejected}); n != 1 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	r.run(c)
	await.Until(t, "effects", func() bool { return r.count() == 4 })
}

// While the broker is short of memory, failed messages wait, and others are processed and
// acknowledged.
func TestAlarm(t *testing.T) {
	r := newRigOn(t, servers.OwnRabbitMQ(t))
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if m.Type == "failing" {
			return inbox.ErrPermanent
		}
		return effect(ctx, tx, m)
	}
	r.inbox.Concurrency, r.rabbit.Prefetch = 4, 8
	c := r.consumer()
	r.must(c.Declare(r.ctx))
	failing := event("f", "a")
	failing.Type = "failing"
	r.publish(failing)
	stop := r.run(c)
	r.depthOf("mailer.dlq", 1) // its connection has published
	stop()
	failing.MessageId = "g"
	r.publish(failing)
	for n := range 20 { // without keys each fourth waits behind the failed message
		r.publish(event(fmt.Sprint(n), ""))
	}
	r.depthOf("mailer", 21)
	r.must(r.broker.Alarm(r.ctx, true))
	t.Cleanup(func() { r.must(r.broker.Alarm(context.Background(), false)) })
	r.run(c)
	await.Until(t, "more effects than are delivered at once", func() bool { return r.count() >= 12 })
	r.must(r.broker.Alarm(r.ctx, false))
	await.Until(t, "all effects", func() bool { return r.count() == 20 })
	r.depthOf("mailer.dlq", 2)
}

// A policy with a maximum length loses no dead letter: those that do not fit wait where they were.
func TestPolicy(t *testing.T) {
	r := newRigOn(t, servers.OwnRabbitMQ(t))
	r.inbox.Handler = func(context.Context, pgx.Tx, inbox.Message) error { return inbox.ErrPermanent }
	r.inbox.Concurrency = 2
	c := r.consumer()
	r.must(c.Declare(r.ctx))
	_, err := r.broker.Ctl(r.ctx, "set_policy", "-p", r.conn.Config.Vhost, "--apply-to", "queues", "limit", `.*\.dlq`, `{"max-length":2}`)
	r.must(err)
	for n := range 12 {
		r.publish(event(fmt.Sprint(n), ""))
	}
	stop := r.run(c)
	await.Until(t, "a refusal", func() bool { return r.metric("cdc_relay_inbox_dead_letters_total") >= 2 })
	stop()
	await.Until(t, "all messages", func() bool { return r.depth("mailer")+r.depth("mailer.dlq") == 12 }, func() any { return r.depth("mailer") })
}
