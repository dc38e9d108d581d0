package rabbit_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
)

// Two processes of a service, one of which loses its connection again and again: each event has its
// effect once, though each is sent twice. With a single active consumer the order of each key is
// kept, also from one process to the other.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"single active consumer": false, "shared": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.rabbit.Shared, r.inbox.Concurrency, r.rabbit.Prefetch = shared, 3, 12
			proxy, err := netproxy.Start(r.broker.Addr())
			r.must(err)
			t.Cleanup(proxy.Close)
			direct := r.consumer()
			r.must(direct.Declare(r.ctx))
			u, err := url.Parse(r.url)
			r.must(err)
			u.Host = proxy.Addr()
			r.rabbit.URL = u.String()
			unlucky := r.consumer()

			const keys, events = 5, 20
			for key := range keys { // those of a key one after another: several are here at a time
				for n := range events {
					e := event(fmt.Sprintf("%d-%02d", key, n), fmt.Sprint(key))
					r.publish(e, e)
				}
			}
			stop := r.run(unlucky)
			for part := 1; part <= 3; part++ {
				await.Until(t, "effects", func() bool { return r.count() >= part*20 })
				if part == 1 {
					r.run(direct)
				}
				proxy.Cut()
				r.must(proxy.Restore())
			}
			await.Until(t, "all effects", func() bool { return r.count() >= keys*events }, func() any { return r.count() })
			stop()
			r.depthOf("mailer", 0)
			var disorder, twice int
			r.must(r.pool.QueryRow(r.ctx, "SELECT count(*) FILTER (WHERE id < before), count(*) FILTER (WHERE id = before) FROM (SELECT id, max(id) OVER (PARTITION BY key ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM effect) AS e").Scan(&disorder, &twice))
			if n := r.count(); n != keys*events || twice > 0 {
				t.Errorf("%d effects of %d events, %d twice in a row", n, keys*events, twice)
			}
			if disorder > 0 && !shared {
				t.Errorf("%d effects out of order", disorder)
			}
		})
	}
}

func (r *rig) count() (n int) {
	r.t.Helper()
	r.must(r.pool.QueryRow(r.ctx, "SELECT count(*) FROM effect").Scan(&n))
	return n
}

// blocking is a handler that says when it has begun, and waits for a word.
type blocking struct {
	begun, goOn chan struct{}
	calls       atomic.Int32
}

func newBlocking() *blocking {
	return &blocking{begun: make(chan struct{}, 10), goOn: make(chan struct{})}
}

func (b *blocking) handle(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	b.calls.Add(1)
	b.begun <- struct{}{}
	select {
	case <-b.goOn:
		return effect(ctx, tx, m)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A consumer that is told to stop lets the handler end that runs, acknowledges its message, and
// begins no more. After Grace the handler is cancelled, and its message comes again.
func TestStop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := newBlocking()
	r.inbox.Handler, r.inbox.Concurrency, r.rabbit.Prefetch = b.handle, 1, 10
	c := r.consumer()
	r.must(c.Declare(r.ctx))
	r.publish(event("1", "a"), event("2", "a"), event("3", "a"))
	cancel, ended := r.start(c)
	<-b.begun
	cancel()
	b.goOn <- struct{}{}
	ended()
	r.wantEffects("1")
	if n := b.calls.Load(); n != 1 {
		t.Errorf("%d messages were begun", n)
	}
	r.depthOf("mailer", 2)

	r.inbox.Grace = time.Millisecond
	stop := r.run(r.consumer())
	<-b.begun
	stop()
	r.depthOf("mailer", 2)
	close(b.goOn)
	r.run(r.consumer())
	r.wantEffects("1", "2", "3")
}

// A handler that does not end with its context is left behind after Grace: Run says so. One of a
// connection that was lost is waited for.
func TestStuck(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var said lines
	b := newBlocking()
	t.Cleanup(func() { close(b.goOn) }) // the pool is closed after it
	r.inbox.Log = slog.New(slog.NewTextHandler(&said, nil))
	r.inbox.Handler = func(_ context.Context, tx pgx.Tx, m inbox.Message) error {
		return b.handle(context.Background(), tx, m)
	}
	r.inbox.Grace = time.Millisecond
	proxy, err := netproxy.Start(r.broker.Addr())
	r.must(err)
	t.Cleanup(proxy.Close)
	u, err := url.Parse(r.url)
	r.must(err)
	u.Host = proxy.Addr()
	r.rabbit.URL = u.String()
	c := r.consumer()
	hurry(c, 10*time.Millisecond)
	r.must(c.Declare(r.ctx))
	r.publish(event("1", "a"))
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	<-b.begun
	proxy.Cut()
	await.Until(t, "the wait for the handler", func() bool { return said.has("nothing is received until they do") })
	if !said.has("messages are not received") {
		t.Errorf("the reason is not said:\n%s", said.text())
	}
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "1 handlers still run") {
		t.Errorf("stopped with %v", err)
	}
}

// lines are those of a log.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) has(text string) bool { return strings.Contains(l.text(), text) }

// A process that is told to stop hands over only when its handlers have ended: the next process
// begins nothing of their keys before.
func TestHandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := newBlocking()
	// The broker keeps the others.
	r.inbox.Handler, r.inbox.Concurrency, r.rabbit.Prefetch = b.handle, 1, 1
	leaving := r.consumer()
	r.must(leaving.Declare(r.ctx))
	r.publish(event("1", "a"), event("2", "a"), event("3", "a"))
	cancel, ended := r.start(leaving)
	<-b.begun
	r.metrics = prometheus.NewRegistry()
	r.inbox.Handler, r.inbox.Registerer = effect, r.metrics
	r.run(r.consumer())
	await.Until(t, "the other process", func() bool { return r.metric("cdc_relay_inbox_broker_up") == 1 })
	cancel()
	for range 100 { // of the broker's answers, in which the other process would have had the next
		r.depth("mailer")
	}
	close(b.goOn)
	ended()
	r.wantEffects("1", "2", "3")
}

// Processes of other sizes have one Prefetch by default. With a smaller one the second would take
// the first messages alone, and RabbitMQ would put them back behind the others.
func TestOrderAfterSmallerProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := newBlocking()
	r.inbox.Handler, r.inbox.Grace = b.handle, time.Millisecond
	r.must(r.consumer().Declare(r.ctx))
	var want []string
	for n := range 8 {
		want = append(want, fmt.Sprintf("%02d", n))
		r.publish(event(want[n], "a"))
	}
	for _, concurrency := range []int{4, 1} {
		r.inbox.Concurrency, r.inbox.Registerer = concurrency, prometheus.NewRegistry()
		stop := r.run(r.consumer())
		<-b.begun
		stop()
		r.depthOf("mailer", len(want))
	}
	r.inbox.Handler, r.inbox.Registerer = effect, prometheus.NewRegistry()
	r.run(r.consumer())
	r.wantEffects(want...)
}
