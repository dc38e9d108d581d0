// What happens to the shop.

package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
)

// killInHandler kills the consumer while its handler runs. A lock on a table that the handler reads
// holds the messages there.
func (s *shop) killInHandler(ctx context.Context) error {
	lock, err := s.notificationsDB.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	defer lock.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it has written nothing
	if _, err := lock.Exec(ctx, "LOCK TABLE mailer"); err != nil {
		return fmt.Errorf("lock table mailer: %w", err)
	}
	err = s.until(ctx, "two messages in the handler", func() (bool, error) {
		err := s.notificationsDB.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'mailer'::regclass").Scan(&s.rolledBack)
		return s.rolledBack >= 2, err
	})
	if err != nil {
		return err
	}
	s.Say("Killing notification-service (SIGKILL) with %d messages in its handler.", s.rolledBack)
	if err := s.killConsumer(ctx); err != nil {
		return err
	}
	if err := lock.Rollback(ctx); err != nil {
		return fmt.Errorf("release table mailer: %w", err)
	}
	s.Say("PostgreSQL rolls back what they wrote, with the record that they are processed. %s", s.broker.again())
	if err := s.restartConsumer(ctx); err != nil {
		return err
	}
	return s.flow(ctx)
}

// killConsumer kills notification-service, and remembers how many messages came again to it.
func (s *shop) killConsumer(ctx context.Context) error {
	if err := s.countRepeats(ctx); err != nil {
		return err
	}
	return s.notifications.kill()
}

// countRepeats adds what came again to this process of notification-service.
func (s *shop) countRepeats(ctx context.Context) error {
	n, err := s.notifications.counter(ctx, "cdc_relay_inbox_messages_total", `outcome="duplicate"`)
	s.again += n
	return err
}

func (s *shop) restartConsumer(ctx context.Context) error {
	began := time.Now()
	if err := s.notifications.start(ctx); err != nil {
		return err
	}
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	s.Say("notification-service runs again (process %d), and has caught up after %s.", s.notifications.pid(), console.Short(time.Since(began)))
	return nil
}

// ackBytes is the size of a frame with an acknowledgement (AMQP 0-9-1, basic.ack): 7 bytes before
// its payload, 4 of class and method, 8 of the delivery tag, 1 of flags, and 1 at its end.
const ackBytes = 21

// loseAcknowledgements kills the consumer after its COMMITs, when the broker has not heard of them.
func (s *shop) loseAcknowledgements(ctx context.Context) error {
	way := s.broker.way()
	if way == nil {
		return nil
	}
	way.Hold(netproxy.Up)
	err := s.until(ctx, "five acknowledgements on the network", func() (bool, error) { return way.HeldBytes(netproxy.Up) >= 5*ackBytes, nil })
	if err != nil {
		return err
	}
	s.Say("Killing notification-service again: it has committed messages, and the network kept its acknowledgements.")
	if err := s.killConsumer(ctx); err != nil {
		return err
	}
	way.Reset() // what the network kept is lost
	way.Release(netproxy.Up)
	if err := s.restartConsumer(ctx); err != nil {
		return err
	}
	if err := s.flow(ctx); err != nil { // they came first, and have been processed by then
		return err
	}
	n, err := s.notifications.counter(ctx, "cdc_relay_inbox_messages_total", `outcome="duplicate"`)
	if err != nil {
		return err
	}
	s.Say("%d messages came again. Their effect was there: they were acknowledged, and nobody was notified twice.", n)
	return nil
}

// restartBroker stops the broker for a while.
func (s *shop) restartBroker(ctx context.Context) error {
	s.Say("Stopping %s.", s.broker.name())
	stopped := time.Now()
	if err := s.broker.stop(ctx); err != nil {
		return err
	}
	s.Say("%s is down: customers notice nothing. Orders and their events are committed, and wait in PostgreSQL.", s.broker.name())
	if err := wait(ctx, s.length.down); err != nil {
		return err
	}
	if err := s.broker.startAgain(ctx); err != nil {
		return err
	}
	s.brokerAway = time.Since(stopped)
	back := time.Now()
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	s.Say("%s is back after %s; all orders were notified %s later.", s.broker.name(), console.Short(s.brokerAway), console.Short(time.Since(back)))
	return s.flow(ctx)
}

const poisonItem, poisonCustomer = "umbrella", "customer-01"

// poisonOrder places an order that notification-service cannot process, and one that follows it.
func (s *shop) poisonOrder(ctx context.Context) error {
	s.Say("A poison order: an umbrella, an item that notification-service does not know.")
	s.poison = uuid.NewString()
	if err := s.customers.order(ctx, s.poison, poisonCustomer, poisonItem, http.StatusCreated); err != nil {
		return err
	}
	if err := s.awaitDeadLetters(ctx, 1); err != nil {
		return err
	}
	next := uuid.NewString()
	if err := s.customers.order(ctx, next, poisonCustomer, items[0], http.StatusCreated); err != nil {
		return err
	}
	if err := s.awaitNotified(ctx, next); err != nil {
		return err
	}
	s.Say("Its error is ErrPermanent: it became a dead letter at once, without a retry. The customer's next order was notified.")
	return s.flow(ctx)
}

func (s *shop) awaitDeadLetters(ctx context.Context, want int) error {
	return s.until(ctx, fmt.Sprintf("%d dead letters", want), func() (bool, error) {
		n, err := s.broker.deadLetters(ctx)
		return n == want, err
	})
}

// mailerOutage has the handler fail with ErrTransient for a while.
func (s *shop) mailerOutage(ctx context.Context) error {
	began := time.Now()
	if err := s.setMailer(ctx, false); err != nil {
		return err
	}
	s.Say("The mailer is down: the handler returns ErrTransient. Attempts follow after %s.", levels)
	if err := wait(ctx, s.length.mailer); err != nil {
		return err
	}
	retries, err := s.notifications.counter(ctx, "cdc_relay_inbox_retries_total", "")
	if err != nil {
		return err
	}
	if err := s.setMailer(ctx, true); err != nil {
		return err
	}
	s.mailerAway = time.Since(began)
	s.Say("The mailer is up again: %s attempts failed, their messages wait in the %s. Later orders overtake them.", console.Thousands(retries), s.broker.later())
	back := time.Now()
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	c, err := s.count(ctx)
	if err != nil {
		return err
	}
	s.Say("All were notified %s later, %s orders by a later attempt. None became a dead letter.", console.Short(time.Since(back)), console.Thousands(c.retried))
	return s.awaitDeadLetters(ctx, 1)
}

func (s *shop) setMailer(ctx context.Context, up bool) error {
	if _, err := s.notificationsDB.Exec(ctx, "UPDATE mailer SET up = $1", up); err != nil {
		return fmt.Errorf("set mailer: %w", err)
	}
	return nil
}

// replayDeadLetter fixes what made the poison order poison, and sends it again.
func (s *shop) replayDeadLetter(ctx context.Context) error {
	if _, err := s.notificationsDB.Exec(ctx, "INSERT INTO items VALUES ($1, 'An Umbrella')", poisonItem); err != nil {
		return fmt.Errorf("add item: %w", err)
	}
	s.Say("Somebody adds the umbrella to the items. One command:")
	s.Say("  $ notification-service -replay")
	if err := s.notifications.replay(ctx); err != nil {
		return err
	}
	if err := s.awaitNotified(ctx, s.poison); err != nil {
		return err
	}
	s.Say("The poison order is notified.")
	return s.awaitDeadLetters(ctx, 0)
}
