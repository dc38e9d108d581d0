package ops

import "time"

// Status is the body of GET /api/v1/status. Names are stable: they are added to, not changed.
type Status struct {
	// State is one of the States, the first that holds in this order: stopped, stopping, starting, waiting for postgres,
	// standby, broker down, held, catching up, idle, streaming.
	State string `json:"state"`
	Why   string `json:"why"`  // what is waited for, who holds the slot, why it stopped or the broker is down; else ""
	Role  string `json:"role"` // leader, standby, none

	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
	Now       time.Time `json:"now"` // by the relay's clock

	Slot     SlotStatus     `json:"slot"`
	Broker   BrokerStatus   `json:"broker"`
	InFlight InFlightStatus `json:"in_flight"`

	Held      []Held `json:"held"` // the oldest events that hold their lanes
	HeldTotal int    `json:"held_total"`

	Rates  RatesStatus  `json:"rates"`
	Totals TotalsStatus `json:"totals"`

	// UnreportedConfirmed is the events that are confirmed and above the watermark, that is, behind one that is not: a
	// crash now repeats them, beside those below it that are not reported yet.
	UnreportedConfirmed uint64 `json:"unreported_confirmed"`
}

// The states of Status.State.
const (
	StateStopped    = "stopped"
	StateStopping   = "stopping"
	StateStarting   = "starting"
	StateWaiting    = "waiting for postgres"
	StateStandby    = "standby"
	StateBrokerDown = "broker down"
	StateHeld       = "held"        // a rejected event holds its lane
	StateCatchingUp = "catching up" // the oldest unsettled commit is older than 10 s
	StateIdle       = "idle"        // nothing is in flight, and nothing was published in the last 10 s
	StateStreaming  = "streaming"
)

// catchingUp is the lag from which a relay that works is said to catch up.
const catchingUp = 10 * time.Second

// SlotStatus is the replication slot as the server described it last.
type SlotStatus struct {
	Name              string    `json:"name"`
	CheckedAt         time.Time `json:"checked_at"` // zero time: not yet, and then the fields below but lag_seconds are empty
	ConfirmedFlushLSN string    `json:"confirmed_flush_lsn"`
	RestartLSN        string    `json:"restart_lsn"`
	CurrentWALLSN     string    `json:"current_wal_lsn"`
	LagBytes          int64     `json:"lag_bytes"`      // current − confirmed
	RetainedBytes     int64     `json:"retained_bytes"` // current − restart
	LagSeconds        float64   `json:"lag_seconds"`    // age of the oldest commit that is not settled
	Active            bool      `json:"active"`
	WALStatus         string    `json:"wal_status"`
	SafeWALBytes      *int64    `json:"safe_wal_bytes"` // null: unlimited
	SpilledBytes      int64     `json:"spilled_bytes"`
}

// BrokerStatus is the state of the broker's connections.
type BrokerStatus struct {
	Kind            string `json:"kind"` // rabbitmq, kafka, stdout
	Up              bool   `json:"up"`
	Why             string `json:"why"` // when it is not up
	Connections     int    `json:"connections"`
	Channels        int    `json:"channels"` // of RabbitMQ
	PendingConfirms int    `json:"pending_confirms"`

	Paused      []Paused `json:"paused"` // destinations that refuse, the first by name
	PausedTotal int      `json:"paused_total"`
}

// InFlightStatus is what was read and is not settled.
type InFlightStatus struct {
	Events          int        `json:"events"`
	Bytes           int64      `json:"bytes"`
	OldestUnsettled *time.Time `json:"oldest_unsettled"` // commit time; null: nothing is in flight
}

// RatesStatus is the mean of the last ten whole seconds.
type RatesStatus struct {
	PublishedPerSecond float64 `json:"published_per_second"`
}

// TotalsStatus counts since the process started.
type TotalsStatus struct {
	Published   uint64     `json:"published"`    // confirmed by the broker
	Failed      uint64     `json:"failed"`       // attempts that were rejected, or are in doubt because the connection broke
	LastConfirm *time.Time `json:"last_confirm"` // null: none yet
}

// status describes a Snapshot in words and numbers.
func (m *Metrics) status(s *Snapshot, now time.Time) Status {
	out := Status{
		Role: s.role(), Now: now,
		Slot: SlotStatus{Name: s.Slot.Name, LagSeconds: s.lag(now).Seconds()},
		Broker: BrokerStatus{
			Kind: s.Sink.Kind, Up: s.Sink.Up, Why: s.Sink.Why, Connections: s.Sink.Connections, Channels: s.Sink.Channels, PendingConfirms: s.Sink.PendingConfirms,
			Paused: append([]Paused{}, s.Sink.Paused...), PausedTotal: s.Sink.PausedTotal, // never null in JSON
		},
		InFlight:            InFlightStatus{Events: s.InFlightEvents, Bytes: s.InFlightBytes},
		Held:                held(s),
		HeldTotal:           s.HeldTotal,
		Rates:               RatesStatus{PublishedPerSecond: m.rate.perSecond(now)},
		Totals:              TotalsStatus{Published: m.published.Load(), Failed: m.failed.Load()},
		UnreportedConfirmed: s.UnreportedConfirmed,
	}
	if !s.OldestUnsettled.IsZero() {
		out.InFlight.OldestUnsettled = &s.OldestUnsettled
	}
	if last := m.lastConfirmed.Load(); last != 0 {
		at := time.Unix(0, last).UTC()
		out.Totals.LastConfirm = &at
	}
	if !s.Slot.Checked.IsZero() {
		out.Slot.describe(s.Slot)
	}
	out.State, out.Why = state(s, out.Rates.PublishedPerSecond, now)
	return out
}

func (out *SlotStatus) describe(s Slot) {
	out.CheckedAt = s.Checked
	out.ConfirmedFlushLSN, out.RestartLSN, out.CurrentWALLSN = s.ConfirmedFlush.String(), s.Restart.String(), s.Current.String()
	out.LagBytes, out.RetainedBytes = s.LagBytes(), s.RetainedBytes()
	out.Active, out.WALStatus, out.SafeWALBytes, out.SpilledBytes = s.Active, s.WALStatus, s.SafeWALBytes, s.SpilledBytes
}

// state says in one word what matters most: what keeps the relay from working comes before how well it works.
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
	case s.HeldTotal > 0:
		return StateHeld, ""
	case s.lag(now) > catchingUp:
		return StateCatchingUp, ""
	case s.InFlightEvents+s.WaitingEvents == 0 && rate == 0:
		return StateIdle, ""
	}
	return StateStreaming, ""
}
