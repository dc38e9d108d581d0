// The programs of the demo: the servers, the relay, the load.

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/demo/display"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// cast is everyone who plays: servers, relay, consumer and order service. What is nil has not been
// started.
type cast struct {
	broker   broker // with its consumer; never nil
	postgres *pgserver.Postgres
	binary   string // of the relay
	relay    *runner.Relay
	db       string // URL of the shop's database
}

const (
	database = "shop"
	slot     = "cdc_relay"
)

// startServers starts both servers and builds the relay, all at once; done is called for each that
// is ready.
func (c *cast) startServers(ctx context.Context, done func(who, what string)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if c.postgres, err = pgserver.Start(ctx, pgserver.Options{}); err != nil {
			return err
		}
		c.db = c.postgres.URL(database)
		if err := errors.Join(c.postgres.CreateDatabase(ctx, database), load.CreateOutbox(ctx, c.db), checker.LogRetryTable(ctx, c.db)); err != nil {
			return err
		}
		done(display.PostgresName, "PostgreSQL answers on "+c.postgres.Addr()+"; the outbox table is created")
		return nil
	})
	group.Go(func() error {
		if err := c.broker.start(ctx); err != nil {
			return err
		}
		done(display.BrokerName, c.broker.words().name+" answers on "+c.broker.addr())
		return nil
	})
	group.Go(func() (err error) {
		if c.binary, err = buildRelay(ctx); err != nil {
			return err
		}
		done(display.RelayName, "cdc-relay is built from this checkout")
		return nil
	})
	return group.Wait()
}

// buildRelay returns when ctx ends, even if the compiler has not; the compiler then ends with this
// process.
func buildRelay(ctx context.Context) (string, error) {
	type result struct {
		path string
		err  error
	}
	built := make(chan result, 1)
	go func() {
		path, err := runner.Binary()
		built <- result{path, err}
	}()
	select {
	case r := <-built:
		return r.path, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// startRelay starts the relay as a process of its own and returns when it is ready.
func (c *cast) startRelay(ctx context.Context) (err error) {
	if c.relay, err = runner.LaunchRelay(c.binary, relayConfig(c.db, c.broker.sink())); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return c.relay.WaitReady(ctx)
}

// relayConfig is the relay's configuration; everything else has its default.
func relayConfig(db, sink string) string {
	return fmt.Sprintf("source:\n  url: %s\n  slot: %s\nsink:\n%s", db, slot, sink)
}

// operator runs a command of the relay, and returns how it is typed and what it has printed.
func (c *cast) operator(ctx context.Context, args ...string) (typed, said string, err error) {
	typed = "cdc-relay " + strings.Join(args, " ")
	result, err := runner.RunCommand(ctx, c.binary, relayConfig(c.db, c.broker.sink()), append(args, "--wait", "1m")...)
	if err == nil && result.Code != 0 {
		err = fmt.Errorf("%s: exit code %d: %s%s", typed, result.Code, result.Stdout, result.Stderr)
	}
	return typed, result.Stdout, err
}

// Close ends everyone. The relay is asked to stop in order and killed after a second, the servers
// are killed: their data goes with them.
func (c *cast) Close() error {
	var errs []error
	if c.relay != nil {
		errs = append(errs, c.stopRelay())
	}
	errs = append(errs, c.broker.Close())
	if c.postgres != nil {
		errs = append(errs, c.postgres.Close())
	}
	return errors.Join(errs...)
}

// lastLines is the end of the relay's log; "" when there is no relay yet.
func (c *cast) lastLines() string {
	if c.relay == nil {
		return ""
	}
	const most = 10
	lines := strings.Split(strings.TrimRight(c.relay.Log(), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

func (c *cast) stopRelay() error {
	if err := c.relay.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := c.relay.Exit(ctx); err != nil {
		return c.relay.Kill()
	}
	return nil
}
