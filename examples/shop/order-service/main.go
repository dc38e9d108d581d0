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
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/propagation"

	"github.com/cdc-relay/cdc-relay/examples/shop/telemetry"
	"github.com/cdc-relay/cdc-relay/outbox"
)

type service struct {
	pool   *pgxpool.Pool
	events *outbox.Writer
}

// newService makes one whose events belong to the trace of the request.
func newService(pool *pgxpool.Pool) (*service, error) {
	events, err := outbox.New(outbox.Config{Trace: func(ctx context.Context, carrier map[string]string) {
		propagation.TraceContext{}.Inject(ctx, propagation.MapCarrier(carrier))
	}})
	return &service{pool, events}, err
}

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
	s, err := newService(pool)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", telemetry.Traced("POST /orders", s.post))
	return telemetry.Serve(ctx, cmp.Or(os.Getenv("LISTEN"), ":8080"), mux)
}

// post answers 201 for a new order and 200 for one that is there.
func (s *service) post(w http.ResponseWriter, r *http.Request) {
	o, err := read(http.MaxBytesReader(w, r.Body, 64<<10))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	code := http.StatusCreated
	switch err := s.place(r.Context(), o); {
	case errors.Is(err, errRepeated):
		code = http.StatusOK
	case errors.Is(err, errTaken):
		http.Error(w, err.Error(), http.StatusConflict)
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

// read reads an order. What the database or the outbox would refuse later is refused here.
func read(body io.Reader) (o order, err error) {
	if err := json.NewDecoder(body).Decode(&o); err != nil {
		return o, fmt.Errorf("read order: %w", err)
	}
	id, err := uuid.Parse(o.ID)
	if err != nil {
		return o, errors.New("the order's id is no UUID")
	}
	o.ID = id.String() // one spelling
	for _, text := range []string{o.Customer, o.Item} {
		if text == "" || len(text) > 100 || strings.ContainsRune(text, 0) {
			return o, errors.New("want customer and item, of up to 100 bytes")
		}
	}
	return o, nil
}
