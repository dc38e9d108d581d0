// Command demo shows the relay at work: a real PostgreSQL and a real broker (RabbitMQ, or Kafka
// with -sink kafka), an order service, a consumer; an order that the broker does not take, a broker
// that goes away for some seconds, and an exchange deleted by mistake (with Kafka: a right taken
// away). It ends by itself with the checker's verdict.
//
// Exit codes: 0 nothing was lost or out of order, 1 something was, or the demo could not be given,
// 130 interrupted. KEEP=1 leaves everything running after the verdict, until Ctrl-C. WORST=1 adds
// two worse days: the primary is killed and its standby promoted, and the slot is dropped under
// load, and recovered.
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
		fmt.Fprintf(os.Stderr, "demo: -sink %s: it is rabbitmq or kafka\n", strings.Join(append([]string{*name}, flag.Args()...), " "))
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// a second signal ends this process at once; its watcher ends the servers
	context.AfterFunc(ctx, stop)
	d := &demo{Console: console.New(os.Stdout), programs: programs{broker: open(), worst: isSet("WORST")}, length: fullLength, keep: isSet("KEEP")}
	err := d.run(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errInterrupted):
		return 130
	}
	fmt.Fprintln(os.Stderr, "demo:", err)
	return 1
}

// isSet reports whether a switch of the environment is on.
func isSet(name string) bool {
	value := os.Getenv(name)
	return value != "" && value != "0"
}
