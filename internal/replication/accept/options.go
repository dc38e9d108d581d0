// What an operator decides, and what is wrong with the input.

package accept

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Options are an operator's decision.
type Options struct {
	ID     string // of the finding, as the message has it
	Reason string // why, for the audit

	NewSlot bool // drop the slot, with what waits in it, and begin with a new one

	// of a server that is not the one the slot was read from; one of them, then
	SameData bool // it goes on in that one's place: what was deferred there is sent here
	Copy     bool // it is a copy: what was deferred there is sent there alone
	// with SameData on another system: whether what was committed on the one before was delivered,
	// DeliveredAll or DeliveredUnknown
	Delivered string

	Rows Rows // what rows or messages are that the relay stops at
}

// The answers of Options.Delivered.
const (
	DeliveredAll     = "all"     // but for what is deferred or a dead letter
	DeliveredUnknown = "unknown" // what is not known to be sent is recover's
)

// Rows say what rows or messages are. A table is NAME@OID, as the message has it.
type Rows struct {
	Skip         string // a table whose rows are not events
	SkipMessages string // a prefix whose messages are not events
	Events       string // a table whose rows are those of a configured one
	Of           string // of which one, when there are several
}

// Validate returns a Stop with exit code event.ExitUsage for options that exclude each other.
func (o Options) Validate() error {
	switch {
	case o.SameData && o.Copy:
		return usage("--same-data and --copy exclude each other", "")
	case o.Delivered != "" && !o.SameData:
		return usage("--delivered needs --same-data", "")
	case o.Delivered != "" && o.Delivered != DeliveredAll && o.Delivered != DeliveredUnknown:
		return usage("--delivered is all or unknown", "")
	case o.Rows.given() > 1:
		return usage("--skip-rows, --skip-messages and --events exclude each other", "")
	case o.Rows.given() == 1 && (o.NewSlot || o.SameData || o.Copy):
		return usage("--new-slot, --same-data and --copy are about the slot, and not about rows that the relay stops at", "")
	case o.Rows.Of != "" && o.Rows.Events == "":
		return usage("--of needs --events", "")
	}
	return o.Rows.validate()
}

func (r Rows) given() (n int) {
	for _, s := range []string{r.Skip, r.SkipMessages, r.Events} {
		if s != "" {
			n++
		}
	}
	return n
}

func (r Rows) validate() error {
	_, err := r.rows()
	return err
}

// rows are what the finding is about.
func (r Rows) rows() (event.Rows, error) {
	if r.SkipMessages != "" || r.given() == 0 {
		return event.Rows{Name: r.SkipMessages}, nil
	}
	text := r.Skip + r.Events
	at := strings.LastIndexByte(text, '@')
	oid, err := strconv.ParseUint(text[at+1:], 10, 32)
	if at < 1 || err != nil || oid == 0 {
		return event.Rows{}, usage(fmt.Sprintf("%q is not a table with its OID, such as public.audit@16423", text), "copy the command from the message")
	}
	return event.Rows{Name: text[:at], OID: uint32(oid)}, nil
}

// Result is what was done.
type Result struct {
	Finding string `json:"finding"`
	Done    string `json:"done"` // one sentence
	Moved   int64  `json:"moved_rows"`
	// rows of the outbox tables that recover leaves out from now on, by the operator's word
	Recorded int64 `json:"left_out_rows"`
}

func usage(what, fix string) *event.Stop {
	return &event.Stop{Code: event.ExitUsage, Reason: "usage", What: what, Fix: fix}
}

// printable bounds what somebody typed.
func printable(id string) string { return fmt.Sprintf("%.40q", id) }
