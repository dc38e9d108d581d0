//go:build testall

// A service that consumes, for the dashboard of consumers.

package dashboards

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// startConsumer runs a consumer with load until the test ends, and returns the base URL of its
// metrics. Of its messages some are duplicates, some fail once, and some are poison.
func startConsumer(t *testing.T) string {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), servers.SharedPostgres(t).Database(t))
	must(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), inbox.Schema(""))
	must(t, err)
	broker, metrics := servers.SharedRabbitMQ(t).VHost(t), prometheus.NewRegistry()
	in, err := inbox.New(inbox.Config{
		Service: "mails", Pool: pool, Handler: handle, Levels: []time.Duration{time.Second},
		Registerer: metrics, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	must(t, err)
	c, err := rabbit.New(in, rabbit.Config{URL: broker, Bindings: []rabbit.Binding{{Exchange: "outbox.events", Key: "#"}}})
	must(t, err)
	must(t, c.Declare(t.Context()))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	all.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Errorf("run the consumer: %v", err)
		}
	})
	all.Go(func() {
		if err := publish(ctx, broker); err != nil {
			t.Errorf("publish: %v", err)
		}
	})
	t.Cleanup(func() { stop(); all.Wait() })
	server := httptest.NewServer(promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	return server.URL
}

func handle(_ context.Context, _ pgx.Tx, m inbox.Message) error {
	switch {
	case m.Type == "poison":
		return fmt.Errorf("read order: %w", inbox.ErrPermanent)
	case m.Type == "retried" && m.Attempt == 1:
		return fmt.Errorf("send mail: %w", inbox.ErrTransient)
	}
	return nil
}

// publish sends messages, each twice, until ctx ends.
func publish(ctx context.Context, broker string) error {
	conn, err := amqp.Dial(broker)
	if err != nil {
		return err
	}
	defer conn.CloseDeadline(time.Now().Add(time.Second))
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	types := []string{"fine", "retried", "poison"}
	for n := 0; ; n++ {
		msg := amqp.Publishing{MessageId: fmt.Sprint(n / 2), Type: types[n/2%len(types)], Timestamp: time.Now()}
		if err := ch.PublishWithContext(ctx, "outbox.events", "order", false, false, msg); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
