// The status, as /api/v1/status and `cdc-relay status` show it.

package ops

import (
	"fmt"
	"strings"
	"time"
)

// Status is the body of GET /api/v1/status. Names are stable: they are added to, not changed.
type Status struct {
	// AnsweredBy says whose answer it is: the relay's own, or what `cdc-relay status` has found
	// without the relay. In the latter, values that only the relay knows are null.
	AnsweredBy string `json:"answered_by"`
	// State is one of the States, the first that applies in this order: stopped, stopping,
	// starting, waiting for postgres, standby, broker down, deferring while the database refuses a
	// row, destination paused, deferring, catching up, idle, streaming.
	State string `json:"state"`
	// what is waited for, who leads, why it stopped or the broker is down, what is paused; else ""
	Why string `json:"why"`
	// of state stopped: the ID that `cdc-relay accept` takes
	Finding string `json:"finding,omitempty"`
	Role    string `json:"role"` // leader, standby, none
	// this relay, or the one that a standby stands by for; null: not known
	Leader *Relay `json:"leader"`
	// the relays that stand by, as PostgreSQL sees them, at most 100; only the leader asks, as
	// often as for the slot; null: not known
	Standbys []Relay `json:"standbys"`

	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
	Now       time.Time `json:"now"` // by the relay's clock
	AsOf      AsOf      `json:"as_of"`

	Slot SlotStatus `json:"slot"`
	// the physical slots of standbys that hold delivery back
	WaitingForStandby []string `json:"waiting_for_standby"`
	// the oldest open transactions, when the slot keeps WAL for them that is settled, or when its
	// creation waits for them
	WALHeldBy []OpenTransaction `json:"wal_held_by"`

	Broker   BrokerStatus   `json:"broker"`
	InFlight InFlightStatus `json:"in_flight"`

	Deferred    DeferredStatus    `json:"deferred"`
	DeadLetters DeadLettersStatus `json:"dead_letters"`
	// of the leader; absent: no disk guard is configured
	Guard     *Guard          `json:"guard,omitempty"`
	Retention RetentionStatus `json:"retention"`
	// other slots of relays of this database that nobody holds, and in which something waits; only
	// the leader asks for them; null: not known yet
	UnheldSlots []UnheldSlot `json:"unheld_slots"`
	// rows of each outbox table that the slot is past and that are not known to be sent, at most
	// 10,000 of a table; null: not known
	UnsentRows map[string]int64 `json:"unsent_rows"`
	// the numbers of accepted gaps whose rows may never have been sent; null: not known
	OpenGaps []int64 `json:"open_gaps"`

	Rates  RatesStatus  `json:"rates"`
	Totals TotalsStatus `json:"totals"`

	// UnreportedConfirmed is the events that are confirmed and above the watermark, that is, behind
	// one that is not: a crash now repeats them, in addition to those below it that are not
	// reported yet.
	UnreportedConfirmed uint64 `json:"unreported_confirmed"`

	// Log is the last warnings and errors of the relay's log, the newest last: at most 20 lines of
	// at most 1,000 bytes. A line that comes again takes the place of its former one. None names an
	// event once the contents of one were removed (redact, purge).
	Log []string `json:"log"`
}

// AsOf says of when the parts are that are read at intervals, because each reading costs PostgreSQL
// something; null: not known yet. Every other number is of Status.Now.
type AsOf struct {
	Slot *time.Time `json:"slot"` // slot without lag_seconds; wal_held_by is a moment later
	// deferred.events, oldest and table_bytes, and the events of broker.paused
	Deferred    *time.Time `json:"deferred"`
	DeadLetters *time.Time `json:"dead_letters"`
	UnheldSlots *time.Time `json:"unheld_slots"`
	UnsentRows  *time.Time `json:"unsent_rows"`
	OpenGaps    *time.Time `json:"open_gaps"`
}

// The values of Status.AnsweredBy.
const (
	AnsweredByRelay    = "relay"
	AnsweredByDatabase = "database"
	AnsweredByNobody   = "nobody"
)

// The states of Status.State.
const (
	StateStopped    = "stopped"
	StateStopping   = "stopping"
	StateStarting   = "starting"
	StateWaiting    = "waiting for postgres"
	StateStandby    = "standby"
	StateBrokerDown = "broker down"
	StatePaused     = "destination paused"
	// no destination is paused, and events are deferred; or the database refuses to defer one
	StateDeferring  = "deferring"
	StateCatchingUp = "catching up" // the oldest unsettled commit is older than 10 s
	// nothing is in flight, and nothing was published in the last 10 s
	StateIdle      = "idle"
	StateStreaming = "streaming"
)

// States are all states.
var States = []string{
	StateStopped, StateStopping, StateStarting, StateWaiting, StateStandby, StateBrokerDown, StatePaused, StateDeferring, StateCatchingUp, StateIdle, StateStreaming,
}

// catchingUpFrom is the lag above which a relay that works is catching up.
const catchingUpFrom = 10 * time.Second

// SlotStatus is the replication slot as the server described it last.
type SlotStatus struct {
	Name string `json:"name"`
	// when the fields below, except lag_seconds, were read; zero time: not yet, and they are empty
	CheckedAt         time.Time `json:"checked_at"`
	ConfirmedFlushLSN string    `json:"confirmed_flush_lsn"`
	RestartLSN        string    `json:"restart_lsn"`
	CurrentWALLSN     string    `json:"current_wal_lsn"`
	LagBytes          int64     `json:"lag_bytes"`      // current − confirmed
	RetainedBytes     int64     `json:"retained_bytes"` // current − restart
	// age of the oldest commit that is not settled; null: not known, as while another relay holds
	// the slot
	LagSeconds   *float64 `json:"lag_seconds"`
	Active       bool     `json:"active"`
	WALStatus    string   `json:"wal_status"`
	SafeWALBytes *int64   `json:"safe_wal_bytes"` // null: unlimited
	// from checked_at until safe_wal_bytes is 0, if it shrinks on as in the last two minutes;
	// null: not known, unlimited, or it does not shrink
	SafeWALSeconds *float64 `json:"safe_wal_seconds"`
	SpilledBytes   int64    `json:"spilled_bytes"`
}

// BrokerStatus is the state of the broker's connections.
type BrokerStatus struct {
	Kind  string `json:"kind"` // as the configuration names it
	Up    bool   `json:"up"`
	WasUp bool   `json:"was_up"` // a connection was made at least once since the start
	Why   string `json:"why"`    // when it is not up
	// since when it is seen down, to a second while the relay leads; null: it is up
	DownSince       *time.Time `json:"down_since"`
	Connections     int        `json:"connections"`
	Channels        int        `json:"channels"` // of a broker that has them
	PendingConfirms int        `json:"pending_confirms"`
	// events since the start that no queue has got, and that count as delivered
	Ignored int64 `json:"ignored_returns,omitempty"`

	Paused      []Paused `json:"paused"` // destinations that refuse, the longest first
	PausedTotal int      `json:"paused_total"`
}

// InFlightStatus is what was read and is not settled.
type InFlightStatus struct {
	Events          int        `json:"events"`
	Bytes           int64      `json:"bytes"`
	OldestUnsettled *time.Time `json:"oldest_unsettled"` // commit time; null: nothing is in flight
	// everything that was committed below this position is settled; "": not known, as on a standby
	SettledLSN string `json:"settled_lsn"`
}

// DeferredStatus is the events that could not be published when their turn came, and are published
// later.
type DeferredStatus struct {
	// when the tables were counted; zero time: not yet, and then events and oldest are not known
	CountedAt time.Time  `json:"counted_at"`
	Events    int        `json:"events"` // in the retry table
	Oldest    *time.Time `json:"oldest"` // commit time; null: there is none
	// of the retry table and the dead letters on disk, with indexes, and the rows of other slots
	TableBytes int64 `json:"table_bytes"`
	// keys whose later events wait behind a deferred one
	WaitingKeys int `json:"waiting_keys"`
	// events whose rows are not committed yet; they are in flight too
	Queued  int `json:"queued"`
	Feeding int `json:"feeding"` // deferred events that are being sent again

	Refused      []RefusedRow `json:"refused"` // rows that the database refuses, the longest first
	RefusedTotal int          `json:"refused_total"`
}

// DeadLettersStatus is what was given up, and waits for an operator.
type DeadLettersStatus struct {
	CountedAt time.Time  `json:"counted_at"` // as in deferred
	Open      int        `json:"open"`
	Oldest    *time.Time `json:"oldest"` // when it died; null: there is none
}

// RetentionStatus is what deletes rows of the outbox tables that are delivered.
type RetentionStatus struct {
	Mode     string     `json:"mode"`      // none, also while another relay leads; delete
	LastPass *time.Time `json:"last_pass"` // when the tables were last gone through; null: not yet
	Deleted  uint64     `json:"deleted"`   // rows, since the process started
	// another slot that has not settled what is old enough, which keeps rows; "": none
	HeldBy string `json:"held_by"`
	// for how long the oldest row that may be deleted has waited for that; 0: none waits
	BehindSeconds float64 `json:"behind_seconds"`
	Error         string  `json:"error"` // why rows are not deleted; "": they are
}

// OpenTransaction is a transaction with writes that has not ended: of a process, or prepared.
type OpenTransaction struct {
	PID         int32      `json:"pid,omitempty"`
	GID         string     `json:"gid,omitempty"`
	Database    string     `json:"database"`
	Role        string     `json:"role"`
	Application string     `json:"application,omitempty"`
	Since       *time.Time `json:"since"`              // null: the relay's role may not know
	Later       int64      `json:"later_transactions"` // that have begun since
}

// UnheldSlot is a slot that a relay has used and that nobody holds, with what waits there until a
// relay does.
type UnheldSlot struct {
	Name          string `json:"name"`
	Deferred      int    `json:"deferred"`     // events
	DeadLetters   int    `json:"dead_letters"` // that are open
	OrMore        bool   `json:"or_more"`      // where one of these two is 10,000
	RetainedBytes int64  `json:"retained_bytes"`
	Lost          bool   `json:"lost"` // its WAL can no longer be read: wal_status is lost
}

// RatesStatus is the mean of the last ten whole seconds.
type RatesStatus struct {
	PublishedPerSecond float64 `json:"published_per_second"`
	DeferredPerSecond  float64 `json:"deferred_per_second"`
	RetriesPerSecond   float64 `json:"retries_per_second"`
	// what 99 of 100 events of the last minute took at most from their commit to the broker's
	// confirm, to an eighth; null: none was confirmed
	LatencyP99Seconds *float64 `json:"latency_p99_seconds"`
	LatencyP50Seconds *float64 `json:"latency_p50_seconds"` // likewise, what half of them took
}

// TotalsStatus counts since the process started.
type TotalsStatus struct {
	Published uint64 `json:"published"` // confirmed by the broker
	// rows committed in the retry table, counted again at each new refusal
	Deferred    uint64     `json:"deferred"`
	Dead        uint64     `json:"dead"`         // rows committed in the dead letters
	Failed      uint64     `json:"failed"`       // attempts that left no row and are repeated
	Retries     uint64     `json:"retries"`      // attempts to publish an event of the retry table
	RowsDeleted uint64     `json:"-"`            // of the outbox tables: retention.deleted
	LastConfirm *time.Time `json:"last_confirm"` // null: none yet

	StreamReconnects uint64 `json:"stream_reconnects"` // replication sessions after the first one
	BrokerReconnects uint64 `json:"broker_reconnects"` // connections that replaced a lost one
}

// Status makes the status of a Snapshot, for people and programs.
func (s *Snapshot) Status(rates RatesStatus, totals TotalsStatus, now time.Time) Status {
	out := Status{
		AnsweredBy: AnsweredByRelay, Role: s.Role(), Leader: s.Leader, Standbys: s.Standbys, Now: now,
		Slot: SlotStatus{Name: s.Slot.Name, LagSeconds: s.lagSeconds(now)},
		Broker: BrokerStatus{
			Kind: s.Sink.Kind, Up: s.Sink.Up, WasUp: s.Sink.WasUp, Why: s.Sink.Why, DownSince: orNil(s.Sink.DownSince), Connections: s.Sink.Connections, Channels: s.Sink.Channels, PendingConfirms: s.Sink.PendingConfirms, Ignored: s.Sink.Ignored,
			Paused: orEmpty(s.Paused), PausedTotal: s.PausedTotal,
		},
		InFlight: InFlightStatus{Events: s.InFlightEvents, Bytes: s.InFlightBytes, OldestUnsettled: orNil(s.OldestUnsettled)},
		Deferred: DeferredStatus{
			CountedAt: s.RetryTable.Counted, Events: s.RetryTable.Deferred, Oldest: orNil(s.RetryTable.OldestDeferred), TableBytes: s.RetryTable.Bytes, WaitingKeys: s.WaitingKeys,
			Queued: s.RetryTable.Queued, Feeding: s.RetryTable.Feeding, Refused: orEmpty(s.RetryTable.Refused), RefusedTotal: s.RetryTable.RefusedTotal,
		},
		DeadLetters: DeadLettersStatus{CountedAt: s.RetryTable.Counted, Open: s.RetryTable.Dead, Oldest: orNil(s.RetryTable.OldestDead)},
		Guard:       s.Guard,
		Retention:   s.retention(totals.RowsDeleted, now),
		UnheldSlots: s.Unheld,
		UnsentRows:  s.Unsent,
		OpenGaps:    s.OpenGaps,
		Rates:       rates, Totals: totals,
		WaitingForStandby:   orEmpty(s.WaitingForStandby),
		WALHeldBy:           orEmpty(s.HeldBy),
		UnreportedConfirmed: s.UnreportedConfirmed,
		AsOf:                s.asOf(),
	}
	if s.Settled != 0 {
		out.InFlight.SettledLSN = s.Settled.String()
	}
	if !s.Slot.Checked.IsZero() {
		out.Slot.describe(s.Slot)
	}
	out.Finding = s.Finding
	out.State, out.Why = state(s, rates.PublishedPerSecond, now)
	return out
}

func (s *Snapshot) asOf() AsOf {
	out := AsOf{Slot: orNil(s.Slot.Checked), Deferred: orNil(s.RetryTable.Counted), DeadLetters: orNil(s.RetryTable.Counted)}
	if s.Unheld != nil {
		out.UnheldSlots = orNil(s.UnheldAt)
	}
	if s.Unsent != nil {
		out.UnsentRows = orNil(s.UnsentAt)
	}
	if s.OpenGaps != nil {
		out.OpenGaps = orNil(s.UnsentAt)
	}
	return out
}

func (s *Snapshot) retention(deleted uint64, now time.Time) RetentionStatus {
	r := s.Retention
	if r == nil {
		return RetentionStatus{Mode: s.RetentionMode, Deleted: deleted}
	}
	return RetentionStatus{
		Mode: s.RetentionMode, LastPass: orNil(r.LastPass), Deleted: deleted, HeldBy: r.HeldBy, BehindSeconds: r.Behind(now).Seconds(), Error: r.Error,
	}
}

// orNil returns nil for the zero time, so that JSON has null.
func orNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

func (out *SlotStatus) describe(s Slot) {
	out.CheckedAt = s.Checked
	out.ConfirmedFlushLSN, out.RestartLSN, out.CurrentWALLSN = s.ConfirmedFlush.String(), s.Restart.String(), s.Current.String()
	out.LagBytes, out.RetainedBytes = s.LagBytes(), s.RetainedBytes()
	out.Active, out.WALStatus, out.SafeWALBytes, out.SafeWALSeconds, out.SpilledBytes = s.Active, s.WALStatus, s.SafeWALBytes, s.LeftSeconds, s.SpilledBytes
}

// state returns the state that matters most, and why. What keeps the relay from working comes
// before how well it works.
func state(s *Snapshot, rate float64, now time.Time) (state, why string) {
	switch s.Phase {
	case Stopped:
		return StateStopped, s.Why
	case Stopping:
		return StateStopping, s.Why
	case Waiting:
		return StateWaiting, s.Why
	case Standby:
		return StateStandby, s.Why
	case Streaming:
	default:
		return StateStarting, s.Why
	}
	switch {
	case !s.Sink.Up:
		return StateBrokerDown, s.Sink.Why
	case s.RetryTable.RefusedTotal > 0:
		return StateDeferring, whyRefused(s)
	case s.PausedTotal > 0:
		return StatePaused, whyPaused(s)
	case s.RetryTable.Deferred+s.RetryTable.Queued > 0:
		return StateDeferring, "" // no action is needed
	case s.lag(now) > catchingUpFrom:
		return StateCatchingUp, whySilent(s)
	case s.InFlightEvents+s.WaitingEvents == 0 && rate == 0:
		return StateIdle, whySilent(s)
	}
	return StateStreaming, whySilent(s)
}

// whySilent says why nothing comes from the server.
func whySilent(s *Snapshot) string {
	if s.Why != "" || len(s.WaitingForStandby) == 0 {
		return s.Why
	}
	return "waiting for standby " + strings.Join(s.WaitingForStandby, ", ")
}

// whyRefused says what an operator has to fix when the database refuses rows.
func whyRefused(s *Snapshot) string {
	if s.RetryTable.RefusedTotal == 1 && len(s.RetryTable.Refused) == 1 {
		return "the database refuses the row of an event that is to be deferred: " + s.RetryTable.Refused[0].Error
	}
	return fmt.Sprintf("the database refuses the rows of %d events that are to be deferred", s.RetryTable.RefusedTotal)
}

// whyPaused says what an operator has to fix when destinations are paused.
func whyPaused(s *Snapshot) string {
	if s.PausedTotal == 1 && len(s.Paused) == 1 {
		p := &s.Paused[0]
		why := p.Destination + ": " + p.Error
		if p.Fix != "" {
			why += "; " + p.Fix
		}
		return why
	}
	return fmt.Sprintf("%d of them", s.PausedTotal)
}

// Slots is the body of GET /api/v1/slots.
type Slots struct {
	Items []SlotItem `json:"items"` // the relay's own first, then those that keep the most WAL
	Total int        `json:"total"` // the logical slots of the server: items are at most 100
}

// SlotItem is one slot, with the same values as /metrics.
type SlotItem struct {
	SlotStatus
	// LagFrom says how lag_seconds is measured: commits is the age of the oldest commit that is not
	// settled, wal the time since WAL was seen that the slot has not confirmed.
	LagFrom string `json:"lag_from"`

	Own                bool   `json:"own"`
	Database           string `json:"database"`
	Plugin             string `json:"plugin"`
	InvalidationReason string `json:"invalidation_reason"` // "" before PostgreSQL 17
	Failover           bool   `json:"failover"`            // false before PostgreSQL 17
	// of the relay's own failover slot: a standby of synchronized_standby_slots holds delivery back
	WaitingForStandby bool `json:"waiting_for_standby"`

	Fix string `json:"fix,omitempty"` // what an operator does, to copy; "": nothing, or not known
}

// IsFresh reports whether the slot was read within the last minute.
func (out *SlotStatus) IsFresh(now time.Time) bool { return isFresh(out.CheckedAt, now) }

// Slots returns the slots that were read within the last minute. The relay's own comes first, and
// is in the list even if its reading is older.
func (s *Snapshot) Slots(now time.Time) []SlotItem {
	own := s.Slot.item(now)
	own.WaitingForStandby = len(s.WaitingForStandby) > 0
	own.Own, own.LagFrom, own.LagSeconds = true, "commits", s.lagSeconds(now)
	own.Fix = own.fix()
	items := []SlotItem{own}
	for _, other := range s.OtherSlots {
		if !isFresh(other.Checked, now) {
			continue
		}
		item := other.item(now)
		seconds := 0.0
		if !other.BehindSince.IsZero() {
			seconds = max(0, other.Checked.Sub(other.BehindSince).Seconds())
		}
		item.LagSeconds, item.LagFrom = &seconds, "wal"
		item.Fix = item.fix()
		items = append(items, item)
	}
	return items
}

// item shows a slot. A reading older than a minute may be wrong by now, so only the name of the
// slot is shown then.
func (s Slot) item(now time.Time) SlotItem {
	item := SlotItem{SlotStatus: SlotStatus{Name: s.Name}}
	if isFresh(s.Checked, now) {
		item.describe(s)
		item.Database, item.Plugin, item.InvalidationReason, item.Failover = s.Database, s.Plugin, s.Invalidation, s.Failover
	}
	return item
}
