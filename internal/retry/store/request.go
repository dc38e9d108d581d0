// Operators' requests, and their answers.

package store

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// RequestKind is what an operator requests.
type RequestKind = dlq.Kind

// The kinds of requests.
const (
	Replay     = dlq.Replay
	Discard    = dlq.Discard
	Redact     = dlq.Redact
	Retry      = dlq.Retry
	DeadLetter = dlq.ToDeadLetter
	Purge      = dlq.Purge
)

// Request is a row of cdc_relay.request that waits.
type Request struct {
	ID   int64
	Kind RequestKind
	Row  *Row // nil: the row no longer exists, or its state does not allow the request
	// Of Replay: where to send it instead; nil parts stay as they were.
	Route event.Route
	// Begun is the epoch of the leader that called BeginReplay; 0: none did.
	Begun int64
}

// Answer is the result of a request. Outcome is the broker's answer to a replay; for other kinds it
// is ignored.
type Answer struct {
	Request Request
	Outcome sink.Outcome
}

// Verdict is what Answer does with a request.
type Verdict string

const (
	VerdictCarryOut Verdict = "carry out" // it needs no broker
	VerdictReplayed Verdict = "replayed"
	VerdictRefused  Verdict = "refused"
	// the row does not exist, or its state does not allow the request
	VerdictMissing Verdict = "missing"
	VerdictWaits   Verdict = "waits"
)

// Verdict returns what becomes of the request. It depends on the kind, the row, and the broker's
// answer.
func (a *Answer) Verdict() Verdict {
	switch {
	case a.Request.Row == nil:
		return VerdictMissing
	case a.Request.Kind != Replay:
		return VerdictCarryOut
	case a.Outcome.State == sink.Confirmed:
		return VerdictReplayed
	case a.Outcome.State == sink.Rejected:
		return VerdictRefused
	}
	return VerdictWaits
}

// Result returns the result of a refused replay in the form of a row's result.
func (a *Answer) Result() Result {
	r := Result{Row: a.Request.Row}
	if f := a.Outcome.Fault; a.Verdict() == VerdictRefused && f != nil {
		r.Class, r.Reason, r.Text, r.Destination, r.Attempts = f.Class, f.Reason, f.Text, f.Destination, a.Request.Row.Attempts
	}
	return r
}

// RefusalText returns the result of a refused replay as operators read it.
func RefusalText(a *Answer) string {
	r := a.Result()
	return BoundedText(fmt.Sprintf("%s: %s", r.Reason, r.Text), TextSize)
}

// NotAllowed is the result of a request that could not be carried out.
const NotAllowed = "it no longer exists, or its state does not allow this"

// TextPurged replaces the error text of a failed replay once its row is purged, because the text
// may contain names that were made from data.
const TextPurged = "its text is purged"
