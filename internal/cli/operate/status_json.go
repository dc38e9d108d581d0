// A status as JSON: the same members, whoever answered.

package operate

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// withRelay is a status of a relay.
type withRelay struct {
	*ops.Status
	RelayError string `json:"relay_error"` // why the relay did not answer; "": it did
	// what the database was asked; null: the relay answered
	Database *databaseFacts `json:"database"`
}

// withoutRelay is a status when no relay answers. Its members replace those of ops.Status that only
// a relay knows, and are null.
type withoutRelay struct {
	ops.Status
	Version           *string             `json:"version"`
	StartedAt         *time.Time          `json:"started_at"`
	Slot              *ops.SlotStatus     `json:"slot"` // null: there is none
	WaitingForStandby *[]string           `json:"waiting_for_standby"`
	Broker            *ops.BrokerStatus   `json:"broker"`
	InFlight          *ops.InFlightStatus `json:"in_flight"`
	// null: they could not be counted
	Deferred            *ops.DeferredStatus    `json:"deferred"`
	DeadLetters         *ops.DeadLettersStatus `json:"dead_letters"` // likewise
	Retention           *ops.RetentionStatus   `json:"retention"`
	Rates               *ops.RatesStatus       `json:"rates"`
	Totals              *ops.TotalsStatus      `json:"totals"`
	UnreportedConfirmed *uint64                `json:"unreported_confirmed"`

	RelayError string         `json:"relay_error"`
	Database   *databaseFacts `json:"database"`
}

// databaseFacts is what the database says in addition.
type databaseFacts struct {
	Holder            string `json:"holder"` // of the slot; "": nobody
	LastLeader        string `json:"last_leader"`
	RecordState       string `json:"record_state"`
	DeferredOrMore    bool   `json:"deferred_or_more"` // there may be more than were counted
	DeadLettersOrMore bool   `json:"dead_letters_or_more"`
	NotCounted        string `json:"not_counted"` // why they were not; "": they were
}

func relayJSON(s *ops.Status) withRelay {
	answer := *s
	answer.AnsweredBy = ops.AnsweredByRelay // an earlier version does not say it
	return withRelay{Status: &answer}
}

func (v *databaseStatus) json() withoutRelay {
	out := withoutRelay{
		Status: ops.Status{
			AnsweredBy: ops.AnsweredByDatabase, State: v.State, Why: v.Why, Finding: v.Finding, Role: ops.RoleNone, Now: v.Now,
			WALHeldBy: append([]ops.OpenTransaction{}, v.WALHeldBy...), UnheldSlots: v.UnheldSlots, OpenGaps: v.OpenGaps,
		},
		RelayError: v.Relay,
		Database:   &databaseFacts{Holder: v.Holder, LastLeader: v.LastLeader, RecordState: v.RecordState, NotCounted: v.NotCounted},
	}
	if v.SlotExists {
		out.Slot, out.AsOf.Slot = &v.Slot, &v.Now
	}
	if v.UnheldSlots != nil {
		out.AsOf.UnheldSlots = &v.Now
	}
	if v.OpenGaps != nil {
		out.AsOf.OpenGaps = &v.Now
	}
	if d := v.Deferred; d != nil {
		out.Deferred = &ops.DeferredStatus{CountedAt: v.Now, Events: d.Events, Oldest: d.Oldest, Refused: []ops.RefusedRow{}}
		out.AsOf.Deferred, out.Database.DeferredOrMore = &v.Now, d.OrMore
	}
	if d := v.DeadLetters; d != nil {
		out.DeadLetters = &ops.DeadLettersStatus{CountedAt: v.Now, Open: d.Open, Oldest: d.Oldest}
		out.AsOf.DeadLetters, out.Database.DeadLettersOrMore = &v.Now, d.OrMore
	}
	return out
}
