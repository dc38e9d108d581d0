package replication

import (
	"sync"
	"time"

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

// Snapshot is what the stream tells the outside: status, health and metrics.
type Snapshot struct {
	Phase Phase
	Why   string
	Since time.Time
	Slot  Slot

	OtherSlots []Slot // the server's other logical slots, those first that keep the most WAL
	OtherTotal int    // OtherSlots may have fewer
	TableBytes *int64 // of the outbox tables, with indexes and partitions; nil: not known yet, or there are none
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

	// BehindSince is when WAL after ConfirmedFlush was seen first, by walTimes; zero: there is none. Of OtherSlots alone.
	BehindSince time.Time
}

// status is the Snapshot behind a lock.
type status struct {
	mu   sync.Mutex
	snap Snapshot
}

// Snapshot may be called by anyone, also before Run.
func (s *Stream) Snapshot() Snapshot {
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	snap := s.status.snap
	if snap.Phase == "" {
		snap.Phase = Starting
	}
	return snap
}

func (s *status) phase(p Phase, why string) {
	if s.snap.Phase != p {
		s.snap.Phase, s.snap.Since = p, time.Now()
	}
	s.snap.Why = why
}

func (s *status) waiting(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase(Waiting, why)
}

func (s *status) standby(v *slotView, holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase(Standby, "slot is held by "+holder)
	s.snap.Slot = v.public()
}

func (s *status) streaming() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase(Streaming, "")
}

func (s *status) stopping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase(Stopping, "finishing what was read")
}

// slot takes nil for a slot that is not there: then nothing is known of it.
func (s *status) slot(v *slotView) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v == nil {
		s.snap.Slot = Slot{}
		return
	}
	s.snap.Slot = v.public()
}

func (s *status) others(slots []Slot, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap.OtherSlots, s.snap.OtherTotal = slots, total
}

func (s *status) measured(tableBytes *int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap.TableBytes = tableBytes
}

func (v *slotView) public() Slot {
	return Slot{
		Name: v.Name, Plugin: v.Plugin, Database: v.Database, Invalidation: v.Invalidation,
		Checked: time.Now(), ConfirmedFlush: v.ConfirmedFlush, Restart: v.Restart, Current: v.Current, WALStatus: v.WALStatus,
		SafeWALBytes: v.SafeWALBytes, SpilledBytes: v.SpilledBytes, Active: v.ActivePID != 0, Holder: v.Holder,
	}
}
