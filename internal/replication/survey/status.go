// Package survey collects what status and metrics show of the source: the stream's phase, its slot,
// the other slots of the server, sizes and lag.
package survey

import (
	"context"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Phase is what the stream is doing, in one word.
type Phase string

// The phases.
const (
	Starting  Phase = "starting"
	Waiting   Phase = "waiting" // for PostgreSQL; Why says what it answered
	Standby   Phase = "standby" // another relay holds the slot
	Streaming Phase = "streaming"
	Stopping  Phase = "stopping"
)

// Snapshot is the state of the stream for status, health and metrics.
type Snapshot struct {
	Phase Phase
	Why   string // also while Streaming, when the server's walsender sends nothing
	Since time.Time
	Slot  Slot

	HeldBy []source.OpenTransaction // see slot.View.HeldBy

	// standbys of synchronized_standby_slots that hold delivery back; only while Streaming
	WaitingForStandby []string

	// the other hosts of source.url, as the leader of a failover slot has asked them last
	Hosts []HostSlot

	OtherSlots []Slot   // the server's other logical slots, those first that keep the most WAL
	OtherTotal int      // OtherSlots may have fewer
	Unheld     []Unheld // of the leader; nil: not known yet
	// of the outbox tables, with indexes and partitions; nil: not known yet, or there are none
	TableBytes *int64
}

// HostSlot says of another host of source.url whether a relay could go on with the slot there.
type HostSlot struct {
	Host   string // host:port
	Synced bool   // the slot is there, synced and ready; false: or it did not answer
}

// Slot is what pg_replication_slots said last, at the time Checked.
type Slot struct {
	slot.View
	Checked time.Time // zero: not yet
	// BehindSince is when WAL after ConfirmedFlush was seen first, by walTimes; zero: there is
	// none. Of OtherSlots alone.
	BehindSince time.Time
}

// Status is the Snapshot behind a lock.
type Status struct {
	mu   sync.Mutex
	snap Snapshot
}

// Snapshot returns a copy of the current state; its phase is Starting until another one was set.
func (s *Status) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.snap
	if snap.Phase == "" {
		snap.Phase = Starting
	}
	return snap
}

// Enter sets the phase, and why PostgreSQL is waited for, or who leads.
func (s *Status) Enter(p Phase, why string) {
	s.update(func(snap *Snapshot) {
		if snap.Phase != p {
			snap.Phase, snap.Since = p, time.Now()
		}
		snap.Why = why
		if p != Streaming {
			snap.WaitingForStandby = nil
		}
	})
}

// WaitForStandby sets the standbys that hold delivery back, and returns those before.
func (s *Status) WaitForStandby(names []string) (was []string) {
	s.update(func(snap *Snapshot) {
		was = snap.WaitingForStandby
		if snap.Phase == Streaming {
			snap.WaitingForStandby = names
		}
	})
	return was
}

// Remark says while the phase is Streaming why nothing comes; "" takes it back.
func (s *Status) Remark(why string) {
	s.update(func(snap *Snapshot) {
		if snap.Phase == Streaming {
			snap.Why = why
		}
	})
}

// Slot sets the slot; nil: it does not exist.
func (s *Status) Slot(v *slot.View) {
	var now Slot
	if v != nil {
		now = Slot{View: *v, Checked: time.Now()}
	}
	s.update(func(snap *Snapshot) { snap.Slot = now })
}

func (s *Status) update(change func(*Snapshot)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.snap)
}

// Relay is what the database knows about a relay; status shows it if the relay itself does not
// answer.
type Relay struct {
	Slot     *Slot // nil: no such slot
	HeldBy   []source.OpenTransaction
	Leader   string // as the last leader named itself; "" when no relay ever led
	State    string // of the slot's row in cdc_relay.slots; "" when there is none
	SystemID string // likewise

	Unheld    []Unheld // nil: there is no schema, or UnheldErr says why it is not known
	UnheldErr error
}

// ReadRelay reads what the database knows about the relay of a slot.
func ReadRelay(ctx context.Context, pool *pgxpool.Pool, name string) (Relay, error) {
	view, err := slot.Read(ctx, pool, name)
	if err != nil {
		return Relay{}, err
	}
	var v Relay
	if view != nil {
		v.Slot = &Slot{View: *view, Checked: time.Now()}
		if v.HeldBy, err = view.HeldBy(ctx, pool); err != nil {
			return Relay{}, err
		}
	}
	if err := schema.Verify(ctx, pool, schema.Trust{Replication: true}); err != nil {
		return v, err
	}
	version, err := schema.Version(ctx, pool)
	if err != nil || version == 0 {
		return v, err
	}
	v.Unheld, v.UnheldErr = ReadUnheld(ctx, pool, name)
	rec, err := slot.ReadRecord(ctx, pool, name)
	if rec != nil {
		v.Leader, v.State, v.SystemID = rec.Leader, rec.State, rec.SystemID
	}
	return v, err
}
