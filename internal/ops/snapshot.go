// Package ops describes a running relay: a Snapshot of its parts, and the Status, health and slots
// that follow from it. It is pure: ops/metrics and ops/admin show it.
package ops

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// Phase is the phase of the replication stream.
type Phase string

// The phases of a stream.
const (
	Starting  Phase = "starting"
	Waiting   Phase = "waiting" // for PostgreSQL
	Standby   Phase = "standby" // another relay leads
	Streaming Phase = "streaming"
	Stopping  Phase = "stopping"
	Stopped   Phase = "stopped" // for good: the process stays up only to report why
)

// Snapshot is the state of the whole relay. One is taken at every scrape and request. Its parts may
// be moments apart.
type Snapshot struct {
	Phase  Phase
	Why    string    // what Waiting waits for, who leads in Standby, why it is Stopped
	Since  time.Time // when Phase began
	Reason string    // of Phase Stopped: event.Stop.Reason
	// of Phase Stopped: the ID that `cdc-relay accept` takes; "": there is nothing to accept
	Finding  string
	Leader   *Relay  // as in Status
	Standbys []Relay // likewise; nil: not known

	InFlightEvents  int // in the in-flight budget: read and not settled
	WaitingEvents   int // read and not in the in-flight budget yet, 0 or 1
	InFlightBytes   int64
	OldestUnsettled time.Time // commit time of the oldest unsettled transaction; zero: none
	// everything that was committed below it is settled; 0: not known
	Settled pglogrepl.LSN
	// UnreportedConfirmed is the events that were confirmed above the watermark: a crash now would
	// send them again.
	UnreportedConfirmed uint64

	Paused      []Paused // destinations that are paused, the longest first
	PausedTotal int      // Paused may name fewer
	WaitingKeys int      // (key, exchange or topic) pairs whose later events wait

	RetryTable RetryTable
	Guard      *Guard     // nil: no disk guard is configured
	Retention  *Retention // nil: the outbox tables are left alone, or another relay leads
	// as the configuration names it, whoever leads
	RetentionMode string
	Sink          Sink
	Slot          Slot
	HeldBy        []OpenTransaction
	// standbys of synchronized_standby_slots that hold delivery back
	WaitingForStandby []string

	// the other hosts of source.url; none while another relay leads, or without a failover slot
	Hosts []HostSlot

	OtherSlots []Slot // the server's other logical slots; those first that keep the most WAL
	OtherTotal int    // OtherSlots may have fewer

	Unheld   []UnheldSlot // as in Status; nil: not known
	UnheldAt time.Time    // when it was read
	// Unsent is how many rows of each outbox table are not known to be sent; nil: not known
	Unsent map[string]int64
	// OpenGaps are the accepted gaps whose rows may never have been sent; nil: not known
	OpenGaps []int64
	UnsentAt time.Time // when the two were read

	TableBytes *int64 // size of the outbox tables; nil: not known
}

// RetryTable is the state of deferred events and dead letters.
type RetryTable struct {
	Counted time.Time // when the tables were; zero: not yet, and then the next five are not known

	Deferred       int       // events in the retry table
	OldestDeferred time.Time // commit time of the oldest of them; zero: there is none
	Dead           int       // dead letters that are open
	OldestDead     time.Time // when the oldest of them died; zero: there is none
	Bytes          int64     // of both tables on disk, with indexes, and the rows of other slots

	Queued  int // events whose rows are not committed yet; they are in the in-flight budget too
	Feeding int // deferred events that are being sent again

	Refused      []RefusedRow // the longest first
	RefusedTotal int          // Refused may name fewer
}

// Guard is the state of the disk guard.
type Guard struct {
	Active   bool `json:"active"`   // the broker is away and events are deferred
	Full     bool `json:"full"`     // nothing more is deferred: guard.max_bytes is reached
	Deferred int  `json:"deferred"` // events that it has deferred since this relay leads

	Left *int64 `json:"left_bytes"` // of guard.max_bytes; nil: not known yet
}

// RefusedRow is an event that is to be deferred and whose row the database refuses. It is retried
// until the database accepts it, and the slot keeps the WAL from there on.
type RefusedRow struct {
	ID       string    `json:"id"`
	Position string    `json:"position"` // as in the message header cdc_position
	Error    string    `json:"error"`    // the database's
	Since    time.Time `json:"since"`
	Behind   int       `json:"behind"` // later events of its key that wait for it
}

// Retention is the state of what deletes delivered rows.
type Retention struct {
	LastPass time.Time // when the tables were last gone through; zero: not yet
	Overdue  time.Time // since when the oldest row that may be deleted waits; zero: none does
	HeldBy   string    // another slot that has not settled what is old enough; "": none
	Error    string    // why rows are not deleted; "": they are
}

// Sink is the state of the broker's connections.
type Sink struct {
	Kind            string // as the configuration names it
	Up              bool
	WasUp           bool      // a connection was made at least once in this process
	Why             string    // when it is not up
	DownSince       time.Time // zero: it is up
	Connections     int
	Channels        int   // of a broker that has them
	PendingConfirms int   // published and not answered
	Ignored         int64 // returned messages that count as delivered
	Found           int64 // messages of before the term that the broker had: not sent again
}

// Paused is a destination that refuses: its events are deferred unsent.
type Paused struct {
	Destination string    `json:"destination"` // as an operator would name it
	Reason      string    `json:"reason"`      // of the closed list of cdc_relay_rejections_total
	Error       string    `json:"error"`       // the broker's own
	Since       time.Time `json:"since"`
	// when one of its events is tried again; null: now, or not by itself, or not known
	NextProbe *time.Time `json:"next_probe"`
	// deferred events that wait for it, with OrMore at least; null: not counted yet
	Events *int       `json:"events"`
	OrMore bool       `json:"or_more"`
	Oldest *time.Time `json:"oldest"` // commit time of the first one; null: not known, or none

	Fix string `json:"fix,omitempty"` // what an operator does: it does not end by itself
}

// HostSlot is another host of source.url.
type HostSlot struct {
	Host   string
	Synced bool // it has the relay's slot, ready for a promotion
}

// Slot is a replication slot as the server described it at Checked.
type Slot struct {
	Name           string
	Checked        time.Time // zero: not yet, and then only Name is known
	ConfirmedFlush pglogrepl.LSN
	Restart        pglogrepl.LSN
	Current        pglogrepl.LSN // the server's WAL position at Checked
	Active         bool
	WALStatus      string   // reserved, extended, unreserved, lost
	SafeWALBytes   *int64   // nil: unlimited
	LeftSeconds    *float64 // as Course.SeeSlot has it
	SpilledBytes   int64
	Database       string
	Plugin         string
	Invalidation   string // why the server gave it up, by PostgreSQL 17 and later

	Failover bool // a failover slot, of PostgreSQL 17 and later

	BehindSince time.Time // of OtherSlots: since when WAL waits; zero: none
}

// LagBytes returns how much WAL is between the confirmed position and the server's.
func (s Slot) LagBytes() int64 { return behind(s.Current, s.ConfirmedFlush) }

// RetainedBytes returns how much WAL the server keeps for the slot.
func (s Slot) RetainedBytes() int64 { return behind(s.Current, s.Restart) }

// behind returns the distance of two positions. It is 0 when position is unknown or ahead of
// current: the two are not read at one moment.
func behind(current, position pglogrepl.LSN) int64 {
	if position == 0 || position >= current {
		return 0
	}
	return int64(current - position)
}

// lag is the age of the oldest commit that was read and is not settled. While there is no stream
// it is unknown what was committed since it ended, so the lag counts from there.
func (s *Snapshot) lag(now time.Time) time.Duration {
	switch {
	case !s.OldestUnsettled.IsZero():
		return max(0, now.Sub(s.OldestUnsettled))
	case s.Phase == Streaming || s.Phase == Standby || s.Since.IsZero():
		return 0
	}
	return max(0, now.Sub(s.Since))
}

// lagSeconds returns the lag, or nil when another relay leads: only the leader knows the commits.
func (s *Snapshot) lagSeconds(now time.Time) *float64 {
	active := s.Slot.Active && s.Slot.Checked.After(s.Since) && isFresh(s.Slot.Checked, now)
	if s.Phase == Standby || active && !s.Leads() {
		return nil
	}
	seconds := s.lag(now).Seconds()
	return &seconds
}

// Leads reports whether this relay holds the slot.
func (s *Snapshot) Leads() bool { return s.Phase == Streaming || s.Phase == Stopping }

// freshFor is how old a reading of a slot may be. Older readings are not shown, because they may be
// wrong by now.
const freshFor = time.Minute

func isFresh(checked, now time.Time) bool { return !checked.IsZero() && now.Sub(checked) <= freshFor }

// Behind returns for how long the oldest row that may be deleted has waited.
func (r *Retention) Behind(now time.Time) time.Duration {
	if r.Overdue.IsZero() {
		return 0
	}
	return max(0, now.Sub(r.Overdue))
}
