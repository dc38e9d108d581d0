// Command order-service takes orders: POST /orders commits the order and the event that tells about
// it in one transaction. It knows no broker.
//
// DATABASE_URL is its database, LISTEN its address (by default :8080).
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/examples/shop/telemetry"
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
);` + outbox.Schema()

// order is what the client sends, and what the event says. The client makes the id: a request that
// it repeats, because no answer came, is the same order.
type order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Number   int64  `json:"number"` // 1 is the customer's first order; made here
	Item     string `json:"item"`
}

type service struct{ pool *pgxpool.Pool }

func main() {
	if err := run(); err != nil {
		slog.Error("order-service ends", "error", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	stopTracing, err := telemetry.Trace(ctx, "order-service")
	if err != nil {
		return err
	}
	defer stopTracing()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return fmt.Errorf("read DATABASE_URL: %w", err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, schema); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", telemetry.Traced("POST /orders", (&service{pool}).post))
	return telemetry.Serve(ctx, cmp.Or(os.Getenv("LISTEN"), ":8080"), mux)
}

// post answers 201 for a new order and 200 for one that is there.
func (s *service) post(w http.ResponseWriter, r *http.Request) {
	var o order
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&o)
	if err != nil || uuid.Validate(o.ID) != nil || o.Customer == "" || o.Item == "" {
		http.Error(w, "want an order with id (a UUID), customer and item", http.StatusBadRequest)
		return
	}
	code := http.StatusCreated
	switch err := s.place(r.Context(), o); {
	case errors.Is(err, errRepeated):
		code = http.StatusOK
	case errors.Is(err, outbox.ErrInvalid):
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case err != nil:
		slog.Error("an order was not placed", "id", o.ID, "error", err)
		http.Error(w, "the order was not placed: send it again", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, "{\"id\": %q}\n", o.ID)
}

// errRepeated rolls a request back that has come before.
var errRepeated = errors.New("the order is there")

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
			return errRepeated
		}
		return outbox.Write(ctx, tx, outbox.Event{Aggregate: "order", Key: o.Customer, Type: "created", Payload: o})
	})
}
