// The end of the shop: everything is settled, read, judged, and kept open if that is wished.

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// judge closes the shop, waits until no message is anywhere, and compares the databases.
func (s *shop) judge(ctx context.Context) (verdict, error) {
	s.Say("The shop is closed. Waiting until no message is left, and reading both databases.")
	s.closeShop()
	// What is not notified by now is lost: the verdict says so.
	if err := s.catchUp(ctx); err != nil && ctx.Err() != nil {
		return verdict{}, err
	}
	if err := s.settle(ctx); err != nil {
		return verdict{}, err
	}
	s.endNumbers()
	e := evidence{answered: s.customers.answered(), replayed: map[string]bool{s.poison: true}}
	var err error
	if e.orders, err = s.readOrders(ctx); err != nil {
		return verdict{}, err
	}
	if e.notifications, err = s.readNotifications(ctx); err != nil {
		return verdict{}, err
	}
	if e.deadLetters, err = s.broker.deadLetters(ctx); err != nil {
		return verdict{}, err
	}
	return judge(e), nil
}

// settle stops notification-service when the queues are empty. What was with it and not begun is in
// a queue again then, so it is started again until nothing is.
func (s *shop) settle(ctx context.Context) error {
	for range 10 {
		err := s.until(ctx, "the queues to be empty", func() (bool, error) {
			n, err := s.broker.waiting(ctx)
			return n == 0, err
		})
		if err != nil {
			return err
		}
		if err := s.countRepeats(ctx); err != nil {
			return err
		}
		if err := s.notifications.stop(ctx); err != nil {
			return err
		}
		n, err := s.broker.waiting(ctx)
		if n == 0 || err != nil {
			return err
		}
		if err := s.notifications.start(ctx); err != nil {
			return err
		}
	}
	return errors.New("notification-service leaves messages behind each time it is stopped")
}

// conclude prints the verdict, and leaves everything running if that is wished.
func (s *shop) conclude(ctx context.Context, v verdict) error {
	s.Print(s.lines(v)...)
	var err error
	if !v.good() {
		s.Print(s.logs()...)
		err = errors.New("the verdict is bad")
	}
	if s.keep {
		err = errors.Join(err, s.keepOpen(ctx))
	}
	return err
}

// keepOpen leaves everything running until ctx ends, and prints where it is.
func (s *shop) keepOpen(ctx context.Context) error {
	if err := s.notifications.start(ctx); err != nil {
		return err
	}
	s.Print(
		"  Everything still runs (KEEP=1). Ctrl-C stops it.",
		"",
		fmt.Sprintf("  orders         %s, psql '%s'", s.orders.url(), s.ordersDB.Config().ConnString()),
		fmt.Sprintf("  notifications  %s/metrics, psql '%s'", s.notifications.url(), s.notificationsDB.Config().ConnString()),
		fmt.Sprintf("  %-14s %s", s.broker.name(), s.broker.addr()),
		fmt.Sprintf("  relay          %s/metrics", s.relay.Admin()),
		"",
		"  Order, and look for the notification (the next order needs another id):",
		"",
		fmt.Sprintf("  curl %s/orders -d '{\"id\": %q, \"customer\": \"me\", \"item\": \"lamp\"}'", s.orders.url(), uuid.NewString()),
		fmt.Sprintf("  psql '%s' -c \"SELECT * FROM notifications WHERE customer = 'me'\"", s.notificationsDB.Config().ConnString()),
		"",
	)
	<-ctx.Done()
	return nil
}
