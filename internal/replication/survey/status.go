// Package survey collects what status and metrics show of the source: the stream's phase, its slot,
// the other slots of the server, sizes and lag.
package survey

import (
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/jackc/pglogrepl"
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
	Why   string
	Since time.Time
	Slot  Slot

	OtherSlots []Slot // the server's other logical slots, those first that keep the most WAL
	OtherTotal int    // OtherSlots may have fewer
	// of the outbox tables, with indexes and partitions; nil: not known yet, or there are none
	TableBytes *int64
}

// Slot is what pg_replication_slots said last, at the time Checked.
type Slot struct {
	Checked        time.Time // zero: not yet
	Name           string
	Plugin         string
	Database       string
	Invalidation   string // PG17+: why the server gave it up
	ConfirmedFlush pglogrepl.LSN
	Restart        pglogrepl.LSN
	Current        pglogrepl.LSN // the server's write position at that time
	WALStatus      string
	SafeWALBytes   *int64 // nil: unlimited
	SpilledBytes   int64
	Active         bool
	Holder         string

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

func (s *Status) phase(p Phase, why string) {
	if s.snap.Phase != p {
		s.snap.Phase, s.snap.Since = p, time.Now()
	}
	s.snap.Why = why
}

// Waiting sets the phase Waiting and why PostgreSQL is waited for.
func (s *Status) Waiting(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase(Waiting, why)
}

// Standby sets the phase Standby, the slot as v shows it, and who holds it.
func (s *Status) Standby(v *slot.View, holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase(Standby, "slot is held by "+holder)
	s.snap.Slot = publicSlot(v)
}

// Streaming sets the phase Streaming, which needs no reason.
func (s *Status) Streaming() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase(Streaming, "")
}

// Stopping sets the phase Stopping, in which what was read is still delivered.
func (s *Status) Stopping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase(Stopping, "finishing what was read")
}

// Slot sets the slot; nil: it does not exist.
func (s *Status) Slot(v *slot.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v == nil {
		s.snap.Slot = Slot{}
		return
	}
	s.snap.Slot = publicSlot(v)
}

func (s *Status) others(slots []Slot, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap.OtherSlots, s.snap.OtherTotal = slots, total
}

func (s *Status) setTableBytes(tableBytes *int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap.TableBytes = tableBytes
}

// publicSlot is what the outside sees of a slot.
func publicSlot(v *slot.View) Slot {
	return Slot{
		Name: v.Name, Plugin: v.Plugin, Database: v.Database, Invalidation: v.Invalidation,
		Checked: time.Now(), ConfirmedFlush: v.ConfirmedFlush, Restart: v.Restart, Current: v.Current, WALStatus: v.WALStatus,
		SafeWALBytes: v.SafeWALBytes, SpilledBytes: v.SpilledBytes, Active: v.ActivePID != 0, Holder: v.Holder,
	}
}
