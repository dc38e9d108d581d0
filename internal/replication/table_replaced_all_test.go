//go:build testall

package replication

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// A table that had the name for a while, when no relay ran, is known to the stream alone. An
// operator says whether its rows are events.
func TestTableThatHadTheNameForAWhile(t *testing.T) {
	t.Parallel()
	for name, events := range map[string]bool{"events": true, "no events": false} {
		t.Run(name, func(t *testing.T) {
			b := ofAllTables(t)
			b.goesOn("a")
			b.exec(`DROP TABLE outbox`)
			b.exec(remadeOutbox)
			b.insert("between")
			b.exec(`DROP TABLE outbox`)
			b.exec(remadeOutbox)
			b.insert("last")
			b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "table_replaced"))
			var stop *event.Stop
			for range 2 {
				stop = b.wantStop(b.run().endsBefore("between"), event.ExitOperator, "table_replaced")
			}
			yes, no, found := strings.Cut(stop.Fix, "; if they are not: ")
			if !found {
				t.Fatal(stop.Fix)
			}
			if !events {
				yes = no
			}
			b.runFix(&event.Stop{Fix: yes})
			b.delivers("last")
			if slices.Contains(b.current().Seen(), "between") != events {
				t.Errorf("sent %v", b.current().Seen())
			}
		})
	}
}

// The outbox got its name while its rows were waiting in a slot that was accepted.
func TestSlotWithRowsOfARenamedTable(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	b.createSlot("pgoutput")
	b.accept()
	b.exec(`ALTER TABLE outbox RENAME TO events_to_send`)
	b.exec(`INSERT INTO events_to_send VALUES ('old name', '{}')`)
	b.exec(`ALTER TABLE events_to_send RENAME TO outbox`)
	b.insert("new name")
	b.delivers("old name", "new name")
}
