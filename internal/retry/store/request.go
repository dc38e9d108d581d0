// What operators ask for, and the answers.

package store

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// RequestKind is what an operator asked for.
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
	Row  *Row // nil: it is not there any more, or not in a state that allows this
	// Row is a dead letter that is open: with on_dead_letter: block it is counted for its ordering
	// group
	Open bool
	// Of Replay, instead of where the dead letter was going: nil parts are left as they are.
	Route event.Route
}

// Answer is the end of a request. Of a replay Outcome is what the broker said; of the others it is
// ignored.
type Answer struct {
	Request Request
	Outcome sink.Outcome
}

// Verdict is what Answer does about a request.
type Verdict string

const (
	VerdictCarryOut Verdict = "carry out" // it needs no broker
	VerdictReplayed Verdict = "replayed"
	VerdictRefused  Verdict = "refused"
	VerdictMissing  Verdict = "missing" // its row is not there, or not in a state that allows it
	VerdictWaits    Verdict = "waits"
)

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

// Result is what a refused replay ends with, as a result of its row.
func (a *Answer) Result() Result {
	r := Result{Row: a.Request.Row}
	if f := a.Outcome.Fault; a.Verdict() == VerdictRefused && f != nil {
		r.Class, r.Reason, r.Words, r.Destination, r.Attempts = f.Class, f.Reason, f.Words, f.Destination, a.Request.Row.Attempts
	}
	return r
}

// Said is what the operator reads of a refused replay.
func Said(a *Answer) string {
	r := a.Result()
	return BoundedText(fmt.Sprintf("%s: %s", r.Reason, r.Words), TextSize)
}

// NotAllowed is what he reads when nothing could be done.
const NotAllowed = "not there any more, or not in a state that allows it"

// WordsPurged stands for what was said of a replay that failed, once its row is purged: it may have
// named what was made of data.
const WordsPurged = "its words are purged"
