package rabbit_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// take waits for a message in a queue, and takes it.
func (r *rig) take(queue string) amqp.Delivery {
	r.t.Helper()
	var d amqp.Delivery
	await.Until(r.t, "a message in "+queue, func() bool {
		got, ok, err := r.ch.Get(queue, true)
		r.must(err)
		d = got
		return ok
	})
	return d
}

// A message that always fails goes up the ladder and becomes a dead letter: with the same body and
// properties, and seen by no other service on the way.
func TestLadder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var attempts []inbox.Message
	done := make(chan struct{})
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if m.ID != "bad" {
			return effect(ctx, tx, m)
		}
		attempts = append(attempts, m)
		if len(attempts) == 3 {
			close(done)
		}
		return fmt.Errorf("attempt %d: %w", m.Attempt, inbox.ErrTransient)
	}
	c := r.consumer()
	r.must(c.Declare(r.ctx))
	r.queue("other", "outbox.events", "order.*")
	bad := event("bad", "a")
	bad.Expiration, bad.Priority, bad.CorrelationId, bad.AppId = "86400000", 3, "corr", "shop"
	bad.Headers["small"], bad.Headers["list"], bad.Headers["CC"] = int16(7), []any{"x", int32(1)}, []any{"other"}
	r.publish(bad, event("good", "a"))
	before := r.depthOf("other", 2)
	r.run(c)
	await.Closed(t, "three attempts", done)
	r.wantEffects("good")
	d := r.take("mailer.dlq")
	if got := r.depth("other"); got != before {
		t.Errorf("another service has %d messages, had %d", got, before)
	}

	for i, m := range attempts {
		if m.Attempt != i+1 || m.Source != "mailer" || m.Key != "a" || m.FirstFailed.IsZero() != (i == 0) {
			t.Errorf("attempt %d: %+v", i+1, m)
		}
		if m.ContentType != "application/json" {
			t.Errorf("the content type of attempt %d is %q", i+1, m.ContentType)
		}
		if m.Headers["small"] != "7" || m.Headers["x-retry-count"] != "" || m.Headers["failure_reason"] != "" {
			t.Errorf("headers of attempt %d: %v", i+1, m.Headers)
		}
		if !m.Committed.Equal(time.UnixMilli(1700000000123)) {
			t.Errorf("committed %s", m.Committed)
		}
	}
	want := amqp.Table{
		"aggregate_type": "order", "aggregate_id": "a", "timestamp_in_ms": int64(1700000000123), "small": int16(7), "list": []any{"x", int32(1)},
		"failure_reason": "attempt 3: transient", "failure_class": "transient", "attempts": int64(3),
		"original_destination": "mailer", "consumer_service": "mailer",
	}
	first, last := parse(t, d.Headers["first_failed_at"]), parse(t, d.Headers["failed_at"])
	if !first.Equal(attempts[1].FirstFailed) || !first.Equal(attempts[2].FirstFailed) || !last.After(first) {
		t.Errorf("first failed at %s, last at %s", first, last)
	}
	delete(d.Headers, "first_failed_at")
	delete(d.Headers, "failed_at")
	delete(d.Headers, "x-delivery-count")
	if fmt.Sprint(d.Headers) != fmt.Sprint(want) {
		t.Errorf("headers of the dead letter:\n%v\nwant\n%v", d.Headers, want)
	}
	if string(d.Body) != string(bad.Body) || d.MessageId != "bad" || d.Type != "created" || d.ContentType != "application/json" || d.CorrelationId != "corr" ||
		d.AppId != "shop" || d.Priority != 3 || !d.Timestamp.Equal(bad.Timestamp) || d.DeliveryMode != amqp.Persistent || d.Expiration != "" {
		t.Errorf("the dead letter is %+v", d)
	}
}

func parse(t *testing.T, header any) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(header))
	if err != nil {
		t.Error(err)
	}
	return at
}

// queue declares a queue of another service.
func (r *rig) queue(name, exchange, key string) {
	r.t.Helper()
	_, err := r.ch.QueueDeclare(name, true, false, false, false, nil)
	r.must(err)
	r.must(r.ch.QueueBind(name, key, exchange, false, nil))
}

// depthOf waits until a queue has n messages.
func (r *rig) depthOf(queue string, n int) int {
	r.t.Helper()
	await.Until(r.t, fmt.Sprintf("%d messages in %s", n, queue), func() bool { return r.depth(queue) == n }, func() any { return r.depth(queue) })
	return n
}

// A permanent error, a message without an id, and a second panic make dead letters at once. Replay
// brings back those that it is asked for, and leaves the others in their order.
func TestReplay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inbox.Concurrency = 1
	r.inbox.Levels = []time.Duration{time.Second}
	var fixed atomic.Bool
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		switch {
		case fixed.Load():
			return effect(ctx, tx, m)
		case m.Type == "panics":
			panic("oh")
		}
		return fmt.Errorf("no such customer: %w", inbox.ErrPermanent)
	}
	c := r.consumer()
	r.must(c.Declare(r.ctx))
	noID, panics := event("", "a"), event("p", "a")
	panics.Type = "panics"
	r.publish(noID, panics, event("1", "a"), event("2", "a"), event("3", "a"))
	stop := r.run(c)
	r.depthOf("mailer.dlq", 5)
	fixed.Store(true)

	replay := func(want int, f inbox.ReplayFilter) {
		t.Helper()
		if n, err := c.Replay(r.ctx, f); n != want || err != nil {
			t.Errorf("replayed %d, %v; want %d", n, err, want)
		}
	}
	replay(0, inbox.ReplayFilter{Class: inbox.DeliveryLimit})
	replay(1, inbox.ReplayFilter{ID: "2"})
	r.wantEffects("2")
	// That without an id is there again.
	replay(1, inbox.ReplayFilter{Class: inbox.Permanent, Type: "created", Limit: 1})
	await.Until(t, "the sixth dead letter", func() bool { return r.metric("cdc_relay_inbox_dead_letters_total") == 6 })
	replay(1, inbox.ReplayFilter{Class: inbox.Panic})
	r.wantEffects("2", "p")
	replay(3, inbox.ReplayFilter{})
	r.wantEffects("2", "p", "1", "3")
	r.depthOf("mailer.dlq", 1)
	stop()
	d := r.take("mailer.dlq")
	if reason := fmt.Sprint(d.Headers["failure_reason"]); !strings.Contains(reason, "no id") || d.Headers["attempts"] != int64(1) {
		t.Errorf("the dead letter without an id has %v", d.Headers)
	}
	var attempt int
	r.must(r.pool.QueryRow(r.ctx, "SELECT sum(attempt) FROM effect").Scan(&attempt))
	if attempt != 4 {
		t.Errorf("attempts of replayed messages add up to %d: they do not begin again", attempt)
	}
	if _, err := r.consumerNamed("absent").Replay(r.ctx, inbox.ReplayFilter{}); err == nil || !strings.Contains(err.Error(), "absent.dlq") {
		t.Errorf("without a queue: %v", err)
	}
}

func (r *rig) consumerNamed(service string) *rabbit.Consumer {
	r.t.Helper()
	r.inbox.Service = service
	return r.consumer()
}
