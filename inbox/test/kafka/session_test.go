package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// The messages of a key are processed in order, one at a time. A message that takes long holds up
// only those of its worker, and its offset is not passed.
func TestOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	slow, begun := make(chan struct{}), make(chan struct{})
	var running [20]atomic.Int32
	r.inbox.Concurrency = 4
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if m.Key == "slow" {
			close(begun)
			<-slow
			return effect(ctx, tx, m)
		}
		n := &running[m.Key[0]-'a']
		if n.Add(1) != 1 {
			t.Errorf("two messages of key %s are processed at once", m.Key)
		}
		defer n.Add(-1)
		return effect(ctx, tx, m)
	}
	messages := []kafkago.Message{event("slow", "slow")}
	for i := range 100 {
		messages = append(messages, event(fmt.Sprintf("%03d", i), string(rune('a'+i%20))))
	}
	stop := r.run(r.consumer())
	r.publish(messages[0])
	await.Closed(t, "the slow handler", begun)
	r.publish(messages[1:]...)
	await.Until(t, "effects of later messages", func() bool { return r.effects() != "" })
	if at := r.offset(r.topic, 0); at > 0 {
		t.Errorf("offset %d is committed, the first message is not processed", at)
	}
	close(slow)
	await.Until(t, "all effects", func() bool { return len(strings.Fields(r.effects())) == 101 })
	stop()
	r.wantOffset(0, 101)
	r.wantOrder()
}

// wantOrder compares the order of effects of each key with that of the ids.
func (r *rig) wantOrder() {
	r.t.Helper()
	rows, err := r.pool.Query(r.ctx, "SELECT key, id FROM effect ORDER BY n")
	await.Must(r.t, err)
	last := map[string]string{}
	var key, id string
	_, err = pgx.ForEachRow(rows, []any{&key, &id}, func() error {
		if id <= last[key] {
			r.t.Errorf("key %s: %s after %s", key, id, last[key])
		}
		last[key] = id
		return nil
	})
	await.Must(r.t, err)
}

// A handler that runs when the consumer is told to stop ends, and its offset is committed. Messages
// that were not begun are not.
func TestStop(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	begun, end := make(chan struct{}), make(chan struct{})
	r.inbox.Grace = time.Hour
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if m.ID == "1" {
			close(begun)
			<-end
		}
		return effect(ctx, tx, m)
	}
	r.publish(event("1", "a"), event("2", "a"))
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan error, 1)
	c := r.consumer()
	go func() { done <- c.Run(ctx) }()
	await.Closed(t, "the handler", begun)
	cancel()
	select {
	case err := <-done:
		t.Fatalf("the consumer has stopped, and its handler runs: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(end)
	await.Must(t, <-done)
	if got, at := r.effects(), r.offset(r.topic, 0); got != "1" || at != 1 {
		t.Errorf("effects %s, offset %d; want that of the first message", got, at)
	}
	defer r.run(r.consumer())()
	r.wantEffects("1", "2")
}

// An attempt that is cut off after Grace leaves nothing behind, and comes again.
func TestGrace(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	begun := make(chan struct{})
	r.inbox.Grace = time.Millisecond
	var calls atomic.Int32
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if err := effect(ctx, tx, m); err != nil || calls.Add(1) > 1 {
			return err
		}
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}
	r.publish(event("1", "a"))
	stop := r.run(r.consumer())
	await.Closed(t, "the handler", begun)
	stop()
	if got := r.effects(); got != "" {
		t.Errorf("effects %s of an attempt that was cut off", got)
	}
	defer r.run(r.consumer())()
	r.wantEffects("1")
	var attempt int
	await.Must(t, r.pool.QueryRow(r.ctx, "SELECT attempt FROM effect").Scan(&attempt))
	if attempt != 1 {
		t.Errorf("it was attempt %d: being cut off counts as none", attempt)
	}
}
