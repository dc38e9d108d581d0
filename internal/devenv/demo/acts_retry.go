// The acts about the retry table: an order that the broker refuses, and an operator's mistake.

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/demo/display"
)

// retryTable is what these acts have shown.
type retryTable struct {
	poisonID string
	number   int64         // of its dead letter
	died     time.Duration // from the poison's commit to its dead letter
	most     int           // events that were deferred at a time
	waited   time.Duration // from the mistake until it was undone
}

const (
	poisonKey   = "poison"
	poisonBytes = 2 * smallLimit
)

// poison is an order too large for the broker, and two that follow it.
func (s *stage) poison(ctx context.Context) error {
	words := s.cast.broker.words()
	s.enter(display.Poisoned, fmt.Sprintf("An order of %s comes: %s takes none over %s.", display.Size(poisonBytes), words.name, display.Size(int64(words.limit))))
	s.Say(fmt.Sprintf("A poison order: %s, and %s is %s.", display.Size(poisonBytes), words.limited, display.Size(int64(words.limit))))
	id, err := s.order(ctx, 1, poisonBytes)
	if err != nil {
		return err
	}
	s.poisonID = id
	if err := s.until(ctx, "the poison to be a dead letter", func(now display.Sample) bool { return now.Dead > 0 }); err != nil {
		return err
	}
	if s.died, err = s.diedAfter(ctx); err != nil {
		return err
	}
	s.Say(fmt.Sprintf("It is dead letter %d after %s. Nothing stands still for it.", s.number, display.Short(s.died)))
	var onDeadLetter []string
	for seq := 2; seq <= 3; seq++ {
		id, err := s.order(ctx, seq, 0)
		if err != nil {
			return err
		}
		onDeadLetter = append(onDeadLetter, id)
	}
	err = bounded(ctx, catchUpWithin, func(ctx context.Context) error { return s.cast.broker.consumer().WaitIDs(ctx, onDeadLetter) })
	if err != nil {
		return err
	}
	s.Say("Two more events of the same order have arrived: its key goes on.")
	s.tell("The poison order is a dead letter; its key and all others go on.")
	return wait(ctx, s.length.poison)
}

// order commits one event of the poison's order.
func (s *stage) order(ctx context.Context, seq, bytes int) (id string, err error) {
	conn, err := pgx.Connect(ctx, s.cast.db)
	if err != nil {
		return "", fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		VALUES (gen_random_uuid(), 'order', $1, 'placed', jsonb_build_object('key', $1::text, 'seq', $2::int, 'fill', repeat('x', $3))) RETURNING id::text`,
		poisonKey, seq, bytes).Scan(&id)
	if err != nil {
		return "", fmt.Errorf("write order: %w", err)
	}
	return id, nil
}

// diedAfter asks the database for the dead letter's number, and how long it took from the commit to
// it.
func (s *stage) diedAfter(ctx context.Context) (d time.Duration, err error) {
	conn, err := pgx.Connect(ctx, s.cast.db)
	if err != nil {
		return 0, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var seconds float64
	if err := conn.QueryRow(ctx, `SELECT n, extract(epoch FROM died_at - commit_time)::float8 FROM cdc_relay.dead_letter`).Scan(&s.number, &seconds); err != nil {
		return 0, fmt.Errorf("read dead letter: %w", err)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// replay sends the dead letter again, now that the broker takes it.
func (s *stage) replay(ctx context.Context) error {
	words := s.cast.broker.words()
	s.Say(fmt.Sprintf("%s takes larger messages since it was started again. One command:", words.name))
	typed, _, err := s.cast.operator(ctx, "dead-letters", "replay", fmt.Sprint(s.number))
	if err != nil {
		return err
	}
	s.Say("  $ " + typed)
	err = bounded(ctx, catchUpWithin, func(ctx context.Context) error {
		return s.cast.broker.consumer().WaitIDs(ctx, []string{s.poisonID})
	})
	if err != nil {
		return err
	}
	s.Say("The poison order has arrived.")
	s.tell("The poison order has arrived, by one command.")
	return wait(ctx, s.length.after)
}

// mistake is an operator who breaks the relay's destination under load, and notices.
func (s *stage) mistake(ctx context.Context) error {
	words := s.cast.broker.words()
	s.enter(display.Mistaken, "By mistake an operator "+words.mistake+".")
	s.Say("An operator " + words.mistake + ".")
	began := time.Now()
	s.meter.GoAway(began)
	if err := s.cast.broker.mistake(ctx); err != nil {
		return err
	}
	if err := s.until(ctx, "events to be deferred", func(now display.Sample) bool { return now.Deferred > 0 }); err != nil {
		return err
	}
	s.Say("The destination is paused: its events are deferred in PostgreSQL, in order; the slot goes on.")
	s.tell("Paused: events are deferred in PostgreSQL, the slot goes on, and nothing becomes a dead letter.")
	if err := wait(ctx, s.length.mistake); err != nil {
		return err
	}
	s.most = s.probe.Last().Deferred
	if err := s.cast.broker.undo(ctx); err != nil {
		return err
	}
	s.waited = time.Since(began)
	s.Say(fmt.Sprintf("The operator %s: %s events wait.", words.undo, display.Thousands(s.most)))
	s.tell("Fixed: what is deferred is sent, in order, while new orders come.")
	err := s.until(ctx, "all that was deferred to be sent", func(now display.Sample) bool {
		return now.Deferred == 0 && s.meter.Waiting(time.Now().Add(-fresh)) == 0
	})
	if err != nil {
		return err
	}
	s.meter.ComeBack(time.Now())
	s.Say(fmt.Sprintf("All deferred events were sent %s later, in order. None became a dead letter.", display.Short(time.Since(began)-s.waited)))
	s.tell("Drained: events arrive as fast as before.")
	return wait(ctx, s.length.after)
}

// until waits until the probe has seen something, at most catchUpWithin.
func (s *stage) until(ctx context.Context, what string, seen func(display.Sample) bool) error {
	err := bounded(ctx, catchUpWithin, func(ctx context.Context) error {
		for !seen(s.probe.Last()) {
			if err := wait(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("waited %s for %s; the relay's last lines:\n%s", catchUpWithin, what, strings.TrimSpace(s.cast.lastLines()))
	}
	return err
}

// readRetryTable fills in what the database says of the retry table in the end.
func (s *stage) readRetryTable(ctx context.Context, h *checker.History) (err error) {
	if h.RetryTable, err = checker.ReadRetryTable(ctx, s.cast.db, slot); err != nil {
		return err
	}
	h.Stays, err = checker.ReadStays(ctx, s.cast.db, slot)
	return err
}
