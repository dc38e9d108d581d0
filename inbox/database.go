// The service's database: whether it answers, and how long to wait for it.

package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// ready waits until the database can record events, and returns an error for what waiting does not
// cure, such as a missing table.
func (in *Inbox) ready(ctx context.Context) error {
	var wait backoff
	for {
		err := in.probe(ctx)
		switch {
		case err == nil:
			in.database.found()
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case class(err, "42P01", "3F000"): // no such table, no such schema
			return fmt.Errorf("find the table of processed messages: %w: create it with inbox.Schema:\n\n%s", err, Schema(in.cfg.Table))
		case class(err, "28", "3D", "42"), errors.Is(err, errAsynchronous): // login, right
			return err
		}
		in.database.lost(err)
		if err := wait.pause(ctx); err != nil {
			return err
		}
	}
}

var errAsynchronous = errors.New("synchronous_commit is off: a crash of the server would undo effects whose messages are acknowledged. Set it to on for this database or role")

// probe does what attempt does, and rolls it back.
func (in *Inbox) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, in.cfg.Timeout, errTimeout)
	defer cancel()
	tx, err := in.cfg.Pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", withCause(ctx, err))
	}
	defer rollback(ctx, tx)
	if _, err := in.record(ctx, tx, "", nil); err != nil {
		return withCause(ctx, err)
	}
	var synchronous string
	if err := tx.QueryRow(ctx, "SHOW synchronous_commit").Scan(&synchronous); err != nil {
		return fmt.Errorf("read synchronous_commit: %w", withCause(ctx, err))
	}
	if synchronous == "off" {
		return errAsynchronous
	}
	return nil
}

// record records an event as processed by the transaction, and returns whether it was not before.
// It waits while another transaction has recorded it and has not ended.
func (in *Inbox) record(ctx context.Context, tx pgx.Tx, id string, content []byte) (first bool, err error) {
	tag, err := tx.Exec(ctx, in.sql.record, in.cfg.Service, id, content)
	if class(err, "25006") { // the server is a standby now, a new connection may find another one
		_ = tx.Conn().Close(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("record an event in %s: %w", in.cfg.Table, err)
	}
	return tag.RowsAffected() == 1, nil
}

// availability says once that the database is away, again each minute, and that it is back.
type availability struct {
	log *slog.Logger
	up  prometheus.Gauge

	mu    sync.Mutex
	since time.Time // zero: it answers
	said  time.Time
}

func (a *availability) lost(err error) {
	a.up.Set(0)
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.since.IsZero() {
		a.since = now
	}
	if now.Sub(a.said) >= time.Minute {
		a.said = now
		a.log.Warn("the database does not record events, processing waits", "error", err, "since", a.since)
	}
}

func (a *availability) found() {
	a.up.Set(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		return
	}
	a.log.Info("the database records events again", "after", time.Since(a.since).Round(time.Millisecond))
	a.since, a.said = time.Time{}, time.Time{}
}

// backoff makes pauses that grow from 50 ms to 5 s.
type backoff struct{ next time.Duration }

func (b *backoff) pause(ctx context.Context) error {
	b.next = min(max(2*b.next, 50*time.Millisecond), 5*time.Second)
	timer := time.NewTimer(b.next/2 + rand.N(b.next/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// rollback ends a transaction that was not committed. When it cannot, pgx has closed the
// connection, and the server rolls back.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx) //nolint:errcheck // then the connection is closed
}
