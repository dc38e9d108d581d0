//go:build testall

package replication

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
)

// Of all tables nothing tells whose the rows of a former partition were: such a slot is refused.
func TestSlotWithRowsOfPartitionsOfAllTables(t *testing.T) {
	b := shared(t)
	b.partition()
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	b.createSlot("pgoutput")
	b.insert("waits")
	b.exec(`DROP TABLE outbox_0`)
	b.exec(`ALTER PUBLICATION p SET (publish_via_partition_root = true)`)
	b.accept()
	b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "table"))
	b.goesOn("later")
}

// A listed table that was foreign at the first start was a partition of the outbox for a while. Its
// rows are not passed over in a slot that was accepted after that.
func TestForeignTableThatWasAPartitionForAWhile(t *testing.T) {
	b := shared(t)
	b.partition()
	b.exec(`ALTER TABLE outbox DETACH PARTITION outbox_0`)
	b.exec(`CREATE PUBLICATION p FOR TABLE outbox, outbox_0 WITH (publish_via_partition_root = true)`)
	b.goesOn("a")
	b.exec(`ALTER PUBLICATION p SET (publish_via_partition_root = false)`)
	b.exec(`ALTER TABLE outbox ATTACH PARTITION outbox_0 FOR VALUES IN ('waits')`)
	b.insert("waits")
	b.exec(`ALTER TABLE outbox DETACH PARTITION outbox_0`)
	b.exec(`ALTER PUBLICATION p SET (publish_via_partition_root = true)`)
	b.insert("after")
	b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "publication", "was altered"))
	b.wantStop(b.run().endsBefore("after"), event.ExitOperator, schema.NotConfigured, "public.outbox_0")
}

// What an operator accepts while a relay streams counts at once: the session begins again.
func TestFormerTableAcceptedWhileRunning(t *testing.T) {
	b := shared(t)
	r := b.settledRun("a")
	b.exec(`CREATE TABLE other (id text, payload jsonb)`)
	b.exec(`ALTER PUBLICATION p ADD TABLE other`)
	line := b.wantLine(check.LevelFail, "not configured", "public.other")
	b.acceptFix(strings.Replace(line.Fix, "--skip-rows", "--events", 1))
	b.exec(`INSERT INTO other VALUES ('of the other', '{}')`)
	r.waitSeen("of the other")
	r.endClean()
}
