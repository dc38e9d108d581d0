// Package retention deletes rows of the outbox tables that are delivered and old enough. Only the
// leader does, one small transaction after the other, and behind everything else: see delivered.go
// for what is deleted, and zones.go for what is looked at.
package retention

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Config is the configuration of a Retention.
type Config struct {
	Pool  *pgxpool.Pool
	Slot  string
	Epoch int64 // of this term: no row is deleted once the slot has another one

	Tables []Table
	Keep   time.Duration // least age of a row that is deleted; 0: as soon as it is delivered

	Deleted func(rows int)    // rows were deleted, and that is committed
	Work    func(atWork bool) // around each transaction
	Log     *zap.Logger
}

// Retention deletes for one term, in one goroutine.
type Retention struct {
	cfg Config

	leaves  map[uint32]*leaf // by OID; those of the last pass
	samples samples
	// since when nothing at all is settled by another slot, by the table in Config.Tables
	unsettled map[int]time.Time
	logged    map[string]bool // what has been logged and still holds

	mu       sync.Mutex
	snapshot Snapshot
}

// New makes a Retention; it starts nothing.
func New(cfg Config) *Retention {
	return &Retention{cfg: cfg, leaves: map[uint32]*leaf{}, unsettled: map[int]time.Time{}, logged: map[string]bool{}}
}

// maxBackoff bounds the pause after passes that failed.
const maxBackoff = 5 * time.Minute

// Run works until ctx is done, and returns nil then. Whatever fails is tried again later: delivery
// does not depend on it. Only a newer leader, an *event.Stop, ends it.
func (r *Retention) Run(ctx context.Context) error {
	every := passEvery(r.cfg.Keep)
	backoff := min(every, firstPass)
	timer := time.NewTimer(backoff)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		err := r.pass(ctx)
		var fenced *event.Stop
		switch {
		case ctx.Err() != nil:
			return nil // whatever the error, the term is over
		case errors.As(err, &fenced):
			return fenced
		case err != nil:
			backoff = min(2*backoff, maxBackoff)
			timer.Reset(backoff)
			continue
		}
		backoff = min(every, firstPass)
		timer.Reset(every)
	}
}

// firstPass is how long a new leader does more urgent things first.
const firstPass = 5 * time.Second
