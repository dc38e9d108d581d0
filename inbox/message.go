// A message as a handler sees it, and what a failed attempt says about it.

package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Message is an event as it arrived.
type Message struct {
	ID        string // of the event, the same at each delivery: what is processed once
	Aggregate string // what the event is about, such as "order"; "" if not known
	Key       string // messages of the same aggregate and key are in order; "" has no order
	Type      string // such as "created"
	Payload   []byte // belongs to the handler
	// Headers are the headers of the event, and those of the relay, such as cdc_position. The
	// handler must not change them.
	Headers map[string]string

	Committed   time.Time // when the event was written, by its database; zero: not known
	Attempt     int       // 1 for the first
	FirstFailed time.Time // when the first attempt failed; zero at the first
	Source      string    // the queue or topic that it was sent to, also at later attempts
}

// Class says why an attempt failed.
type Class string

// The classes of failures, as in the label class of cdc_relay_inbox_failures_total.
const (
	Transient Class = "transient" // another attempt may succeed
	Permanent Class = "permanent" // none will
	Panic     Class = "panic"     // the handler panicked
	Timeout   Class = "timeout"   // the handler took longer than Config.Timeout
)

// The classes of dead letters that RabbitMQ has made itself. No attempt is counted as one of them.
const (
	Rejected      Class = "rejected"       // it does not take the message with its new headers
	DeliveryLimit Class = "delivery_limit" // it was delivered too often without an answer
)

// Failure is what a message carries after an attempt has failed.
type Failure struct {
	Class       Class         // of the last failure
	Reason      string        // the error's text, at most 1 KiB of UTF-8
	Attempts    int           // that have failed
	FirstFailed time.Time     // when the first attempt failed
	LastFailed  time.Time     // when the last one did
	Level       time.Duration // the pause before the next attempt; 0: there is none
}

// ReplayFilter chooses dead letters. All fields that are set must match; the zero value matches
// all.
type ReplayFilter struct {
	ID    string // of the event
	Type  string // of the event
	Class Class  // of the last failure
	Limit int    // how many are replayed at most; 0: no limit, and below 0 an error
}

// Check returns what is wrong with the filter.
func (f ReplayFilter) Check() error {
	if f.Limit < 0 {
		return fmt.Errorf("replay dead letters: Limit is %d: want 0 for all, or more", f.Limit)
	}
	return nil
}

// Matches reports whether the filter chooses a dead letter with this id, type and class.
func (f ReplayFilter) Matches(id, eventType string, class Class) bool {
	return (f.ID == "" || f.ID == id) && (f.Type == "" || f.Type == eventType) && (f.Class == "" || f.Class == class)
}

// LevelName is how a pause is written in names of queues, topics and metrics: "30s", "5m", "1h30m".
func LevelName(d time.Duration) string {
	name := d.String()
	if strings.HasSuffix(name, "m0s") {
		name = strings.TrimSuffix(name, "0s")
	}
	if strings.HasSuffix(name, "h0m") {
		name = strings.TrimSuffix(name, "0m")
	}
	return name
}

// A handler wraps one of these with %w to say what an error means. Any other error is transient. So
// is a value that PostgreSQL refuses (SQLSTATE class 22): it may be the message's, which no attempt
// changes, or come from a row, as a total that grows too large or a divisor that is 0. Only the
// handler knows.
var (
	// ErrPermanent: another attempt would fail, too. The message becomes a dead letter at once.
	ErrPermanent = errors.New("permanent")
	// ErrTransient: another attempt may succeed. It wins over an ErrPermanent in the same error.
	ErrTransient = errors.New("transient")
)

var (
	errTimeout        = errors.New("the handler took longer than Timeout")
	errIgnored        = errors.New("the handler ignored an error of its transaction: return it, or use a savepoint")
	errConnectionLost = errors.New("the connection was lost, or the handler has left rows of a query unread")
	errEnded          = permanentf("the handler ended its transaction by SQL")
)

// permanentError is an ErrPermanent whose text does not say so: a Failure has its class apart.
type permanentError struct{ error }

func permanentf(format string, args ...any) error {
	return permanentError{fmt.Errorf(format, args...)}
}

func (permanentError) Is(target error) bool { return target == ErrPermanent }
func (e permanentError) Unwrap() error      { return e.error }

// endedError is errEnded after a handler that has returned err, which must not decide: another
// attempt would find the record, and make a duplicate of a message whose effect is there in part.
func endedError(err error) error {
	if err == nil {
		return errEnded
	}
	return fmt.Errorf("%w: and it returned: %s", errEnded, err.Error())
}

// panicError is a panic of a handler.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// unavailableError is an error of the database, or of the service's table in it, before the handler
// was called. It says nothing about a message: each other one would meet it, too.
type unavailableError struct {
	err  error
	late bool // there was no answer within Config.Timeout
}

func (e *unavailableError) Error() string { return e.err.Error() }
func (e *unavailableError) Unwrap() error { return e.err }

// lostError is an error that the database may have caused, or the message: the connection was lost
// in the handler or in COMMIT, or the server had no memory or disk.
type lostError struct {
	doing string
	err   error
}

func (e *lostError) Error() string { return e.doing + ": " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// longestReason is how much of an error's text a message carries, in bytes.
const longestReason = 1 << 10

// failureOf says what becomes of a message after its attempt ended with err.
func (in *Inbox) failureOf(m Message, err error) Failure {
	now := time.Now()
	f := Failure{Class: classOf(err), Reason: reasonOf(err), Attempts: max(m.Attempt, 1), FirstFailed: m.FirstFailed, LastFailed: now}
	if f.FirstFailed.IsZero() {
		f.FirstFailed = now
	}
	again := f.Class != Permanent && (f.Class != Panic || f.Attempts == 1)
	if again && f.Attempts <= len(in.cfg.Levels) {
		f.Level = in.cfg.Levels[f.Attempts-1]
	}
	return f
}

func classOf(err error) Class {
	var panicked *panicError
	switch {
	case errors.As(err, &panicked):
		return Panic
	case errors.Is(err, ErrTransient):
		return Transient
	case errors.Is(err, ErrPermanent):
		return Permanent
	case errors.Is(err, errTimeout):
		return Timeout
	}
	return Transient
}

// reasonOf is the text of an error as a header may carry it.
func reasonOf(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= longestReason {
		return text
	}
	cut := longestReason
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// withCause adds why ctx has ended.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// longestID bounds the id of an event, in bytes: an index holds it.
const longestID = 1000

// checkID returns why an id cannot be recorded.
func checkID(id string) error {
	switch {
	case id == "":
		return permanentf("the message has no id of an event")
	case len(id) > longestID, !utf8.ValidString(id), strings.ContainsRune(id, 0):
		return permanentf("the event's id has more than %d bytes, or bytes that are no text", longestID)
	}
	return nil
}

// isRepeatable reports whether an attempt is made again at once, a few times, before it counts:
// after a deadlock, a serialization failure, and what the database may have caused.
func isRepeatable(err error) bool {
	var lost *lostError
	return hasSQLState(err, "40") || errors.As(err, &lost)
}
