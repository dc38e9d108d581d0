// The transaction that has an order and its event.

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// schema has the tables of this service. A migration tool would run it.
var schema = `
CREATE TABLE IF NOT EXISTS customers (name text PRIMARY KEY, orders bigint NOT NULL);
CREATE TABLE IF NOT EXISTS orders (
    id uuid PRIMARY KEY,
    customer text NOT NULL REFERENCES customers,
    number bigint NOT NULL,
    item text NOT NULL,
    UNIQUE (customer, number)
);
` + outbox.Schema()

// order is what the client sends, and what the event says. The client makes the id: a request that
// it repeats, because no answer came, is the same order.
type order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Number   int64  `json:"number"` // 1 is the customer's first order; made here
	Item     string `json:"item"`
}

// Both roll a request back: one that has come before, and one with the id of another order.
var (
	errRepeated = errors.New("the order is there")
	errTaken    = errors.New("the id is that of another order")
)

// place commits the order together with its event: both are there, or neither. The customer's row
// is locked until the COMMIT, so that the events of one customer are in the order of their numbers.
func (s *service) place(ctx context.Context, o order) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `INSERT INTO customers (name, orders) VALUES ($1, 1)
			ON CONFLICT (name) DO UPDATE SET orders = customers.orders + 1 RETURNING orders`, o.Customer).Scan(&o.Number)
		if err != nil {
			return fmt.Errorf("count orders of the customer: %w", err)
		}
		tag, err := tx.Exec(ctx, `INSERT INTO orders (id, customer, number, item) VALUES ($1, $2, $3, $4)
			ON CONFLICT (id) DO NOTHING`, o.ID, o.Customer, o.Number, o.Item)
		if err != nil {
			return fmt.Errorf("insert order: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return sameOrder(ctx, tx, o)
		}
		return s.events.Write(ctx, tx, outbox.Event{Aggregate: "order", Key: o.Customer, Type: "created", Payload: o})
	})
}

// sameOrder tells a repeated request from one that uses an id again.
func sameOrder(ctx context.Context, tx pgx.Tx, o order) error {
	var same bool
	err := tx.QueryRow(ctx, "SELECT customer = $2 AND item = $3 FROM orders WHERE id = $1", o.ID, o.Customer, o.Item).Scan(&same)
	switch {
	case err != nil:
		return fmt.Errorf("read order: %w", err)
	case !same:
		return errTaken
	}
	return errRepeated
}
