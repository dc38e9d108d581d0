// A message as a handler sees it, how an error is classified, and what follows from it.

package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Message is an event as a delivery has brought it.
type Message struct {
	ID        string // of the event, the same at each delivery: what is processed once
	Aggregate string // what the event is about, such as "order"; "" if not known
	Key       string // messages of the same aggregate and key are in order; "" has no order
	Type      string // such as "created"
	Payload   []byte // belongs to the handler
	// ContentType is that of Payload, as the message says it; "" if it does not. It is also in
	// Headers on Kafka, where it is the header content-type.
	ContentType string
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

// The classes of attempts that failed, as in the label class of cdc_relay_inbox_failures_total.
const (
	Transient Class = "transient" // another attempt may succeed
	Permanent Class = "permanent" // no attempt will succeed
	Panic     Class = "panic"     // the handler panicked
	Timeout   Class = "timeout"   // the handler took longer than Config.Timeout
)

// The classes of dead letters that RabbitMQ itself has made. No attempt is counted as one of them.
const (
	// the broker does not take the message with the headers of a dead letter
	Rejected      Class = "rejected"
	DeliveryLimit Class = "delivery_limit" // it was delivered too often without an acknowledgement
)

// Failure is what is known about a message after an attempt has failed.
type Failure struct {
	Class       Class         // of the last failure
	Reason      string        // the error's text, at most 1 KiB of UTF-8
	Attempts    int           // how many attempts have failed
	FirstFailed time.Time     // when the first attempt failed
	LastFailed  time.Time     // when the last attempt failed
	Level       time.Duration // the pause before the next attempt; 0 when there is none
}

// ReplayFilter chooses dead letters. All fields that are set must match. The zero value chooses all
// dead letters.
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

// LevelName returns how a pause is written in names of queues, topics and metrics: "30s", "5m",
// "1h30m".
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
	// ErrPermanent says that another attempt would fail, too. The message becomes a dead letter at
	// once.
	ErrPermanent = errors.New("permanent")
	// ErrTransient says that another attempt may succeed. It wins over an ErrPermanent in the same
	// error.
	ErrTransient = errors.New("transient")
)

var (
	errTimeout        = errors.New("the handler took longer than Timeout")
	errIgnored        = errors.New("the handler ignored an error of its transaction: return it, or use a savepoint")
	errConnectionLost = errors.New("the connection was lost, or the handler has left rows of a query unread")
	errEnded          = permanentf("the handler ended its transaction by SQL")
)

// permanentError is an ErrPermanent without the word in its text, because a Failure has the class
// apart.
type permanentError struct{ error }

func permanentf(format string, args ...any) error {
	return permanentError{fmt.Errorf(format, args...)}
}

func (permanentError) Is(target error) bool { return target == ErrPermanent }
func (e permanentError) Unwrap() error      { return e.error }

// endedError is the error of a handler that has ended its transaction. err, which the handler
// returned, does not decide: another attempt would find the record of the event, and make a
// duplicate of a message whose effect is there only in part.
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

// unavailableError is an error of the database, or of the service's table in it, from before the
// handler was called. It says nothing about the message: every other one would meet it, too.
type unavailableError struct {
	err  error
	late bool // there was no answer within Config.Timeout
}

func (e *unavailableError) Error() string { return e.err.Error() }
func (e *unavailableError) Unwrap() error { return e.err }

// lostError is an error that either the database or the message may have caused: the connection was
// lost in the handler or in COMMIT, or the server had no memory or disk.
type lostError struct {
	doing string
	err   error
}

func (e *lostError) Error() string { return e.doing + ": " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// longestReason is how much of an error's text goes with a message, in bytes.
const longestReason = 1 << 10

// failureOf decides what happens to a message after its attempt ended with err: a further attempt,
// or a dead letter.
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

// reasonOf returns the text of an error in a form that a header may have.
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

// withCause adds to an error why ctx has ended.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// longestID is how long the id of an event may be, in bytes: it is in an index.
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

// isRepeatable reports whether an attempt may be repeated at once, a few times, before it counts as
// failed. That is so after a deadlock, after a serialization failure, and after an error that the
// database may have caused.
func isRepeatable(err error) bool {
	var lost *lostError
	return hasSQLState(err, "40") || errors.As(err, &lost)
}
