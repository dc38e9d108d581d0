package outbox

// The exit codes of the relay (docs/exit-codes.md).
const (
	ExitOK       = 0 // clean stop
	ExitFailure  = 1 // runtime failure: a right is missing, wal_level, no free slot, wrong password, fenced
	ExitUsage    = 2 // usage or configuration
	ExitOperator = 3 // an operator must decide: slot lost, moved or re-created, publication or table gone
	ExitMapping  = 4 // the outbox table does not exist at first start, or the mapping does not fit it
	ExitCut      = 5 // the drain was cut by the grace period
)

// Stop is an error after which the relay does not go on by itself. It names the thing, and what to do about it.
type Stop struct {
	Code   int    // one of the exit codes
	Reason string // one word of a closed list, for the metric outbox_stopped: "slot_lost", "mapping", …
	What   string // one clear line that names the thing
	Mend   string // what the operator does or runs; "" when What says it all
	Err    error  // the cause, when there is one
}

// Error is the line that is logged once, at the top.
func (s *Stop) Error() string {
	msg := s.What
	if s.Err != nil {
		msg += ": " + s.Err.Error()
	}
	if s.Mend != "" {
		msg += "; " + s.Mend
	}
	return msg
}

// Unwrap is the cause.
func (s *Stop) Unwrap() error { return s.Err }
