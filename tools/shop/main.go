// Command shop shows both ends of the outbox at work: order-service and notification-service of
// examples/shop as processes, with PostgreSQL, a broker and cdc-relay between them. The consumer
// is killed, the broker is restarted, one order is poison, the mailer is away for a while, and the
// dead letter is replayed. It ends by itself with a verdict from both databases.
//
// Exit codes: 0 each order has exactly one notification, 1 the verdict is bad or the shop could
// not be shown, 130 interrupted. KEEP=1 leaves everything running after the verdict, until Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
)

func main() { os.Exit(exitCode()) }

func exitCode() int {
	name := flag.String("sink", "rabbitmq", "the broker: rabbitmq or kafka")
	flag.Parse()
	open, ok := brokers[*name]
	if !ok || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "shop: -sink %s: it is rabbitmq or kafka\n", strings.Join(append([]string{*name}, flag.Args()...), " "))
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// a second signal ends this process at once; its watcher ends the servers
	context.AfterFunc(ctx, stop)
	keep := os.Getenv("KEEP")
	s := &shop{Console: console.New(os.Stdout), programs: programs{broker: open()}, length: fullLength, keep: keep != "" && keep != "0"}
	err := s.run(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errInterrupted):
		return 130
	}
	fmt.Fprintln(os.Stderr, "shop:", err)
	return 1
}
