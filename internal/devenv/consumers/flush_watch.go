// FlushWatch samples confirmed_flush_lsn while a relay runs, and what had arrived by then.

package consumers

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// FlushWatch reads confirmed_flush_lsn of a slot every 25 ms and, whenever it has moved, has the
// consumer mark the end of the queue or of the logs. See Mark for what is made of that. Samples
// that cannot be taken or marked, because PostgreSQL or the broker is away, are left out.
type FlushWatch struct {
	DB       string // URL of the slot's server
	Slot     string
	Consumer Witness
	// LogRetryTable keeps a log: a mark has the database's snapshot, by which the log is read
	RetryTable bool
}

// Witness has what arrived: a Consumer or a KafkaConsumer.
type Witness interface {
	Connected() bool
	Count() (distinct, duplicates int)
	Deliveries() []checker.Delivery
	DeliveriesFrom(n int) []checker.Delivery
	WaitCount(ctx context.Context, n int) error
	WaitIDs(ctx context.Context, ids []string) error
	Drain(ctx context.Context) error
	Marks() []checker.Mark
	Close()
	MarkFlush(ctx context.Context, m checker.Mark) error
}

// Run samples until ctx ends, which is no error.
func (w FlushWatch) Run(ctx context.Context) error {
	var sent pglogrepl.LSN
	for ctx.Err() == nil {
		err := pgserver.OnConn(ctx, w.DB, func(conn *pgx.Conn) error { return w.sample(ctx, conn, &sent) })
		if ctx.Err() == nil && err != nil {
			pause, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			<-pause.Done()
			cancel()
		}
	}
	return nil
}

func (w FlushWatch) sample(ctx context.Context, conn *pgx.Conn, sent *pglogrepl.LSN) error {
	return processes.Poll(ctx, 25*time.Millisecond, func() (bool, error) {
		var text *string // max: NULL when there is no slot
		err := conn.QueryRow(ctx, "SELECT max(confirmed_flush_lsn::text) FROM pg_replication_slots WHERE slot_name = $1", w.Slot).Scan(&text)
		if err != nil || text == nil {
			return false, err
		}
		lsn, err := pglogrepl.ParseLSN(*text)
		if err != nil {
			return false, fmt.Errorf("read confirmed_flush_lsn: %w", err)
		}
		if lsn == *sent {
			return false, nil
		}
		m := checker.Mark{Flush: lsn}
		if w.RetryTable {
			if m.Snapshot, err = ReadSnapshot(ctx, conn); err != nil {
				return false, err
			}
		}
		if err := w.Consumer.MarkFlush(ctx, m); err == nil {
			*sent = lsn
		}
		return false, nil
	})
}

// ReadSnapshot is the snapshot of now.
func ReadSnapshot(ctx context.Context, conn *pgx.Conn) (*checker.Snapshot, error) {
	var text string
	if err := conn.QueryRow(ctx, "SELECT pg_current_snapshot()::text").Scan(&text); err != nil {
		return nil, err
	}
	return checker.ParseSnapshot(text)
}

// Marks is what FlushWatch has sampled, and what ReportWatch has seen, and what was in the queue
// then.
func (c *Consumer) Marks() []checker.Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	var marks []checker.Mark
	for _, m := range c.marks {
		if m.flush != 0 {
			marks = append(marks, checker.Mark{Flush: m.flush, Snapshot: m.snapshot, After: m.after})
		}
	}
	return marks
}
