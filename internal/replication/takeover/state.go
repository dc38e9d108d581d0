// The state of one run of takeover.

package takeover

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Options say which slot ours replaces.
type Options struct {
	From string
	Drop bool          // drop that slot at the end
	Wait time.Duration // for the other program; below zero: as long as it takes
	Tell func(State)   // when something has changed; may be nil
}

// State is how far a takeover has come.
type State struct {
	Slot   string `json:"slot"`
	From   string `json:"from_slot"`
	Plugin string `json:"from_plugin,omitempty"`
	// of our slot: only the other program can send what was committed before it
	Start     pglogrepl.LSN `json:"-"`
	Confirmed pglogrepl.LSN `json:"-"` // by the other program; at the end all below is skipped
	Active    bool          `json:"from_slot_active"`
	Holder    string        `json:"from_slot_holder,omitempty"`
	Passed    bool          `json:"passed"` // Confirmed has reached Start
	Complete  bool          `json:"complete"`
	Dropped   bool          `json:"from_slot_dropped"`
}

// Takeover is one run of the command.
type Takeover struct {
	C     *source.Config
	Opt   Options
	Pool  *pgxpool.Pool
	ID    slot.Identity
	state State
	free  time.Time // since when the other slot was seen without a holder; zero: it is held
}

// Validate names both slots in the state, and returns a Stop with exit code event.ExitUsage if they
// are the same or the configuration is not valid; it asks no server.
func (t *Takeover) Validate() error {
	if err := t.C.Validate(); err != nil {
		return err
	}
	t.state.Slot, t.state.From = t.C.Slot, t.Opt.From
	if t.Opt.From == t.C.Slot {
		return &event.Stop{
			Code: event.ExitUsage, Reason: "usage",
			What: fmt.Sprintf("slot %q is source.slot itself", t.C.Slot),
			Fix:  "choose another source.slot: the relay's own slot replaces the other one",
		}
	}
	return nil
}

// read reads our record, our slot and the other one.
func (t *Takeover) read(ctx context.Context) (rec *slot.Record, ours, theirs *slot.View, err error) {
	if rec, ours, err = slot.ReadBoth(ctx, t.Pool, t.C.Slot); err != nil {
		return nil, nil, nil, err
	}
	theirs, err = slot.Read(ctx, t.Pool, t.Opt.From)
	return rec, ours, theirs, err
}

func (t *Takeover) completed(rec *slot.Record) bool {
	return rec != nil && rec.State == slot.StateReady && rec.TookFrom == t.Opt.From && rec.TookUntil != 0
}

// OtherSlots are the names of the database's logical slots but ours.
func OtherSlots(ctx context.Context, c source.Config) ([]string, error) {
	pool, err := source.Connect(ctx, c)
	if err != nil {
		return nil, err
	}
	defer source.ClosePool(pool)
	rows, err := pool.Query(ctx, `SELECT slot_name::text FROM pg_replication_slots
		WHERE slot_type = 'logical' AND database = current_database() AND slot_name <> $1 ORDER BY 1`, c.Slot)
	if err != nil {
		return nil, fmt.Errorf("read pg_replication_slots: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

const takeoverPoll = 250 * time.Millisecond // how often the other slot is checked
