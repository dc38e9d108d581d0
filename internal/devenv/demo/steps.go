// What goes wrong in the demo: an order that the broker refuses, a broker that goes away, an
// operator's mistake.

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

const (
	poisonKey   = "poison"
	poisonBytes = 2 * smallLimit
)

// poison is an order too large for the broker, and two that follow it.
func (d *demo) poison(ctx context.Context) error {
	words := d.broker.words()
	d.Say("A poison order: %s, and %s of %s is %s.", console.Size(poisonBytes), words.limited, words.name, console.Size(smallLimit))
	id, err := d.order(ctx, 1, poisonBytes)
	if err != nil {
		return err
	}
	d.found.poisonID = id
	if err := d.until(ctx, "the poison to be a dead letter", func(now sample) bool { return now.dead > 0 }); err != nil {
		return err
	}
	err = pgserver.OnConn(ctx, d.db, func(conn *pgx.Conn) error {
		var seconds float64
		err := conn.QueryRow(ctx, `SELECT n, extract(epoch FROM died_at - commit_time)::float8 FROM cdc_relay.dead_letter`).Scan(&d.found.number, &seconds)
		d.found.died = time.Duration(seconds * float64(time.Second))
		return err
	})
	if err != nil {
		return fmt.Errorf("read dead letter: %w", err)
	}
	d.Say("It is dead letter %d after %s. Nothing stands still for it.", d.found.number, console.Short(d.found.died))
	for seq := 2; seq <= 3; seq++ {
		id, err := d.order(ctx, seq, 0)
		if err == nil {
			err = d.awaitIDs(ctx, id)
		}
		if err != nil {
			return err
		}
	}
	d.Say("Two more events of the same order have arrived: its key goes on.")
	return wait(ctx, d.length.poison)
}

// order commits one event of the poison's order.
func (d *demo) order(ctx context.Context, seq, bytes int) (id string, err error) {
	err = pgserver.OnConn(ctx, d.db, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			VALUES (gen_random_uuid(), 'order', $1, 'placed', jsonb_build_object('key', $1::text, 'seq', $2::int, 'fill', repeat('x', $3))) RETURNING id::text`,
			poisonKey, seq, bytes).Scan(&id)
	})
	if err != nil {
		return "", fmt.Errorf("write order: %w", err)
	}
	return id, nil
}

// outage stops the broker for a while.
func (d *demo) outage(ctx context.Context) error {
	name := d.broker.words().name
	d.Say("Stopping %s.", name)
	stopped := time.Now()
	d.meter.goAway(stopped)
	if err := d.broker.stop(ctx); err != nil {
		return err
	}
	d.Say("%s is down: orders go on, events wait in PostgreSQL's WAL. Nothing can be confirmed, so the slot stands still.", name)
	if err := wait(ctx, d.length.down); err != nil {
		return err
	}
	d.Say("Starting %s again.", name)
	if err := d.broker.startAgain(ctx); err != nil {
		return err
	}
	d.found.away = time.Since(stopped)
	d.Say("%s is back after %s: what waited is sent, in order, then what is new.", name, console.Short(d.found.away))
	return nil
}

// catchUp waits until nothing of the outage waits any more.
func (d *demo) catchUp(ctx context.Context) error {
	back := time.Now()
	if err := d.untilArrived(ctx); err != nil {
		return err
	}
	caughtUp := time.Now()
	d.meter.comeBack(caughtUp)
	d.Say("Caught up %s after %s took connections again.", console.Short(caughtUp.Sub(back)), d.broker.words().name)
	return nil
}

// replay sends the dead letter again, now that the broker takes it.
func (d *demo) replay(ctx context.Context) error {
	d.Say("%s takes larger messages since it was started again. One command:", d.broker.words().name)
	typed, err := d.operator(ctx, "dead-letters", "replay", fmt.Sprint(d.found.number))
	if err != nil {
		return err
	}
	d.Say("  $ %s", typed)
	if err := d.awaitIDs(ctx, d.found.poisonID); err != nil {
		return err
	}
	d.Say("The poison order has arrived.")
	return wait(ctx, d.length.after)
}

// mistake is an operator who breaks the relay's destination under load, and notices.
func (d *demo) mistake(ctx context.Context) error {
	words := d.broker.words()
	d.Say("By mistake an operator %s.", words.mistake)
	began := time.Now()
	d.meter.goAway(began)
	if err := d.broker.mistake(ctx); err != nil {
		return err
	}
	if err := d.until(ctx, "events to be deferred", func(now sample) bool { return now.deferred > 0 }); err != nil {
		return err
	}
	d.Say("The destination is paused: its events are deferred in PostgreSQL, in order; the slot goes on.")
	if err := wait(ctx, d.length.mistake); err != nil {
		return err
	}
	d.found.most = d.numbers.last().deferred
	if err := d.broker.undo(ctx); err != nil {
		return err
	}
	d.found.waited = time.Since(began)
	d.Say("The operator %s: %s events wait. One command, and they are sent in order while new orders come:", words.undo, console.Thousands(d.found.most))
	typed, err := d.operator(ctx, "deferred", "retry", "--all")
	if err != nil {
		return err
	}
	d.Say("  $ %s", typed)
	if err := d.untilNoneDeferred(ctx); err != nil {
		return err
	}
	d.meter.comeBack(time.Now())
	d.Say("All deferred events were sent %s later, in order. None became a dead letter.", console.Short(time.Since(began)-d.found.waited))
	return wait(ctx, d.length.after)
}

// until waits until seen accepts the numbers, and gives up when they stand still.
func (d *demo) until(ctx context.Context, what string, seen func(sample) bool) error {
	last, moved := sample{}, time.Now()
	for now := d.numbers.last(); !seen(now); now = d.numbers.last() {
		// orders are committed, and the lag changes, whatever the relay does
		if now.committed, now.lag = 0, 0; now != last {
			last, moved = now, time.Now()
		}
		if time.Since(moved) > patience {
			return fmt.Errorf("nothing has moved for %s that leads to %s; the relay's last lines:\n%s", patience, what, d.lastLines())
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// untilNoneDeferred waits until what was deferred is sent, and what was committed meanwhile.
func (d *demo) untilNoneDeferred(ctx context.Context) error {
	err := d.until(ctx, "all that was deferred to be sent", func(now sample) bool { return now.deferred == 0 })
	if err != nil {
		return err
	}
	return d.untilArrived(ctx)
}

// untilArrived waits until all has arrived that was committed before now, and then what was
// committed while that was sent. It comes to an end however slow the machine is. To wait until
// nothing is older than half a second did not: where other programs run, the relay may send no
// faster than orders come. An event that does not come at all is an error.
func (d *demo) untilArrived(ctx context.Context) error {
	for range 2 {
		before := time.Now()
		last, moved := d.meter.waiting(before), before
		for left := last; left > 0; left = d.meter.waiting(before) {
			if left != last {
				last, moved = left, time.Now()
			}
			if time.Since(moved) > patience {
				return fmt.Errorf("%s events still wait, and none of them has come for %s; the relay's last lines:\n%s", console.Thousands(left), patience, d.lastLines())
			}
			if err := wait(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}
