// A status as JSON. It has the same members whether a relay, the database or nobody has answered,
// so that a program needs to know one form.

package operate

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// withRelay is the JSON of a relay's own status.
type withRelay struct {
	*ops.Status
	RelayError string `json:"relay_error"` // why the relay did not answer; here ""
	// null, because the relay has answered
	Database *databaseFacts `json:"database"`
}

// withoutRelay is the JSON when no relay answers. Its members replace those of ops.Status that only
// a relay knows; they are null.
type withoutRelay struct {
	ops.Status
	Version           *string             `json:"version"`
	StartedAt         *time.Time          `json:"started_at"`
	Slot              *ops.SlotStatus     `json:"slot"` // null when there is no slot
	WaitingForStandby *[]string           `json:"waiting_for_standby"`
	Broker            *ops.BrokerStatus   `json:"broker"`
	InFlight          *ops.InFlightStatus `json:"in_flight"`
	// null when the rows could not be counted
	Deferred *ops.DeferredStatus `json:"deferred"`
	// null when the rows could not be counted
	DeadLetters         *ops.DeadLettersStatus `json:"dead_letters"`
	Retention           *ops.RetentionStatus   `json:"retention"`
	Rates               *ops.RatesStatus       `json:"rates"`
	Totals              *ops.TotalsStatus      `json:"totals"`
	UnreportedConfirmed *uint64                `json:"unreported_confirmed"`

	RelayError string         `json:"relay_error"`
	Database   *databaseFacts `json:"database"`
}

// databaseFacts is what only the database's answer has.
type databaseFacts struct {
	Holder            string `json:"holder"` // the process that reads the slot; "" when nobody does
	LastLeader        string `json:"last_leader"`
	RecordState       string `json:"record_state"`
	DeferredOrMore    bool   `json:"deferred_or_more"` // there may be more than were counted
	DeadLettersOrMore bool   `json:"dead_letters_or_more"`
	// why the rows could not be counted; "" when they were
	NotCounted string `json:"not_counted"`
}

func relayJSON(s *ops.Status) withRelay { return withRelay{Status: s} }

func (v *databaseStatus) json() withoutRelay {
	out := withoutRelay{
		Status: ops.Status{
			AnsweredBy: ops.AnsweredByDatabase, State: v.State, Why: v.Why, Finding: v.Finding, Role: ops.RoleNone, Standbys: v.Standbys, Now: v.Now,
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
