// What becomes of an order's event: a notification in the database.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// schema has the tables of this service. An order's id is not unique in notifications: that each
// has one is the work of the inbox. items are what a mail calls them, and mailer says whether
// mails are taken.
var schema = `
CREATE TABLE notifications (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id uuid NOT NULL,
    customer text NOT NULL,
    number bigint NOT NULL,
    message text NOT NULL,
    attempt int NOT NULL
);
CREATE TABLE items (name text PRIMARY KEY, title text NOT NULL);
INSERT INTO items VALUES ('book', 'A Book'), ('chair', 'A Chair'), ('lamp', 'A Lamp');
CREATE TABLE mailer (up boolean NOT NULL);
INSERT INTO mailer VALUES (true);
` + inbox.Schema("")

// notify is the handler. Its effect is the row, which is committed together with the record that
// the event is processed. A mail that was sent here would be sent again when the COMMIT fails:
// something else mails what is in the table.
//
// An item that nobody knows stays unknown, so the error is permanent. The mailer may come back.
func notify(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	var o struct {
		ID, Customer, Item string
		Number             int64
	}
	if err := json.Unmarshal(m.Payload, &o); err != nil {
		return fmt.Errorf("read order: %w: %w", err, inbox.ErrPermanent)
	}
	var title string
	err := tx.QueryRow(ctx, "SELECT title FROM items WHERE name = $1", o.Item).Scan(&title)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("item %q is unknown: %w", o.Item, inbox.ErrPermanent)
	} else if err != nil {
		return fmt.Errorf("read item: %w", err)
	}
	var up bool
	if err := tx.QueryRow(ctx, "SELECT up FROM mailer").Scan(&up); err != nil {
		return fmt.Errorf("ask for the mailer: %w", err)
	}
	if !up {
		return fmt.Errorf("the mailer is down: %w", inbox.ErrTransient)
	}
	_, err = tx.Exec(ctx, "INSERT INTO notifications (order_id, customer, number, message, attempt) VALUES ($1, $2, $3, $4, $5)",
		o.ID, o.Customer, o.Number, "Thank you for ordering "+title, m.Attempt)
	return err
}

// createTables creates the tables unless they are there. A migration tool would do it.
func createTables(ctx context.Context, pool *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var there bool
		err := tx.QueryRow(ctx, "SELECT to_regclass('notifications') IS NOT NULL FROM pg_advisory_xact_lock(1)").Scan(&there)
		if err != nil || there {
			return err
		}
		_, err = tx.Exec(ctx, schema)
		return err
	})
}
