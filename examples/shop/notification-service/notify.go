// What becomes of an order's event: a notification in the database.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// schema has the tables of this service. A migration tool would run it. An order's id is not unique
// in notifications: that each has one is the work of the inbox. items are what a mail calls them.
// mailer says whether mails are taken: a row that can be changed stands for a service that is away,
// because the inbox sees of either no more than the handler's error.
var schema = `
CREATE TABLE IF NOT EXISTS notifications (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id uuid NOT NULL,
    customer text NOT NULL,
    number bigint NOT NULL,
    message text NOT NULL,
    attempt int NOT NULL
);
CREATE TABLE IF NOT EXISTS items (name text PRIMARY KEY, title text NOT NULL);
INSERT INTO items VALUES ('book', 'A Book'), ('chair', 'A Chair'), ('lamp', 'A Lamp') ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS mailer (up boolean NOT NULL);
INSERT INTO mailer SELECT true WHERE NOT EXISTS (SELECT FROM mailer);
` + inbox.Schema("")

// notify is the handler. Its effect is the row, which is committed together with the record that
// the event is processed. A mail that was sent here would be sent again when the COMMIT fails:
// something else mails what is in the table.
//
// An item that nobody knows stays unknown, so the error is permanent. The mailer may come back.
func notify(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	if m.Type != "created" { // a topic of Kafka has all events of orders, whatever their type
		return nil
	}
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
