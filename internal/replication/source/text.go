// The texts of fixes: the statements and hints that tell an operator how to continue. Several parts
// of the relay report the same findings, and must give the same advice.

package source

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// NewSlotHint says who creates the next slot: the relay, or the operator by a statement.
func NewSlotHint(c *Config) string {
	if c.Create {
		return " (a new slot is created)"
	}
	return "; then create the slot, since source.create is false: " + MakeSlotSQL(c)
}

// MakeSlotSQL is the statement by which an operator creates the configured slot.
func MakeSlotSQL(c *Config) string {
	failover := ""
	if c.FailoverSlot == FailoverOn { // else nobody has said that the server knows it
		failover = ", failover => true"
	}
	return fmt.Sprintf("SELECT pg_create_logical_replication_slot(%s, 'pgoutput'%s)", QuoteText(c.Slot), failover)
}

// DropSlotHint is the fix that drops a logical slot of this database. What waits in the slot may be
// the only copy, of messages and of rows that are deleted at once. So the hint first shows it,
// through a copy of the slot for another plugin. The copy shows all that waits, also what the
// publication hides, and as it is stored, because the server may not be able to convert it. A copy
// of another database's slot would be decoded with the wrong catalogue, and show nothing.
func DropSlotHint(slot string) string {
	return ShowSlotHint(slot) + "; when nobody needs it any more, drop the slot: SELECT pg_drop_replication_slot(" + QuoteText(slot) + ")"
}

// ShowSlotHint is the statements that show what waits in a slot of this database, without consuming
// it.
func ShowSlotHint(slot string) string {
	return fmt.Sprintf("see what waits in the slot, which may be the only copy (this shows it, and keeps nothing): SET client_encoding = 'SQL_ASCII'; SELECT pg_copy_logical_replication_slot(%s, 'look', true, 'test_decoding'); SELECT * FROM pg_logical_slot_peek_changes('look', NULL, NULL)",
		QuoteText(slot))
}

// AcceptCommand is the command by which an operator accepts a finding. FoundState.NameStop puts the
// ID in.
const AcceptCommand = "cdc-relay accept " + event.FindingID

// AcceptHint is the fix by which an operator accepts that rows may be missing.
const AcceptHint = "to go on: " + AcceptCommand + "; then `cdc-relay recover` sends those of the missing rows that are still in the outbox table"

// StartAgainHint ends the fix of something that hid rows: the rows that may be missing by then are
// another finding, which the next start makes.
const StartAgainHint = "; then start the relay again, which says what may be missing, and how to go on"

// NameHint is the fix for a slot or publication that is named in a configuration that must find it.
// Creating one would start with what is committed from then on, and would leave behind what waits
// in the intended one.
func NameHint(what string) string {
	names := map[string]string{"slot": "SELECT slot_name, plugin, database FROM pg_replication_slots", "publication": "SELECT pubname FROM pg_publication"}
	return fmt.Sprintf("correct source.%s: %s; or set source.create: true to start with what is committed from now on", what, names[what])
}

// ReaddTableSQL removes a table's column list and row filter from the publication. It does not use
// SET TABLE, which would remove the other tables.
func ReaddTableSQL(c *Config, t decode.Table) string {
	return fmt.Sprintf("ALTER PUBLICATION %[1]s DROP TABLE ONLY %[2]s; ALTER PUBLICATION %[1]s ADD TABLE ONLY %[2]s", QuoteName(c.Publication), QuoteTable(t))
}

// SlotMoved is the finding (exit 3) for a slot that was moved, or is another one than before. what
// is the sentence about it. The fix is to send the missing rows again and to accept the slot.
func SlotMoved(what string) *event.Stop {
	return &event.Stop{
		Code: event.ExitOperator, Reason: "slot_moved", What: what,
		Fix: AcceptHint,
	}
}

// ServerMoved is the finding (exit 3) for a server that is not the one that the slot was read from.
// Only an operator knows which of the two it is. otherSystem: it has another system identifier.
func ServerMoved(what string, otherSystem bool) *event.Stop {
	return &event.Stop{
		Code: event.ExitOperator, Reason: "slot_moved", What: what, Fix: MovedFix("", otherSystem),
	}
}

// MovedFix is the fix on a server that is not the one that the slot was read from; first is what
// may be run before accept.
func MovedFix(first string, otherSystem bool) string {
	same := " --same-data, which has its deferred events sent"
	if otherSystem {
		same = " --same-data --delivered unknown, which has its deferred events sent (or --delivered all, if all else was delivered before the move: then there is nothing to recover)"
	}
	return "if this server goes on with the same data: " + first + AcceptCommand + same + "; if it is a copy, and the other server goes on: " +
		AcceptCommand + " --copy, which leaves them, and what waits in the slot, to that one"
}

// SlotLost is the finding (exit 3) for a slot that is gone, or cannot be read any further, so that
// a new slot must begin. newSlot is "", or the flag of accept that drops the old slot.
func SlotLost(c *Config, what, newSlot string) *event.Stop {
	return &event.Stop{
		Code: event.ExitOperator, Reason: "slot_lost", What: what,
		Fix: "cdc-relay recover, which makes a new slot and sends what is still in the outbox table; or go on without it: " + AcceptCommand + newSlot + NewSlotHint(c),
	}
}

// NewSlotFlag is the flag with which accept drops the slot, so that a new one is made.
const NewSlotFlag = " --new-slot"

// ForeignSlot is the finding (exit 3) for a slot that is not the relay's: its text is the slot's
// name and then what.
func ForeignSlot(c *Config, what string) *event.Stop {
	return &event.Stop{
		Code: event.ExitOperator, Reason: "slot_foreign",
		What: fmt.Sprintf("slot %q %s", c.Slot, what),
		Fix:  "choose another source.slot",
	}
}

// InitHint is the command that gives a role what it needs, and says who runs it. The command
// creates no slot: the first start or a takeover does that.
func InitHint(role string) string {
	return InitHintBy(role, "a superuser or a role that may create it")
}

// InitHintBy is InitHint for a command that not every role may run: runs says which roles may.
func InitHintBy(role, runs string) string {
	role = "'" + strings.ReplaceAll(role, "'", `'\''`) + "'"
	return "run `cdc-relay init --no-slot --url <URL> --role " + role + "`: the <URL> is of " + runs + ", " + role + " is the relay's role"
}

// TakeoverStop is the Stop (exit 3) of a takeover that cannot go on by itself.
func TakeoverStop(what, fix string) *event.Stop {
	return &event.Stop{Code: event.ExitOperator, Reason: "takeover", What: what, Fix: fix}
}

const (
	ApplicationPrefix = "cdc-relay/"
	nameLimit         = 63 // NAMEDATALEN - 1
)

// ApplicationName distinguishes a relay of this slot from any other holder. The server truncates it
// to nameLimit bytes, and comparisons with its views must use the truncated name.
func (c *Config) ApplicationName() string {
	name := ApplicationPrefix + c.Slot
	return name[:min(len(name), nameLimit)]
}

// TableNames lists the configured tables for people.
func (c *Config) TableNames() string {
	names := make([]string, len(c.Tables))
	for i, t := range c.Tables {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}

// QuotedTables returns the configured tables as QuoteTable writes them, in the configured order.
func (c *Config) QuotedTables() []string {
	names := make([]string, len(c.Tables))
	for i, t := range c.Tables {
		names[i] = QuoteTable(t)
	}
	return names
}

// RelayedFields are the log fields for what is relayed.
func (c *Config) RelayedFields() []zap.Field {
	fields := []zap.Field{zap.String("tables", c.TableNames())}
	if c.Messages.Prefix != "" {
		fields = append(fields, zap.String("message_prefix", c.Messages.Prefix))
	}
	return fields
}

// QuoteTable returns a table's name as SQL, with its schema, both always in double quotes.
func QuoteTable(t decode.Table) string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

// GrantDelete is the SQL of the rights that retention needs on a table. UPDATE of a column is
// needed for SELECT ... FOR UPDATE, with which retention leaves out rows that somebody has locked.
func GrantDelete(t decode.Table, role string) string {
	return fmt.Sprintf("GRANT DELETE, UPDATE (%s) ON %s TO %s", QuoteName(t.Mapping.ID.Any[0]), QuoteTable(t), role)
}

// QuoteName returns a name as an SQL identifier, always in double quotes.
func QuoteName(name string) string { return pgx.Identifier{name}.Sanitize() }

// QuoteText returns s as an SQL string literal, for a server with standard_conforming_strings on.
func QuoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// ShellText returns s as one word of a POSIX shell, in quotes if it must be.
func ShellText(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@:/-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// BytesText writes n bytes as a whole number of B, KiB, MiB or GiB for people, rounded down; below
// 10 of a unit it uses the next smaller one.
func BytesText(n uint64) string {
	const unit = 1024
	for _, name := range []string{"B", "KiB", "MiB"} {
		if n < unit*10 {
			return fmt.Sprintf("%d %s", n, name)
		}
		n /= unit
	}
	return fmt.Sprintf("%d GiB", n)
}
