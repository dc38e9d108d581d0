package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// A message that comes again, whole or while the first is in its handler, has its effect once.
func TestEffectOnce(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}, 2), make(chan struct{})
	r := newRig(t, func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if m.ID == "slow" {
			begun <- struct{}{}
			<-goOn
		}
		return write(ctx, tx, m)
	}, nil)
	m := inbox.Message{ID: "1", Payload: []byte(`{}`)}
	for range 2 {
		await.Must(t, r.handle(t.Context(), m))
	}
	if n := r.effects(t, "1"); n != 1 || r.outcomes("success") != 1 || r.outcomes("duplicate") != 1 {
		t.Errorf("effects %d, successes %d, duplicates %d; want one each", n, r.outcomes("success"), r.outcomes("duplicate"))
	}

	var both sync.WaitGroup
	slow := inbox.Message{ID: "slow"}
	for range 2 {
		both.Go(func() {
			if err := r.handle(t.Context(), slow); err != nil {
				t.Errorf("handle: %v", err)
			}
		})
	}
	<-begun
	await.Until(t, "the other to wait for the record", func() bool { return r.count(t, waiting) == 1 })
	close(goOn)
	both.Wait()
	if n := r.effects(t, "slow"); n != 1 || r.outcomes("duplicate") != 2 {
		t.Errorf("effects %d, duplicates %d; want 1 and 2", n, r.outcomes("duplicate"))
	}
	if other := len(r.published.retries) + len(r.published.dead); other != 0 {
		t.Errorf("%d messages were published", other)
	}
}

// When the first of two rolls back, the second has the effect.
func TestTheOtherHasTheEffect(t *testing.T) {
	t.Parallel()
	first := make(chan struct{}, 1)
	first <- struct{}{}
	begun, goOn := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		select {
		case <-first:
			close(begun)
			<-goOn
			return errors.Join(write(ctx, tx, m), errMailer)
		default:
			return write(ctx, tx, m)
		}
	}, nil)
	var both sync.WaitGroup
	both.Go(func() { _ = r.handle(t.Context(), inbox.Message{ID: "1"}) })
	<-begun
	both.Go(func() { _ = r.handle(t.Context(), inbox.Message{ID: "1"}) })
	await.Until(t, "the other to wait for the record", func() bool { return r.count(t, waiting) == 1 })
	close(goOn)
	both.Wait()
	if n := r.effects(t, "1"); n != 1 || r.outcomes("success") != 1 || r.outcomes("retry") != 1 {
		t.Errorf("effects %d, successes %d, retries %d; want one each", n, r.outcomes("success"), r.outcomes("retry"))
	}
}

// What becomes of a message whose attempt fails, by the error and the number of the attempt. The
// levels are 1s and 1m.
func TestFailures(t *testing.T) {
	t.Parallel()
	panics := func(context.Context, pgx.Tx, inbox.Message) error { panic("no such index") }
	hangs := func(ctx context.Context, tx pgx.Tx, _ inbox.Message) error {
		_, err := tx.Exec(ctx, "SELECT pg_sleep(600)")
		return err
	}
	deaf := func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		defer func() { <-ctx.Done() }()
		return write(ctx, tx, m)
	}
	r := newRig(t, func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		return map[string]inbox.Handler{
			"fails": failing(errMailer), "says so": failing(fmt.Errorf("%w: %w", inbox.ErrTransient, errMailer)), "permanent": failing(permanent(errMailer)),
			"both": failing(fmt.Errorf("%w: %w", permanent(errMailer), inbox.ErrTransient)), "panics": panics, "hangs": hangs, "deaf": deaf,
		}[m.Type](ctx, tx, m)
	}, nil)
	for _, tc := range []struct {
		does    string
		attempt int
		class   inbox.Class
		level   time.Duration
		reason  string
	}{
		{"fails", 1, inbox.Transient, time.Second, "the mailer is away"},
		{"fails", 2, inbox.Transient, time.Minute, ""},
		{"fails", 3, inbox.Transient, 0, ""},
		{"fails", 0, inbox.Transient, time.Second, ""}, // a transport that does not count
		{"fails", 100, inbox.Transient, 0, ""},         // more levels before a rollout
		{"says so", 1, inbox.Transient, time.Second, ""},
		{"permanent", 1, inbox.Permanent, 0, "the mailer is away"},
		{"both", 1, inbox.Transient, time.Second, ""},
		{"panics", 1, inbox.Panic, time.Second, "panic: no such index"},
		{"panics", 2, inbox.Panic, 0, ""},
		{"hangs", 1, inbox.Timeout, time.Second, "longer than Timeout"},
		{"deaf", 1, inbox.Timeout, time.Second, "longer than Timeout"},
	} {
		name := fmt.Sprintf("%s %d", tc.does, tc.attempt)
		before := time.Now()
		r.published = publisher{}
		r.change(t, func(cfg *inbox.Config) {
			cfg.Timeout = time.Hour // a busy machine may take longer than the short one
			if tc.class == inbox.Timeout {
				cfg.Timeout = 100 * time.Millisecond
			}
		})
		m := inbox.Message{ID: name, Type: tc.does, Attempt: tc.attempt}
		if tc.attempt > 1 {
			m.FirstFailed = before.Add(-time.Hour)
		}
		if err := r.handle(t.Context(), m); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		f := r.published.failure(t)
		if f.Class != tc.class || f.Level != tc.level || !strings.Contains(f.Reason, tc.reason) || f.Attempts != max(tc.attempt, 1) {
			t.Errorf("%s: %+v, want class %s, level %s, reason with %q", name, f, tc.class, tc.level, tc.reason)
		}
		if f.LastFailed.Before(before) || tc.attempt > 1 && !f.FirstFailed.Equal(m.FirstFailed) || tc.attempt <= 1 && !f.FirstFailed.Equal(f.LastFailed) {
			t.Errorf("%s: first failed %s, last %s", name, f.FirstFailed, f.LastFailed)
		}
	}
	if n := r.count(t, "SELECT (SELECT count(*) FROM effects) + (SELECT count(*) FROM processed_messages)"); n != 0 {
		t.Errorf("%d rows are there after failures", n)
	}
	if n := strings.Count(r.said.String(), "stack="); n != 2 || !r.said.has("TestFailures") {
		t.Errorf("%d stacks of 2 panics are logged:\n%s", n, &r.said)
	}
}

// A message that the broker does not keep must come again.
func TestPublishRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, failing(errMailer), nil)
	r.published.err = errors.New("the broker does not answer")
	for _, attempt := range []int{1, 3} {
		if err := r.handle(t.Context(), inbox.Message{ID: "1", Attempt: attempt}); !errors.Is(err, r.published.err) {
			t.Errorf("attempt %d: %v", attempt, err)
		}
	}
	if r.outcomes("failed") != 2 || r.outcomes("retry")+r.outcomes("dead_letter") != 0 {
		t.Errorf("%d failed, want 2", r.outcomes("failed"))
	}
	for _, want := range []string{`cdc_relay_inbox_dead_letter_failures_total{service="notifier"} 1`, `cdc_relay_inbox_dead_letters_total{service="notifier"} 0`} {
		if got := r.gathered(); !strings.Contains(got, want) {
			t.Errorf("metrics lack %s:\n%s", want, got)
		}
	}
}

// A stop says nothing about the message: it is not published, and comes again.
func TestStopInTheHandler(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	r := newRig(t, func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		err := write(ctx, tx, m)
		close(begun)
		<-ctx.Done()
		return errors.Join(err, ctx.Err())
	}, nil)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		<-begun
		stop()
	}()
	if err := r.handle(ctx, inbox.Message{ID: "1"}); !errors.Is(err, context.Canceled) {
		t.Errorf("handle: %v", err)
	}
	if n := len(r.published.retries) + len(r.published.dead); n != 0 || r.outcomes("failed") != 1 || r.effects(t, "1") != 0 {
		t.Errorf("%d published, %d failed, %d effects", n, r.outcomes("failed"), r.effects(t, "1"))
	}
}

// A message that cannot be recorded is a dead letter at once: no other attempt would help, and
// without a record its effect might be there twice.
func TestIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, write, nil)
	for _, id := range []string{"", strings.Repeat("x", 1001), "a\x00b", "\xff"} {
		r.published = publisher{}
		await.Must(t, r.handle(t.Context(), inbox.Message{ID: id}))
		if f := r.published.failure(t); f.Class != inbox.Permanent || f.Level != 0 {
			t.Errorf("id %.10q: %+v", id, f)
		}
	}
	r.published = publisher{}
	await.Must(t, r.handle(t.Context(), inbox.Message{ID: strings.Repeat("x", 1000)}))
	await.Must(t, r.handle(t.Context(), inbox.Message{ID: "1", Payload: []byte("first")}))
	if r.outcomes("success") != 2 {
		t.Errorf("%d successes, want 2", r.outcomes("success"))
	}
	await.Must(t, r.handle(t.Context(), inbox.Message{ID: "1", Payload: []byte("other")}))
	if f := r.published.failure(t); f.Class != inbox.Permanent || !strings.Contains(f.Reason, "another content") {
		t.Errorf("an id that comes again with another event: %+v", f)
	}
}

// All that an event has tells it from another one under the same id; what only a delivery has does
// not. No part can pass for the end of another.
func TestSameID(t *testing.T) {
	t.Parallel()
	r := newRig(t, write, nil)
	event := func(change func(*inbox.Message)) inbox.Message {
		m := inbox.Message{ID: "1", Aggregate: "order", Key: "7", Type: "created", Payload: []byte("p"), Headers: map[string]string{"tenant": "a", "x-b": "c"}}
		change(&m)
		return m
	}
	await.Must(t, r.handle(t.Context(), event(func(*inbox.Message) {})))
	for name, tc := range map[string]struct {
		other  bool
		change func(*inbox.Message)
	}{
		"the same":             {false, func(*inbox.Message) {}},
		"another attempt":      {false, func(m *inbox.Message) { m.Attempt, m.Source, m.FirstFailed = 2, "retry", time.Now() }},
		"another trace":        {false, func(m *inbox.Message) { m.Headers["traceparent"], m.Headers["tracestate"] = "x", "y" }},
		"sent again":           {false, func(m *inbox.Message) { m.Headers["cdc_position"], m.Headers["cdc_replay"] = "1", "2" }},
		"another run":          {false, func(m *inbox.Message) { m.Headers["__debezium.context.runId"] = "x" }},
		"through a shovel":     {false, func(m *inbox.Message) { m.Headers["x-shovelled-timestamp"], m.Headers["x-opt-t"] = "1", "2" }},
		"another header":       {true, func(m *inbox.Message) { m.Headers["tenant"] = "b" }},
		"a header more":        {true, func(m *inbox.Message) { m.Headers["z"] = "" }},
		"a header less":        {true, func(m *inbox.Message) { delete(m.Headers, "tenant") }},
		"name longer":          {true, func(m *inbox.Message) { m.Headers = map[string]string{"tenanta": "", "x-b": "c"} }},
		"another aggregate":    {true, func(m *inbox.Message) { m.Aggregate = "bill" }},
		"key for type":         {true, func(m *inbox.Message) { m.Key, m.Type = "7\x00created", "" }},
		"type into payload":    {true, func(m *inbox.Message) { m.Type, m.Payload = "created\x00", []byte("p")[:0] }},
		"headers into payload": {true, func(m *inbox.Message) { m.Payload, m.Headers = []byte("ptenanta"), nil }},
	} {
		r.published = publisher{}
		await.Must(t, r.handle(t.Context(), event(tc.change)))
		if tc.other != (len(r.published.dead) == 1) {
			t.Errorf("%s: %d dead letters, want %v", name, len(r.published.dead), tc.other)
		}
	}
	if r.effects(t, "1") != 1 {
		t.Errorf("%d effects", r.effects(t, "1"))
	}
	for _, m := range []inbox.Message{{Type: "created\x00", Payload: []byte("p")}, {Type: "created", Payload: []byte("\x00p")}} {
		r.published, m.ID = publisher{}, "2"
		await.Must(t, r.handle(t.Context(), m))
	}
	if len(r.published.dead) != 1 {
		t.Error("a zero byte passes from the type into the payload")
	}
}

// What another version has recorded, or a consumer that cannot tell the content, is a duplicate.
func TestOtherVersions(t *testing.T) {
	t.Parallel()
	r := newRig(t, write, nil)
	_, err := r.pool.Exec(t.Context(), `INSERT INTO processed_messages (service, id, content_hash) VALUES ('notifier', 'unknown', NULL), ('notifier', 'later', '\x0300')`)
	await.Must(t, err)
	for _, id := range []string{"unknown", "later", "ours", "ours"} {
		await.Must(t, r.handle(t.Context(), inbox.Message{ID: id}))
	}
	if r.outcomes("duplicate") != 3 || r.outcomes("success") != 1 {
		t.Errorf("%d duplicates and %d successes, want 3 and 1", r.outcomes("duplicate"), r.outcomes("success"))
	}
}

// Two services of one process share a registry, and so do two inboxes of one service.
func TestSharedRegistry(t *testing.T) {
	t.Parallel()
	r := newRig(t, write, nil)
	cfg := r.cfg
	again, err := inbox.New(cfg)
	await.Must(t, err)
	cfg.Service = "billing"
	other, err := inbox.New(cfg)
	await.Must(t, err)
	for _, in := range []*inbox.Inbox{r.Inbox, again, other} {
		await.Must(t, in.Transport("kafka").Handle(t.Context(), inbox.Message{ID: "1"}, &r.published))
	}
	got := r.gathered()
	for _, want := range []string{
		`cdc_relay_inbox_messages_total{outcome="success",service="notifier"} 1`,
		`cdc_relay_inbox_messages_total{outcome="duplicate",service="notifier"} 1`,
		`cdc_relay_inbox_messages_total{outcome="success",service="billing"} 1`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("metrics lack %s:\n%s", want, got)
		}
	}
}
