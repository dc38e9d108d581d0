// The programs of the shop: the servers, the relay, the two services.

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// programs are the servers, the relay and the services. A nil field has not been started.
type programs struct {
	broker   broker // never nil
	env      []string
	postgres *pgserver.Postgres
	relay    *runner.Relay
	binary   string // of the relay

	orders, notifications service
	// the services' databases, to read what they wrote
	ordersDB, notificationsDB *pgxpool.Pool
}

const (
	orderService, notificationService = "order-service", "notification-service"

	ordersDatabase        = "shop_orders"
	notificationsDatabase = "shop_notifications"
	levels                = "1s,2s,5s" // of the retries: shorter than the default, to be seen
)

// startServers starts both servers and builds the programs, side by side. say is called for each
// that is ready.
func (p *programs) startServers(ctx context.Context, say func(format string, args ...any)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if p.postgres, err = pgserver.Start(ctx, pgserver.Options{}); err != nil {
			return err
		}
		for name, pool := range map[string]**pgxpool.Pool{ordersDatabase: &p.ordersDB, notificationsDatabase: &p.notificationsDB} {
			if err := p.postgres.CreateDatabase(ctx, name); err != nil {
				return err
			}
			if *pool, err = pgxpool.New(context.WithoutCancel(ctx), p.postgres.URL(name)); err != nil {
				return err
			}
		}
		say("PostgreSQL answers on %s.", p.postgres.Addr())
		return nil
	})
	group.Go(func() error {
		if err := p.broker.start(ctx); err != nil {
			return err
		}
		say("%s answers on %s.", p.broker.name(), p.broker.addr())
		return nil
	})
	group.Go(func() (err error) {
		for folder, binary := range map[string]*string{
			"examples/shop/order-service": &p.orders.binary, "examples/shop/notification-service": &p.notifications.binary,
		} {
			if *binary, err = runner.Program(ctx, folder); err != nil {
				return err
			}
		}
		if p.binary, err = runner.RelayBinary(ctx); err == nil {
			say("The three programs are built from this checkout.")
		}
		return err
	})
	return group.Wait()
}

// startServices starts the two services and the relay, and returns when all are ready. The consumer
// comes before the relay: an event that no queue takes is refused, as it should be, and deferred.
func (p *programs) startServices(ctx context.Context) (err error) {
	p.orders.name, p.orders.env = orderService, append([]string{"DATABASE_URL=" + p.ordersDB.Config().ConnString()}, p.env...)
	p.notifications.name = notificationService
	p.notifications.env = append(append([]string{"DATABASE_URL=" + p.notificationsDB.Config().ConnString(), "RETRY_LEVELS=" + levels}, p.broker.environment()...), p.env...)
	for _, s := range []*service{&p.orders, &p.notifications} {
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	if p.relay, err = runner.LaunchRelayIn(p.env, p.binary, p.config(), "--hold-on-fatal"); err != nil {
		return err
	}
	return p.relay.WaitReady(ctx)
}

// config is the relay's configuration; everything else has its default.
func (p *programs) config() string {
	return fmt.Sprintf("source:\n  url: %s\nsink:\n%s", p.postgres.URL(ordersDatabase), p.broker.sink())
}

// logs are the last lines of all programs.
func (p *programs) logs() (lines []string) {
	end := func(name, log string) {
		lines = append(lines, "", "the last lines of "+name+":", processes.Tail(strings.TrimSpace(log)))
	}
	for _, s := range []*service{&p.orders, &p.notifications} {
		if s.proc != nil {
			end(s.name, s.log())
		}
	}
	if p.relay != nil {
		end("cdc-relay", p.relay.Log())
	}
	return lines
}

// close ends everything. The relay is asked to stop in order and killed after a second, the others
// are killed: their data goes with them.
func (p *programs) close() error {
	var errs []error
	for _, s := range []*service{&p.orders, &p.notifications} {
		errs = append(errs, s.kill())
	}
	if p.relay != nil {
		errs = append(errs, p.relay.End())
	}
	for _, pool := range []*pgxpool.Pool{p.ordersDB, p.notificationsDB} {
		if pool != nil {
			pool.Close()
		}
	}
	errs = append(errs, p.broker.close())
	if p.postgres != nil {
		errs = append(errs, p.postgres.Close())
	}
	return errors.Join(errs...)
}
