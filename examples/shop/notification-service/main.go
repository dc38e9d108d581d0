// Command notification-service writes a notification for each order: once, however often the
// order's event is delivered.
//
// DATABASE_URL is its database, LISTEN its address (by default :8080). AMQP_URL is RabbitMQ, or
// KAFKA_BROKERS has brokers of Kafka. RETRY_LEVELS are the pauses between attempts, such as
// "30s,1m,5m". With -replay it sends its dead letters to itself again, and ends.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/examples/shop/telemetry"
)

// name is that of the queue or the consumer group, and of the owner of dead letters, too.
const name = "notification-service"

func main() {
	replay := flag.Bool("replay", false, "send the dead letters to the service again, and end")
	flag.Parse()
	if err := run(*replay); err != nil {
		slog.Error("notification-service ends", "error", err)
		os.Exit(1)
	}
}

// run processes messages until it is told to stop, or replays.
func run(replay bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	stopTracing, err := telemetry.Trace(ctx, name)
	if err != nil {
		return err
	}
	defer stopTracing()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return fmt.Errorf("read DATABASE_URL: %w", err)
	}
	defer pool.Close()
	c, err := newConsumer(pool)
	if err != nil {
		return err
	}
	if replay {
		n, err := c.replay(ctx)
		slog.Info("dead letters replayed", "messages", n)
		return err
	}
	if _, err := pool.Exec(ctx, schema); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	served := make(chan error, 1)
	go func() {
		served <- telemetry.Serve(ctx, cmp.Or(os.Getenv("LISTEN"), ":8080"), http.NewServeMux())
		stop()
	}()
	err = c.run(ctx)
	stop()
	return errors.Join(err, <-served)
}
