//go:build testall

// What the broker, its operators and messages do to a consumer.

package rabbit_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// Queues and exchanges that are deleted while the consumer runs are declared again, the messages
// that need them wait meanwhile.
func TestDeletedQueues(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inbox.Handler = failsOnce
	c := r.consumer()
	bound := func(id string) {
		t.Helper()
		await.Until(t, "the binding", func() bool { return r.routed(event(id, "a")) })
	}
	r.must(c.Declare(r.ctx))
	r.run(c)
	bound("1")
	r.wantEffects("1") // it publishes on a connection that has not declared what is missing now
	_, err := r.ch.QueueDelete("mailer.retry.1s", false, false, false)
	r.must(err)
	r.publish(event("2", "a"))
	r.wantEffects("1", "2")
	_, err = r.ch.QueueDelete("mailer", false, false, false)
	r.must(err)
	bound("3")
	r.wantEffects("1", "2", "3")
}

// A binding that was removed is there again, also after the relay's exchange was deleted and made
// again by others. So is an exchange of the service. One that others have made with another type
// ends Run.
func TestChangedUnderWay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.consumer()
	hurry(c, 20*time.Millisecond)
	ended := make(chan error, 1)
	r.must(c.Declare(r.ctx))
	go func() { ended <- c.Run(r.ctx) }()
	r.publish(event("1", "a"))
	r.wantEffects("1")
	r.must(r.ch.ExchangeDelete("outbox.events", false, false))
	r.must(r.ch.ExchangeDelete("outbox.dlx", false, false))
	r.must(r.ch.ExchangeDeclare("outbox.events", "topic", true, false, false, false, nil))
	await.Until(t, "the binding", func() bool { return r.routed(event("2", "a")) })
	r.must(r.ch.QueueUnbind("mailer", "order.*", "outbox.events", nil))
	await.Until(t, "the binding", func() bool { return r.routed(event("3", "a")) })
	r.wantEffects("1", "2", "3")

	var err error
	await.Until(t, "an end with the difference", func() bool {
		ch, problem := r.conn.Channel()
		r.must(problem)
		if ch.ExchangeDeclare("outbox.dlx", "topic", true, false, false, false, nil) != nil {
			// It is the consumer's, who may be first again.
			r.must(r.ch.ExchangeDelete("outbox.dlx", false, false))
			ch, problem = r.conn.Channel()
			r.must(problem)
			_ = ch.ExchangeDeclare("outbox.dlx", "topic", true, false, false, false, nil)
		}
		_ = ch.Close() // the broker may have closed it
		select {
		case err = <-ended:
			return true
		default:
		}
		return false
	})
	if err == nil || !strings.Contains(err.Error(), `exchange "outbox.dlx"`) {
		t.Errorf("ended with %v", err)
	}
}

// routed publishes a message, and reports whether a queue has it.
func (r *rig) routed(m amqp.Publishing) bool {
	r.t.Helper()
	ch, err := r.conn.Channel()
	r.must(err)
	defer ch.Close()
	r.must(ch.Confirm(false))
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	confirm, err := ch.PublishWithDeferredConfirm("outbox.events", "order.created", true, false, m)
	r.must(err)
	return confirm.Wait() && len(returned) == 0
}

// A message that has no room for our headers, or that is larger than the broker takes by now, is
// rejected: the broker itself makes it a dead letter.
func TestUnpublishable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inbox.Handler = func(context.Context, pgx.Tx, inbox.Message) error { return inbox.ErrTransient }
	c := r.consumer()
	r.must(c.Declare(r.ctx))
	big := event("big", "a")
	big.Headers["big"] = string(make([]byte, 130_000))
	r.publish(big)
	r.run(c)
	r.depthOf("mailer.dlq", 1)
	if n, err := c.Replay(r.ctx, inbox.ReplayFilter{Class: inbox.Rejected, ID: "none"}); n != 0 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	if d := r.take("mailer.dlq"); d.MessageId != "big" || d.Headers["big"] != big.Headers["big"] || d.Headers["x-first-death-reason"] != "rejected" {
		t.Errorf("the dead letter is %s, because of %v", d.MessageId, d.Headers["x-first-death-reason"])
	}
}

// A dead letter of the broker has the class of its last death, also when it has waited for another
// attempt before: that it has expired there is its first. For the long reason there is no room.
func TestRejectedAfterRetry(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inbox.Handler = func(_ context.Context, _ pgx.Tx, m inbox.Message) error {
		if m.Attempt == 1 {
			return inbox.ErrTransient
		}
		return fmt.Errorf("%s: %w", strings.Repeat("x", 1000), inbox.ErrPermanent)
	}
	c := r.consumer()
	r.must(c.Declare(r.ctx))
	big := event("big", "a")
	big.Headers["big"] = string(make([]byte, 128_000))
	r.publish(big)
	stop := r.run(c)
	r.depthOf("mailer.dlq", 1)
	stop()
	r.inbox.Handler, r.inbox.Registerer = effect, prometheus.NewRegistry()
	r.run(r.consumer())
	if n, err := c.Replay(r.ctx, inbox.ReplayFilter{Class: inbox.Rejected}); n != 1 || err != nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	r.wantEffects("big")
}

// The broker makes a dead letter of a message that was delivered too often. Replayed, it may wait
// for another attempt like any other: RabbitMQ 3.10 would drop it there for its x-death.
func TestDeliveryLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.rabbit.Shared = true // messages can be got
	r.inbox.Handler = failsOnce
	c := r.consumer()
	r.must(c.Declare(r.ctx))
	r.publish(event("1", "a"))
	r.depthOf("mailer", 1)
	for n := range 102 {
		d, ok, err := r.ch.Get("mailer", false)
		r.must(err)
		if !ok {
			if n < 100 {
				t.Errorf("gone after %d deliveries", n)
			}
			break
		}
		r.must(d.Nack(false, true))
	}
	r.depthOf("mailer.dlq", 1)
	r.run(c)
	if n, err := c.Replay(r.ctx, inbox.ReplayFilter{Class: inbox.DeliveryLimit}); n != 1 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	r.wantEffects("1")
}

// An exchange of any type may be the source; other levels are other queues.
func TestDeclareBeside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(r.ch.ExchangeDeclare("outbox.events", "fanout", true, false, false, false, nil))
	r.must(r.consumer().Declare(r.ctx))
	r.inbox.Levels = []time.Duration{2 * time.Second, time.Minute, time.Minute}
	r.must(r.consumer().Declare(r.ctx))
	for _, queue := range []string{"mailer.retry.1s", "mailer.retry.2s", "mailer.retry.1m"} {
		r.depth(queue)
	}
}

// What waiting does not cure ends Run before the first message: with what to do.
func TestRunRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	run := func(what string, words ...string) {
		t.Helper()
		err := r.consumer().Run(r.ctx)
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v, want %q in it", what, err, word)
			}
		}
	}
	right := r.rabbit.URL
	u, err := url.Parse(right)
	r.must(err)
	u.User = url.UserPassword("guest", "secret")
	r.rabbit.URL = u.String()
	run("wrong password", "403")
	u.User, u.Path = url.UserPassword("guest", "guest"), "/nowhere"
	r.rabbit.URL = u.String()
	run("no virtual host", "nowhere")
	r.rabbit.URL = right
	r.must(r.broker.Permit(r.ctx, right, "^mailer", ".*", ".*"))
	run("no right", "403", "outbox.dlx")
	r.must(r.broker.Permit(r.ctx, right, ".*", ".*", ".*"))
	_, err = r.pool.Exec(r.ctx, "DROP TABLE processed_messages")
	r.must(err)
	run("no table", "CREATE TABLE")

	ctx, cancel := context.WithCancelCause(r.ctx)
	cancel(errors.New("told to stop"))
	if err := r.consumer().Run(ctx); err != nil {
		t.Errorf("stopped before it began: %v", err)
	}
}

// failsOnce is a handler whose first attempt fails.
func failsOnce(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	if m.Attempt == 1 {
		return inbox.ErrTransient
	}
	return effect(ctx, tx, m)
}
