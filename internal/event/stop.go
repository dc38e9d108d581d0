// The exit codes, and Stop: an error after which the relay cannot continue by itself, with what the
// operator does about it.

package event

import "strings"

// The exit codes of the relay (docs/reference.md#exit-codes).
const (
	ExitOK = 0 // clean stop
	// runtime failure: a right is missing, wal_level, no free slot, wrong password, fenced
	ExitFailure = 1
	ExitUsage   = 2 // usage or configuration
	// an operator must decide: slot lost, moved or re-created, publication or table gone
	ExitOperator = 3
	// the outbox table does not exist at first start, or the mapping does not fit it
	ExitMapping = 4
	ExitCut     = 5 // the drain was cut by the grace period
)

// Stop is an error after which the relay cannot continue by itself. It says what is wrong and how
// to fix it.
type Stop struct {
	Code int // one of the exit codes
	// one word of a closed list, for the metric outbox_stopped: "slot_lost", "mapping", …
	Reason string
	What   string // one clear line that says what is wrong
	Fix    string // what the operator does or runs; "" when What says it all
	Err    error  // the cause, when there is one

	// Finding is, of ExitOperator, the ID by which `cdc-relay accept` takes what was found; "": it
	// cannot be accepted, or the database could not be asked. Until it is known, a Fix that can be
	// accepted has FindingID in its place.
	Finding string
	// Rows is what the finding is about when whose they are must be decided; nil: the slot itself.
	Rows *Rows
}

// FindingID stands in a Fix for the ID of the finding.
const FindingID = "<ID>"

// Rows are rows of a table, or messages of a prefix, that the relay stops at.
type Rows struct {
	Name string // schema.name of the table, or the prefix
	OID  uint32 // of the table; 0: messages
}

// Acceptable reports whether `cdc-relay accept` is a way to go on.
func (s *Stop) Acceptable() bool { return s.Finding != "" || strings.Contains(s.Fix, FindingID) }

// Error is the line that is logged once, at the top.
func (s *Stop) Error() string {
	msg := s.What
	if s.Err != nil {
		msg += ": " + s.Err.Error()
	}
	if s.Finding != "" {
		msg += " (finding " + s.Finding + ")"
	}
	if s.Fix != "" {
		msg += "; " + s.Fix
	}
	return msg
}

// Unwrap is the cause.
func (s *Stop) Unwrap() error { return s.Err }
