// A message as a handler sees it, and what a failure adds to it.

package inbox

import (
	"fmt"
	"strings"
	"time"
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

// The classes of failures, as in the label class of consumer_processing_failed_total.
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

// Matches is whether it chooses a dead letter that has these.
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
