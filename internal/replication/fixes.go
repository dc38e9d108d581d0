// The statements and sentences that a message gives an operator to go on with.

package replication

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// createPublicationSQL publishes inserts only, so that housekeeping of the outbox table costs a
// decode and no traffic, and a partitioned table under its own name. Messages are sent whatever is
// in it; without tables it is empty.
func createPublicationSQL(c *Config) string {
	tables := ""
	if len(c.Tables) > 0 {
		tables = "FOR TABLE " + c.tableNames() + " "
	}
	return fmt.Sprintf("CREATE PUBLICATION %s %sWITH (publish = 'insert', publish_via_partition_root = true)", quoteName(c.Publication), tables)
}

func publicationMissing(c *Config) *outbox.Stop {
	return &outbox.Stop{
		Code: outbox.ExitOperator, Reason: "publication",
		What: fmt.Sprintf("publication %q does not exist", c.Publication),
		Mend: remakePublication(c),
	}
}

// remakePublication needs a new slot: the old one decodes with the catalogue of the time of each
// row, in which the publication is missing, and fails there for ever (PostgreSQL 14 to 17).
func remakePublication(c *Config) string {
	return createPublicationSQL(c) + "; " + renewSlot(c)
}

// renewSlot is the mend for a slot whose publication was missing for a time.
func renewSlot(c *Config) string {
	return fmt.Sprintf("SELECT pg_drop_replication_slot(%s)%s%s; then find and re-send what is missing", quoteText(c.Slot), adoptHint(c), newSlotHint(c))
}

// newSlotHint says who makes the slot after that.
func newSlotHint(c *Config) string {
	if c.Create {
		return " (a new slot is created)"
	}
	return "; then make the slot, since source.create is false: " + makeSlotSQL(c)
}

func makeSlotSQL(c *Config) string {
	return fmt.Sprintf("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", quoteText(c.Slot))
}

// adoptHint says how to go on after an operator accepted that rows may be missing.
func adoptHint(c *Config) string {
	return fmt.Sprintf("; then accept the slot as it is: UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = %s", quoteText(c.Slot))
}

func publicationStop(c *Config, what, mend string) *outbox.Stop {
	return &outbox.Stop{
		Code: outbox.ExitOperator, Reason: "publication",
		What: fmt.Sprintf("publication %q %s", c.Publication, what),
		Mend: mend,
	}
}

// acceptSQL accepts a slot of which there is no record, and whose state cannot be set.
func acceptSQL(c *Config) string {
	return fmt.Sprintf("INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation) VALUES (%s, '', 0, %s, 'adopt', 0)",
		quoteText(c.Slot), quoteText(c.Publication))
}

// correctName is the mend for a slot or publication that is named in a configuration that must find
// it. To make one would be to begin with what is committed from then on, and to leave behind what
// waits in the one that was meant.
func correctName(what string) string {
	names := map[string]string{"slot": "SELECT slot_name, plugin, database FROM pg_replication_slots", "publication": "SELECT pubname FROM pg_publication"}
	return fmt.Sprintf("correct source.%s: %s; or state source.create: true, to begin with what is committed from now on", what, names[what])
}

// takeAndPut frees a table of what the publication says of it besides (not SET TABLE: that would
// take the other tables out).
func takeAndPut(c *Config, t decode.Table) string {
	return fmt.Sprintf("ALTER PUBLICATION %[1]s DROP TABLE %[2]s; ALTER PUBLICATION %[1]s ADD TABLE %[2]s", quoteName(c.Publication), quoteTable(t))
}
