// The Stops about the publication, and the SQL that fixes it.

package publication

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Stop is the finding (exit 3) about the configured publication: its text is the publication's name
// and then what, and fix says how to continue.
func Stop(c *source.Config, what, fix string) *event.Stop {
	return &event.Stop{
		Code: event.ExitOperator, Reason: "publication",
		What: fmt.Sprintf("publication %q %s", c.Publication, what),
		Fix:  fix,
	}
}

// Missing is the finding (exit 3) for a publication that does not exist. It needs a new slot: the
// old one decodes with the catalogue of the time of each row, in which the publication is missing,
// and fails there for ever (PostgreSQL 14 to 17).
func Missing(c *source.Config) *event.Stop {
	if c.Create {
		return Stop(c, "does not exist", RenewSlotHint(c))
	}
	return Stop(c, "does not exist", CreateSQL(c)+source.AgainHint)
}

// RenewSlotHint is the fix for a slot whose publication was missing for a time.
func RenewSlotHint(c *source.Config) string {
	return source.LookHint(c.Slot) + "; then cdc-relay recover, which makes a new slot and sends what is still in the outbox table; or go on without it: " +
		source.AcceptCommand + source.NewSlot + source.NewSlotHint(c)
}

// CreateSQL publishes inserts only, so that housekeeping of the outbox table costs a
// decode and no traffic, and a partitioned table under its own name. Messages are sent whatever is
// in it; without tables it is empty. ONLY: a temporary heir, which anybody may have, is refused;
// partitions come all the same.
func CreateSQL(c *source.Config) string {
	tables := ""
	if len(c.Tables) > 0 {
		tables = "FOR TABLE ONLY " + strings.Join(c.QuotedTables(), ", ONLY ") + " "
	}
	return fmt.Sprintf("CREATE PUBLICATION %s %sWITH (publish = 'insert', publish_via_partition_root = true)", source.QuoteName(c.Publication), tables)
}

// MadeByRelay is the comment on a publication that the relay created and may drop. It belongs to
// the publication itself: one that somebody created later under the same name does not have it, and
// every slot that uses the publication sees it.
const MadeByRelay = "Made by cdc-relay, whose teardown drops it."

// MarkSQL is the statement that sets MadeByRelay as the publication's comment.
func MarkSQL(c *source.Config) string {
	return fmt.Sprintf("COMMENT ON PUBLICATION %s IS %s", source.QuoteName(c.Publication), source.QuoteText(MadeByRelay))
}

// again is the end of a fix for a publication of a slot in use: what the publication hid until then
// may be missing, which is the next finding. A new slot has lost nothing.
func (s State) again() string {
	if s.Publication == 0 {
		return ""
	}
	return source.AgainHint
}
