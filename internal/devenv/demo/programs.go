// The programs of the demo: the servers, the relay, the consumer.

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// programs are the servers and the relay. A nil field has not been started.
type programs struct {
	broker   broker // with its consumer; never nil
	postgres *pgserver.Postgres
	pair     *pgserver.Pair // of the worst day, in place of postgres
	binary   string         // of the relay
	relay    *runner.Relay
	db       string // URL of the shop's database
	token    string // of the relay's API, of this run
	worst    bool   // a standby is promoted, and then the slot is lost
}

const (
	database = "shop"
	slot     = "cdc_relay"

	diskGuard = 24   // MiB of WAL at which the disk guard begins, in the worst case
	diskRoom  = 1024 // MiB that the relay's tables may have then
)

// startServers starts both servers and builds the relay, side by side. say is called for each that
// is ready.
func (p *programs) startServers(ctx context.Context, say func(format string, args ...any)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if p.worst {
			err = p.startPair(ctx)
		} else if p.postgres, err = pgserver.Start(ctx, pgserver.Options{}); err == nil {
			p.db = p.postgres.URL(database)
		}
		if err != nil {
			return err
		}
		if err := errors.Join(p.primary().CreateDatabase(ctx, database), load.CreateOutbox(ctx, p.db), checker.LogRetryTable(ctx, p.db)); err != nil {
			return err
		}
		say("PostgreSQL answers on %s; the outbox table is created.", p.primary().Addr())
		return nil
	})
	group.Go(func() error {
		if err := p.broker.start(ctx); err != nil {
			return err
		}
		say("%s answers on %s.", p.broker.words().name, p.broker.addr())
		return nil
	})
	group.Go(func() (err error) {
		if p.binary, err = runner.RelayBinary(ctx); err != nil {
			return err
		}
		say("cdc-relay is built from this checkout.")
		return nil
	})
	return group.Wait()
}

// startPair starts a primary and its standby. All who go to the database have both addresses and
// take the one that can be written to.
func (p *programs) startPair(ctx context.Context) error {
	bin, err := pgserver.FailoverBinDir(ctx)
	if err != nil {
		return err
	}
	// by the time of a row's commit recover orders the rows
	p.pair, err = pgserver.StartPair(ctx, pgserver.Options{BinDir: bin, Settings: map[string]string{"track_commit_timestamp": "on"}})
	if err != nil {
		return err
	}
	// No commit that the order service was told of is lost with the primary, so the verdict counts
	// all of them.
	if err := p.pair.Primary.Set(ctx, "synchronous_standby_names", "walreceiver"); err != nil {
		return err
	}
	u, err := url.Parse(p.pair.Primary.URL(database))
	if err != nil {
		return fmt.Errorf("parse the address of PostgreSQL: %w", err)
	}
	u.Host = strings.Join(p.pair.Addrs(), ",")
	u.RawQuery += "&target_session_attrs=read-write"
	p.db = u.String()
	return nil
}

// primary is the server that can be written to.
func (p *programs) primary() *pgserver.Postgres {
	if p.pair != nil {
		return p.pair.Primary
	}
	return p.postgres
}

// startRelay starts the relay as a process of its own and returns when it is ready.
func (p *programs) startRelay(ctx context.Context) (err error) {
	p.token = rand.Text()
	if p.relay, err = runner.LaunchRelay(p.binary, p.config(), "--hold-on-fatal"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return p.relay.WaitReady(ctx)
}

// config is the relay's configuration; everything else has its default.
func (p *programs) config() string {
	config := fmt.Sprintf("source:\n  url: %s\n  slot: %s\nsink:\n%s", p.db, slot, p.broker.sink())
	if p.token != "" {
		config = fmt.Sprintf("admin: {tokens: [{name: demo, role: operate, value: %q}]}\n", p.token) + config
	}
	if p.worst {
		config = fmt.Sprintf("guard: {defer_at: %dMiB, max_bytes: %dMiB}\n", diskGuard, diskRoom) + config
	}
	return config
}

// operator runs a command of the relay, and returns the command line.
func (p *programs) operator(ctx context.Context, args ...string) (typed string, err error) {
	typed = "cdc-relay " + strings.Join(args, " ")
	result, err := runner.RunCommand(ctx, p.binary, p.config(), append(args, "--wait", "1m")...)
	if err == nil && result.Code != 0 {
		err = fmt.Errorf("%s: exit code %d: %s%s", typed, result.Code, result.Stdout, result.Stderr)
	}
	return typed, err
}

// lastLines is the end of the relay's log; "" when there is no relay yet.
func (p *programs) lastLines() string {
	if p.relay == nil {
		return ""
	}
	const most = 10
	lines := strings.Split(strings.TrimRight(p.relay.Log(), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// close ends everything. The relay is asked to stop in order and killed after a second, the servers
// are killed: their data goes with them.
func (p *programs) close() error {
	var errs []error
	if p.relay != nil {
		errs = append(errs, p.relay.End())
	}
	errs = append(errs, p.broker.close())
	if p.postgres != nil {
		errs = append(errs, p.postgres.Close())
	}
	if p.pair != nil {
		errs = append(errs, p.pair.Close())
	}
	return errors.Join(errs...)
}

// awaitIDs waits until events have arrived at the consumer.
func (p *programs) awaitIDs(ctx context.Context, ids ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.broker.consumer().WaitIDs(ctx, ids)
}

// patience is how long a step waits for an expected event, or for something to move.
const patience = 2 * time.Minute
