package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// headersOf are the headers of a record by name.
func headersOf(r kafkaserver.Record) map[string]string {
	all := map[string]string{}
	for _, h := range r.Headers {
		all[h.Name] = string(h.Value)
	}
	return all
}

// A message that fails is tried again after each level, and is a dead letter then, with the same
// content. Messages of other keys and later ones of its own pass. A replay brings it back.
func TestLadder(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	seen := make(chan inbox.Message, 10)
	mailer := errors.New("mailer is away")
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if m.ID == "1" {
			seen <- m
			defer clear(m.Payload) // it belongs to the handler
			if mailer != nil {
				return mailer
			}
		}
		return effect(ctx, tx, m)
	}
	first := event("1", "a")
	first.Headers = append(first.Headers, kafkago.Header{Key: "content-type", Value: []byte("text/json")})
	r.publish(first, event("2", "a"), event("3", "b"))
	c := r.consumer()
	stop := r.run(c)
	dead := r.wantRecords(r.service+".dlq", 1)[0]
	stop()
	r.wantRecords(r.service+".retry.1s", 0) // what was handled is deleted
	if got := strings.Fields(r.effects()); !slices.Contains(got, "2") || !slices.Contains(got, "3") || len(got) != 2 {
		t.Errorf("effects are %q, want 2 and 3", got)
	}
	if string(dead.Value) != `{"id": "1"}` || string(dead.Key) != "a" || !dead.Time.Equal(committed) {
		t.Errorf("the dead letter is %s, key %s, time %s", dead.Value, dead.Key, dead.Time)
	}
	h := headersOf(dead)
	var times []time.Time
	for _, name := range []string{"first_failed_at", "failed_at"} {
		at, err := time.Parse(time.RFC3339Nano, h[name])
		await.Must(t, err)
		times = append(times, at)
		delete(h, name)
	}
	if took := times[1].Sub(times[0]); took < 2*time.Second {
		t.Errorf("the attempts took %s: the levels were not waited for", took)
	}
	want := map[string]string{
		"id": "1", "eventType": "created", "aggregateType": "order", "tenant": "t1", "content-type": "text/json", "failure_reason": "mailer is away",
		"failure_class": "transient", "attempts": "3", "original_destination": r.topic, "consumer_service": r.service,
	}
	if !maps.Equal(h, want) {
		t.Errorf("headers are %v, want %v", h, want)
	}
	for attempt := 1; attempt <= 3; attempt++ {
		m := <-seen
		if m.Attempt != attempt || m.FirstFailed.IsZero() != (attempt == 1) || m.Source != r.topic || m.Type != "created" || m.Aggregate != "order" ||
			m.Key != "a" || !m.Committed.Equal(committed) || m.ContentType != "text/json" || !maps.Equal(m.Headers, map[string]string{"tenant": "t1", "content-type": "text/json"}) {
			t.Errorf("attempt %d is of %+v", attempt, m)
		}
	}

	mailer = nil
	n, err := c.Replay(r.ctx, inbox.ReplayFilter{})
	if n != 1 || err != nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	defer r.run(c)()
	await.Until(t, "the effect of 1", func() bool { return strings.HasSuffix(r.effects(), " 1") })
	if m := <-seen; m.Attempt != 1 || !m.FirstFailed.IsZero() || m.Source != r.topic {
		t.Errorf("replayed as %+v", m)
	}
	r.wantRecords(r.service+".dlq", 0)
}

// What cannot succeed is a dead letter at once, also without levels. A replay takes those that its
// filter matches, and leaves the others.
func TestReplay(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.inbox.Levels = []time.Duration{}
	failing := true
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if failing && m.ID == "p" {
			panic("no such customer")
		}
		if failing {
			return fmt.Errorf("order %s: %w", m.Key, inbox.ErrPermanent)
		}
		return effect(ctx, tx, m)
	}
	none := event("", "c")
	none.Headers = none.Headers[1:]
	r.publish(event("1", "a"), event("2", "a"), event("p", "b"), none, event("3", "a"))
	c := r.consumer()
	if _, err := c.Replay(r.ctx, inbox.ReplayFilter{}); err == nil {
		t.Error("replay without a topic has no error")
	}
	stop := r.run(c)
	dead := r.wantRecords(r.service+".dlq", 5)
	stop()
	var reasons []string
	for _, d := range dead {
		h := headersOf(d)
		reasons = append(reasons, h["id"]+" "+h["failure_class"])
	}
	slices.Sort(reasons)
	if want := []string{" permanent", "1 permanent", "2 permanent", "3 permanent", "p panic"}; !slices.Equal(reasons, want) {
		t.Errorf("dead letters are %q, want %q", reasons, want)
	}
	failing = false
	defer r.run(c)()
	await.Until(t, "five dead letters to be counted, and nothing in the topic", func() bool {
		return r.metric("cdc_relay_inbox_waiting_messages", r.service+".dlq") == 5 && r.metric("cdc_relay_inbox_waiting_messages", r.topic) == 0
	})
	replay := func(want int, f inbox.ReplayFilter) {
		t.Helper()
		if n, err := c.Replay(r.ctx, f); n != want || err != nil {
			t.Errorf("%+v replays %d, %v; want %d", f, n, err, want)
		}
	}
	before := len(r.records(r.service + ".dlq"))
	replay(0, inbox.ReplayFilter{ID: "9"})
	if after := r.records(r.service + ".dlq"); len(after) != before || after[0].Offset != dead[0].Offset {
		t.Errorf("a replay of nothing has moved dead letters: %v", after)
	}
	replay(1, inbox.ReplayFilter{ID: "2"})
	r.wantEffects("2")
	r.wantRecords(r.service+".dlq", 4)
	replay(1, inbox.ReplayFilter{Class: inbox.Panic, Type: "created"})
	r.wantEffects("2", "p")
	replay(3, inbox.ReplayFilter{})
	await.Until(t, "all effects", func() bool { return len(r.effects()) == len("1 2 3 p") })
	r.wantRecords(r.service+".dlq", 1) // that without an id is there again
	replay(1, inbox.ReplayFilter{Limit: 1})
	r.wantRecords(r.service+".dlq", 1)
	if n, err := c.Replay(r.ctx, inbox.ReplayFilter{Limit: -1}); n != 0 || err == nil {
		t.Errorf("a limit below 0 replays %d, %v", n, err)
	}
	other := event("other", "a")
	other.Headers = append(other.Headers, kafkago.Header{Key: "consumer_service", Value: []byte("other")})
	r.write(r.service+".dlq", 0, other)
	replay(0, inbox.ReplayFilter{ID: "other"}) // another service is to have it
}

// The service's own topics take each time that the topic took which the message came from: also
// that of a clock which is ahead.
func TestFuture(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if m.Attempt == 1 {
			return errors.New("not yet")
		}
		return effect(ctx, tx, m)
	}
	await.Must(t, r.broker.SetTopicConfig(r.ctx, r.topic, "message.timestamp.after.max.ms", "36000000"))
	m := event("late", "a")
	m.Time = time.Now().Add(2 * time.Hour)
	r.publish(m)
	defer r.run(r.consumer())()
	r.wantEffects("late")
}
