// The statements and sentences that a message gives an operator to go on with.

package source

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// NewSlotHint says who makes the slot after that.
func NewSlotHint(c *Config) string {
	if c.Create {
		return " (a new slot is created)"
	}
	return "; then make the slot, since source.create is false: " + MakeSlotSQL(c)
}

func MakeSlotSQL(c *Config) string {
	return fmt.Sprintf("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", QuoteText(c.Slot))
}

// AdoptHint says how to go on after an operator accepted that rows may be missing.
func AdoptHint(c *Config) string {
	return fmt.Sprintf("; then accept the slot as it is: UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = %s", QuoteText(c.Slot))
}

// NameHint is the fix for a slot or publication that is named in a configuration that must find
// it. To make one would be to begin with what is committed from then on, and to leave behind what
// waits in the one that was meant.
func NameHint(what string) string {
	names := map[string]string{"slot": "SELECT slot_name, plugin, database FROM pg_replication_slots", "publication": "SELECT pubname FROM pg_publication"}
	return fmt.Sprintf("correct source.%s: %s; or state source.create: true, to begin with what is committed from now on", what, names[what])
}

// TakeAndPut frees a table of what the publication says of it besides (not SET TABLE: that would
// take the other tables out).
func TakeAndPut(c *Config, t decode.Table) string {
	return fmt.Sprintf("ALTER PUBLICATION %[1]s DROP TABLE %[2]s; ALTER PUBLICATION %[1]s ADD TABLE %[2]s", QuoteName(c.Publication), QuoteTable(t))
}

func SlotMoved(c *Config, what string) *event.Stop {
	return &event.Stop{
		Code: event.ExitOperator, Reason: "slot_moved", What: what,
		Fix: "find and re-send what is missing" + AdoptHint(c),
	}
}

func SlotLost(c *Config, what, fix string) *event.Stop {
	return &event.Stop{Code: event.ExitOperator, Reason: "slot_lost", What: what, Fix: fix}
}

func ForeignSlot(c *Config, what string) *event.Stop {
	return &event.Stop{
		Code: event.ExitOperator, Reason: "slot_foreign",
		What: fmt.Sprintf("slot %q %s", c.Slot, what),
		Fix:  "choose another source.slot",
	}
}

// InitHint is the command that gives a role what it needs. It makes no slot: that is the first
// start's, or a take-over's, at their time.
func InitHint(role string) string {
	return fmt.Sprintf("run `cdc-relay init --no-slot --url <URL of a role that may create it> --role %s`", shellWord(role))
}

// shellWord is a name as a shell takes it.
func shellWord(name string) string {
	if !strings.ContainsFunc(name, func(r rune) bool {
		return !(r == '_' || r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}) {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

func TakeoverStop(code int, what, fix string) *event.Stop {
	reason := "takeover"
	if code == event.ExitUsage {
		reason = "usage"
	}
	return &event.Stop{Code: code, Reason: reason, What: what, Fix: fix}
}
