package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// A message that comes again, whole or while the first is in its handler, has its effect once.
func TestEffectOnce(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}, 2), make(chan struct{})
	r := newRig(t, func(ctx context.Context, tx pgx.Tx, m Message) error {
		if m.ID == "slow" {
			begun <- struct{}{}
			<-goOn
		}
		return write(ctx, tx, m)
	}, nil)
	m := Message{ID: "1", Payload: []byte(`{}`)}
	for range 2 {
		await.Must(t, r.handle(t.Context(), m))
	}
	if n := r.effects(t, "1"); n != 1 || r.outcomes(success) != 1 || r.outcomes(duplicate) != 1 {
		t.Errorf("effects %d, successes %d, duplicates %d; want one each", n, r.outcomes(success), r.outcomes(duplicate))
	}

	var both sync.WaitGroup
	slow := Message{ID: "slow"}
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
	if n := r.effects(t, "slow"); n != 1 || r.outcomes(duplicate) != 2 {
		t.Errorf("effects %d, duplicates %d; want 1 and 2", n, r.outcomes(duplicate))
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
	r := newRig(t, func(ctx context.Context, tx pgx.Tx, m Message) error {
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
	both.Go(func() { _ = r.handle(t.Context(), Message{ID: "1"}) })
	<-begun
	both.Go(func() { _ = r.handle(t.Context(), Message{ID: "1"}) })
	await.Until(t, "the other to wait for the record", func() bool { return r.count(t, waiting) == 1 })
	close(goOn)
	both.Wait()
	if n := r.effects(t, "1"); n != 1 || r.outcomes(success) != 1 || r.outcomes(retried) != 1 {
		t.Errorf("effects %d, successes %d, retries %d; want one each", n, r.outcomes(success), r.outcomes(retried))
	}
}

// What becomes of a message whose attempt fails, by the error and the number of the attempt. The
// levels are 1s and 1m.
func TestFailures(t *testing.T) {
	t.Parallel()
	panics := func(context.Context, pgx.Tx, Message) error { panic("no such index") }
	hangs := func(ctx context.Context, tx pgx.Tx, _ Message) error {
		_, err := tx.Exec(ctx, "SELECT pg_sleep(600)")
		return err
	}
	deaf := func(ctx context.Context, tx pgx.Tx, m Message) error {
		defer func() { <-ctx.Done() }()
		return write(ctx, tx, m)
	}
	r := newRig(t, func(ctx context.Context, tx pgx.Tx, m Message) error {
		return map[string]Handler{
			"fails": failing(errMailer), "says so": failing(fmt.Errorf("%w: %w", ErrTransient, errMailer)), "permanent": failing(permanent(errMailer)),
			"both": failing(fmt.Errorf("%w: %w", permanent(errMailer), ErrTransient)), "panics": panics, "hangs": hangs, "deaf": deaf,
		}[m.Type](ctx, tx, m)
	}, nil)
	for _, tc := range []struct {
		does    string
		attempt int
		class   Class
		level   time.Duration
		reason  string
	}{
		{"fails", 1, Transient, time.Second, "the mailer is away"},
		{"fails", 2, Transient, time.Minute, ""},
		{"fails", 3, Transient, 0, ""},
		{"fails", 0, Transient, time.Second, ""}, // a transport that does not count
		{"fails", 100, Transient, 0, ""},         // more levels before a rollout
		{"says so", 1, Transient, time.Second, ""},
		{"permanent", 1, Permanent, 0, "the mailer is away"},
		{"both", 1, Transient, time.Second, ""},
		{"panics", 1, Panic, time.Second, "panic: no such index"},
		{"panics", 2, Panic, 0, ""},
		{"hangs", 1, Timeout, time.Second, "longer than Timeout"},
		{"deaf", 1, Timeout, time.Second, "longer than Timeout"},
	} {
		name := fmt.Sprintf("%s %d", tc.does, tc.attempt)
		before := time.Now()
		r.published = publisher{}
		r.cfg.Timeout = time.Hour // a busy machine may take longer than the short one
		if tc.class == Timeout {
			r.cfg.Timeout = 100 * time.Millisecond
		}
		m := Message{ID: name, Type: tc.does, Attempt: tc.attempt}
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
		if err := r.handle(t.Context(), Message{ID: "1", Attempt: attempt}); !errors.Is(err, r.published.err) {
			t.Errorf("attempt %d: %v", attempt, err)
		}
	}
	if r.outcomes(failed) != 2 || r.outcomes(retried)+r.outcomes(deadLettered) != 0 {
		t.Errorf("%d failed, want 2", r.outcomes(failed))
	}
	for _, want := range []string{`consumer_dlq_publish_failed_total{service="notifier"} 1`, `consumer_dlq_published_total{service="notifier"} 0`} {
		if got := r.gathered(); !strings.Contains(got, want) {
			t.Errorf("metrics lack %s:\n%s", want, got)
		}
	}
}

// A stop says nothing about the message: it is not published, and comes again.
func TestStopInTheHandler(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	r := newRig(t, func(ctx context.Context, tx pgx.Tx, m Message) error {
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
	if err := r.handle(ctx, Message{ID: "1"}); !errors.Is(err, context.Canceled) {
		t.Errorf("handle: %v", err)
	}
	if n := len(r.published.retries) + len(r.published.dead); n != 0 || r.outcomes(failed) != 1 || r.effects(t, "1") != 0 {
		t.Errorf("%d published, %d failed, %d effects", n, r.outcomes(failed), r.effects(t, "1"))
	}
}

// A message that cannot be recorded is a dead letter at once: no other attempt would help, and
// without a record its effect might be there twice.
func TestIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, write, nil)
	for _, id := range []string{"", strings.Repeat("x", 1001), "a\x00b", "\xff"} {
		r.published = publisher{}
		await.Must(t, r.handle(t.Context(), Message{ID: id}))
		if f := r.published.failure(t); f.Class != Permanent || f.Level != 0 {
			t.Errorf("id %.10q: %+v", id, f)
		}
	}
	r.published = publisher{}
	await.Must(t, r.handle(t.Context(), Message{ID: strings.Repeat("x", 1000)}))
	await.Must(t, r.handle(t.Context(), Message{ID: "1", Payload: []byte("first")}))
	if r.outcomes(success) != 2 {
		t.Errorf("%d successes, want 2", r.outcomes(success))
	}
	await.Must(t, r.handle(t.Context(), Message{ID: "1", Payload: []byte("other")}))
	if f := r.published.failure(t); f.Class != Permanent || !strings.Contains(f.Reason, "another content") {
		t.Errorf("an id that comes again with another event: %+v", f)
	}
}

// All that an event has tells it from another one under the same id; what only a delivery has does
// not. No part can pass for the end of another.
func TestSameID(t *testing.T) {
	t.Parallel()
	r := newRig(t, write, nil)
	event := func(change func(*Message)) Message {
		m := Message{ID: "1", Aggregate: "order", Key: "7", Type: "created", Payload: []byte("p"), Headers: map[string]string{"tenant": "a", "x-b": "c"}}
		change(&m)
		return m
	}
	await.Must(t, r.handle(t.Context(), event(func(*Message) {})))
	for name, tc := range map[string]struct {
		other  bool
		change func(*Message)
	}{
		"the same":             {false, func(*Message) {}},
		"another attempt":      {false, func(m *Message) { m.Attempt, m.Source, m.FirstFailed = 2, "retry", time.Now() }},
		"another trace":        {false, func(m *Message) { m.Headers["traceparent"], m.Headers["tracestate"] = "x", "y" }},
		"sent again":           {false, func(m *Message) { m.Headers["cdc_position"], m.Headers["cdc_replay"] = "1", "2" }},
		"another run":          {false, func(m *Message) { m.Headers["__debezium.context.runId"] = "x" }},
		"through a shovel":     {false, func(m *Message) { m.Headers["x-shovelled-timestamp"], m.Headers["x-opt-t"] = "1", "2" }},
		"another header":       {true, func(m *Message) { m.Headers["tenant"] = "b" }},
		"a header more":        {true, func(m *Message) { m.Headers["z"] = "" }},
		"a header less":        {true, func(m *Message) { delete(m.Headers, "tenant") }},
		"name longer":          {true, func(m *Message) { m.Headers = map[string]string{"tenanta": "", "x-b": "c"} }},
		"another aggregate":    {true, func(m *Message) { m.Aggregate = "bill" }},
		"key for type":         {true, func(m *Message) { m.Key, m.Type = "7\x00created", "" }},
		"type into payload":    {true, func(m *Message) { m.Type, m.Payload = "created\x00", []byte("p")[:0] }},
		"headers into payload": {true, func(m *Message) { m.Payload, m.Headers = []byte("ptenanta"), nil }},
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
	for _, m := range []Message{{Type: "created\x00", Payload: []byte("p")}, {Type: "created", Payload: []byte("\x00p")}} {
		r.published, m.ID = publisher{}, "2"
		await.Must(t, r.handle(t.Context(), m))
	}
	if len(r.published.dead) != 1 {
		t.Error("a zero byte passes from the type into the payload")
	}
}

// Consumers of this version and of the one before, which has one fingerprint, agree while both run:
// on the table of either, whoever was first. On an older table this one does what that one does.
func TestEarlierVersion(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{"its table": "ALTER TABLE processed_messages DROP COLUMN content_hash", "our table": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, write, nil)
			_, err := r.pool.Exec(t.Context(), change)
			await.Must(t, err)
			await.Must(t, r.ready(t.Context()))
			earlier := []byte("order\x007\x00created\x00p")
			_, err = r.pool.Exec(t.Context(), "INSERT INTO processed_messages (service, id, fingerprint) VALUES ('notifier', 'theirs', substr(sha256($1), 1, 8))", earlier)
			await.Must(t, err)
			m := Message{Aggregate: "order", Key: "7", Type: "created", Payload: []byte("p"), Headers: map[string]string{"tenant": "a"}}
			for _, m.ID = range []string{"theirs", "ours", "ours"} {
				await.Must(t, r.handle(t.Context(), m))
			}
			if r.outcomes(duplicate) != 2 || r.outcomes(success) != 1 {
				t.Errorf("%d duplicates and %d successes, want 2 and 1", r.outcomes(duplicate), r.outcomes(success))
			}
			if n := r.count(t, "SELECT count(*) FROM processed_messages WHERE service = 'notifier' AND id = 'ours' AND coalesce(fingerprint, substr(sha256($1), 1, 8)) = substr(sha256($1), 1, 8)", earlier); n != 1 {
				t.Error("the version before takes our event for another one")
			}
			m.Payload = []byte("other")
			for _, m.ID = range []string{"theirs", "ours"} {
				await.Must(t, r.handle(t.Context(), m))
			}
			if r.outcomes(deadLettered) != 2 {
				t.Errorf("%d dead letters, want 2", r.outcomes(deadLettered))
			}
		})
	}
	// a later version has another hash, and nothing for this one
	r := newRig(t, write, nil)
	_, err := r.pool.Exec(t.Context(), "INSERT INTO processed_messages VALUES ('notifier', '1', NULL, now(), '\\x0300')")
	await.Must(t, err)
	await.Must(t, r.handle(t.Context(), Message{ID: "1"}))
	if r.outcomes(duplicate) != 1 {
		t.Error("what a later version has recorded is no duplicate")
	}
}

// A handler that goes on after ctx has ended is named, again each minute, and no more once it has
// returned.
func TestDeafHandler(t *testing.T) {
	t.Parallel()
	registered, err := newMetrics(prometheus.NewRegistry(), "notifier", nil)
	await.Must(t, err)
	synctest.Test(t, func(t *testing.T) {
		var said text
		in := &Inbox{metrics: registered, cfg: Config{Timeout: 30 * time.Second, Log: slog.New(slog.NewTextHandler(&said, nil))}}
		for runs, lines := range map[time.Duration]int{34 * time.Second: 0, 36 * time.Second: 1, 156 * time.Second: 3} {
			said = text{}
			in.cfg.Handler = func(context.Context, pgx.Tx, Message) error { <-time.After(runs); return nil }
			await.Must(t, in.call(t.Context(), nil, Message{ID: "7"}))
			<-time.After(time.Hour)
			if n := strings.Count(said.String(), "still runs"); n != lines || n != strings.Count(said.String(), "event_id=7") {
				t.Errorf("a handler that runs for %s: %d lines, want %d:\n%s", runs, n, lines, &said)
			}
		}
	})
}
