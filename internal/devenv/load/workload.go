// Package load writes rows into an outbox table as services do, and knows which of them were
// committed.
package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// Workload is an order service: writers that change orders in transactions and write outbox rows in
// the same ones.
//
// The table order_keys holds the number of the last committed row of each key. A transaction locks
// the rows of its keys there, in sorted order, before it numbers its outbox rows. PostgreSQL lets
// go of a row lock only after the commit record is written, so the numbers of a key are in commit
// order, whatever runs at the same time; a rollback takes its numbers back. What was committed is
// then read from the database (ReadCommitted), not remembered here: a COMMIT whose answer was lost
// is either in the table or it is not.
//
// The fields are set before Run and not changed after. Fields left zero have the default given.
type Workload struct {
	URL string // of a database with the outbox table

	Writers   int     // concurrent sessions; 1
	Keys      int     // 100
	RowsPerTx int     // 1
	Rollbacks float64 // share of transactions that are rolled back
	// share of transactions in which half as many rows again are rolled back to a savepoint
	SavepointRollbacks float64
	Rate               float64 // rows per second of all writers together; 0: as fast as possible
	Payload            int     // bytes of the payload, at least; 100
	// Run returns once at least so many rows are written (rolled back ones too); 0: until ctx ends
	Events int64
	Seed   uint64

	Kinds    []Kind // rows that are mixed among the usual ones
	Personal bool   // keys, payloads and a header carry the Sentinel

	// the table is routed (RouteOutbox), and this is the usual destination; "": it is not
	Routed string

	// OnCommit, when set, is called with the rows of each committed transaction and the time just
	// before its COMMIT was sent. It is called by several goroutines.
	OnCommit func(rows []checker.Row, at time.Time)

	start time.Time

	mu         sync.Mutex
	planned    int64 // rows handed to writers
	committed  int64
	rolledBack []string
}

// Kind is a kind of rows, poison for instance: they are too large, or go where nothing takes them.
// Their numbers are among those of their keys. Fields left empty are as usual.
type Kind struct {
	Share       float64 // of the rows of its keys
	Keys        int     // it is of the first so many keys alone; 0: of all
	Aggregate   string  // "order"
	Type        string
	Destination string // exchange or topic; with Routed only, as RoutingKey
	RoutingKey  string // aggregate and type, with a dot between them
	Payload     int    // bytes, at least
}

// Run writes until ctx ends or Events rows are written. A transaction that has begun is ended
// first. While PostgreSQL is away the writers try to connect again; any other error ends Run.
func (w *Workload) Run(ctx context.Context) error {
	w.setDefaults()
	if err := w.createKeys(ctx); err != nil {
		return err
	}
	w.start = time.Now()
	errs := make([]error, w.Writers)
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range errs {
		all.Go(func() {
			if errs[i] = w.write(ctx, i); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Committed is how many rows are known to be committed; the database may hold more, of COMMITs
// whose answer was lost.
func (w *Workload) Committed() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.committed
}

// RolledBack is the ids of the rows that were rolled back.
func (w *Workload) RolledBack() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.rolledBack...)
}

func (w *Workload) setDefaults() {
	for field, def := range map[*int]int{&w.Writers: 1, &w.Keys: 100, &w.RowsPerTx: 1, &w.Payload: 100} {
		if *field == 0 {
			*field = def
		}
	}
}

func (w *Workload) createKeys(ctx context.Context) error {
	return pgserver.OnConn(ctx, w.URL, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, fmt.Sprintf(`
			CREATE TABLE IF NOT EXISTS order_keys (key text PRIMARY KEY, seq bigint NOT NULL) WITH (fillfactor = 50);
			INSERT INTO order_keys SELECT 'k' || i || '%s', 0 FROM generate_series(0, %d) i ON CONFLICT DO NOTHING`, w.suffix(), w.Keys-1))
		if err != nil {
			return fmt.Errorf("create order_keys: %w", err)
		}
		return nil
	})
}

// write is one writer: a connection, and transactions on it until there is nothing more to do.
func (w *Workload) write(ctx context.Context, id int) error {
	writer := &writer{load: w, id: id, random: rand.New(rand.NewPCG(w.Seed, uint64(id)))}
	defer writer.disconnect()
	for w.next(ctx) {
		if err := writer.transaction(ctx); err != nil {
			if !writer.serverAway(err) {
				return fmt.Errorf("write orders: %w", err)
			}
			writer.disconnect()
			writer.reconnect(ctx)
		}
	}
	return nil
}

// next waits until the next transaction is due; false when there is none.
func (w *Workload) next(ctx context.Context) bool {
	w.mu.Lock()
	planned := w.planned
	if w.Events > 0 && planned >= w.Events {
		w.mu.Unlock()
		return false
	}
	w.planned += int64(w.RowsPerTx)
	w.mu.Unlock()
	if w.Rate <= 0 {
		return ctx.Err() == nil
	}
	due := w.start.Add(time.Duration(float64(planned) / w.Rate * float64(time.Second)))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
