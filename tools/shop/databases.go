// What the databases of the two services say, and the line of numbers.

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// counts are the numbers that the shop shows.
type counts struct{ orders, notifications, retried int }

// count asks for the notifications first, so that never more are notified than were ordered.
func (p *programs) count(ctx context.Context) (c counts, err error) {
	err = p.notificationsDB.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE attempt > 1) FROM notifications").Scan(&c.notifications, &c.retried)
	if err != nil {
		return c, fmt.Errorf("count notifications: %w", err)
	}
	if err := p.ordersDB.QueryRow(ctx, "SELECT count(*) FROM orders").Scan(&c.orders); err != nil {
		return c, fmt.Errorf("count orders: %w", err)
	}
	return c, nil
}

const askEvery = 200 * time.Millisecond

// showNumbers shows numbers until ctx ends.
func (s *shop) showNumbers(ctx context.Context) {
	for every(ctx, askEvery) {
		c, err := s.count(ctx)
		if err != nil {
			continue // the next time
		}
		text := fmt.Sprintf("orders %s, notifications %s, on the way %s",
			console.Thousands(c.orders), console.Thousands(c.notifications), console.Thousands(max(0, c.orders-c.notifications)))
		if c.retried > 0 {
			text += ", of a later attempt " + console.Thousands(c.retried)
		}
		s.Show(text)
	}
}

// readOrders reads all orders.
func (p *programs) readOrders(ctx context.Context) ([]order, error) {
	list, err := read(ctx, p.ordersDB, "SELECT id::text, customer, number FROM orders ORDER BY customer, number", func(row pgx.CollectableRow) (o order, err error) {
		err = row.Scan(&o.id, &o.customer, &o.number)
		return o, err
	})
	if err != nil {
		return nil, fmt.Errorf("read orders: %w", err)
	}
	return list, nil
}

// readNotifications reads all notifications as they were written. One customer's are written one
// after the other.
func (p *programs) readNotifications(ctx context.Context) ([]notification, error) {
	list, err := read(ctx, p.notificationsDB, "SELECT order_id::text, customer, number, attempt FROM notifications ORDER BY n", func(row pgx.CollectableRow) (n notification, err error) {
		err = row.Scan(&n.orderID, &n.customer, &n.number, &n.attempt)
		return n, err
	})
	if err != nil {
		return nil, fmt.Errorf("read notifications: %w", err)
	}
	return list, nil
}

// read reads all rows of a query.
func read[T any](ctx context.Context, db *pgxpool.Pool, query string, scan func(pgx.CollectableRow) (T, error), args ...any) ([]T, error) {
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// awaitNotified waits until orders have a notification.
func (s *shop) awaitNotified(ctx context.Context, ids ...string) error {
	missing := map[string]bool{}
	for _, id := range ids {
		missing[id] = true
	}
	return s.until(ctx, fmt.Sprintf("the notifications of %d orders", len(ids)), func() (bool, error) {
		found, err := read(ctx, s.notificationsDB, "SELECT order_id::text FROM notifications WHERE order_id = ANY($1::uuid[])", pgx.RowTo[string], slices.Collect(maps.Keys(missing)))
		for _, id := range found {
			delete(missing, id)
		}
		return len(missing) == 0, err
	})
}

// catchUp waits until all orders of now have a notification, but for the poison.
func (s *shop) catchUp(ctx context.Context) error {
	orders, err := s.readOrders(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for _, o := range orders {
		if o.id != s.poison {
			ids = append(ids, o.id)
		}
	}
	return s.awaitNotified(ctx, ids...)
}

// until waits until done says so.
func (s *shop) until(ctx context.Context, what string, done func() (bool, error)) error {
	if err := processes.Poll(ctx, 20*time.Millisecond, done); err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

// every waits and reports true, or false as soon as ctx ends.
func every(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// flow lets orders come, and nothing happen, for a while.
func (s *shop) flow(ctx context.Context) error { return wait(ctx, s.length.flow) }

func wait(ctx context.Context, d time.Duration) error {
	if !every(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
