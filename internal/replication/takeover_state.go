// What one run of takeover knows, and reads.

package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// TakeoverOptions say which slot ours takes the place of.
type TakeoverOptions struct {
	From string
	Drop bool                // drop that slot at the end
	Wait time.Duration       // for the other program; below zero: as long as it takes
	Tell func(TakeoverState) // when something has changed; may be nil
}

// TakeoverState is how far a take-over has come.
type TakeoverState struct {
	Slot      string        `json:"slot"`
	From      string        `json:"from_slot"`
	Plugin    string        `json:"from_plugin,omitempty"`
	Start     pglogrepl.LSN `json:"-"` // of our slot: what was committed before it only the other program can send
	Confirmed pglogrepl.LSN `json:"-"` // by the other program; at the end what is skipped below
	Active    bool          `json:"from_slot_active"`
	Holder    string        `json:"from_slot_holder,omitempty"`
	Passed    bool          `json:"passed"` // Confirmed has reached Start
	Complete  bool          `json:"complete"`
	Dropped   bool          `json:"from_slot_dropped"`
}

// takeover is one run of the command.
type takeover struct {
	c     *Config
	opt   TakeoverOptions
	pool  *pgxpool.Pool
	id    identity
	state TakeoverState
	free  time.Time // since when the other slot was seen without a holder; zero: it has one
}

func (m *takeover) validate() error {
	if err := m.c.validate(); err != nil {
		return err
	}
	m.state.Slot, m.state.From = m.c.Slot, m.opt.From
	if m.opt.From == m.c.Slot {
		return &outbox.Stop{
			Code: outbox.ExitUsage, Reason: "usage",
			What: fmt.Sprintf("slot %q is source.slot itself", m.c.Slot),
			Mend: "choose another source.slot: the relay's own slot takes the place of the other one",
		}
	}
	return nil
}

// locked is under the lock on our slot's creation.
func (m *takeover) locked(ctx context.Context, do func(context.Context) error) error {
	lock, err := acquire(ctx, m.pool)
	if err != nil {
		return err
	}
	defer lock.Release()
	if err := lockCreation(ctx, lock, m.c); err != nil {
		return err
	}
	defer unlockCreation(lock, m.c)
	return do(ctx)
}

// read reads our record, our slot and the other one.
func (m *takeover) read(ctx context.Context) (rec *record, ours, theirs *slotView, err error) {
	if rec, err = readRecord(ctx, m.pool, m.c.Slot); err != nil {
		return nil, nil, nil, err
	}
	if ours, err = readSlot(ctx, m.pool, m.c.Slot); err != nil {
		return nil, nil, nil, err
	}
	theirs, err = readSlot(ctx, m.pool, m.opt.From)
	return rec, ours, theirs, err
}

func (m *takeover) completed(rec *record) bool {
	return rec != nil && rec.State == stateReady && rec.TookFrom == m.opt.From && rec.TookUntil != 0
}

func lost(v *slotView) bool { return v.WALStatus == "lost" || v.Invalidation != "" }

// OtherSlots are the names of the database's logical slots but ours.
func OtherSlots(ctx context.Context, c Config) ([]string, error) {
	pool, err := Connect(ctx, c)
	if err != nil {
		return nil, err
	}
	defer closePool(pool)
	rows, err := pool.Query(ctx, `SELECT slot_name::text FROM pg_replication_slots
		WHERE slot_type = 'logical' AND database = current_database() AND slot_name <> $1 ORDER BY 1`, c.Slot)
	if err != nil {
		return nil, fmt.Errorf("read pg_replication_slots: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
