package replication

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// A slot without any record of ours is no relay's to use, whoever reads it: there is a takeover,
// and there is an operator's decision to accept it as it stands. That counts once, and each time is
// another incarnation.
func TestSlotWithoutARecord(t *testing.T) {
	b := shared(t)
	b.insert("before")
	b.exec(schema.CreatePublicationSQL(&b.cfg))
	b.createSlot("pgoutput")
	conn := b.hold("Debezium Streaming")
	b.wantStop(b.run().wait(), event.ExitOperator, "slot_foreign", `"Debezium Streaming"`, "takeover --from-slot "+b.cfg.Slot)
	b.wantFinding("slot", "no relay has used it", "takeover --from-slot")
	source.CloseStream(conn)
	b.waitFree()
	b.insert("a")
	b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "slot_foreign"))
	b.wantLine(check.LevelOK, "slot", b.cfg.Slot, "accepted as it is")
	b.delivers("a")
	if slices.Contains(b.current().Seen(), "before") {
		t.Error("the slot began after it")
	}
	b.wantLogged("slot adopted")
	b.goesOn("b")
	b.exec(`UPDATE cdc_relay.slots SET state = 'adopt'`)
	b.goesOn("c")
	b.wantText("2", `SELECT incarnation::text FROM cdc_relay.slots`)
}

// What an operator accepted on another server, or on an earlier timeline, is no decision about this
// one: the database was copied, or a standby promoted, before the relay was started again.
func TestSlotAcceptedOnAnotherServer(t *testing.T) {
	each(t, map[string]string{
		"system":   `system_id = '1'`,
		"timeline": `timeline = timeline + 7`,
	}, func(t *testing.T, b *bench, change string) {
		b.goesOn("a")
		b.exec(`UPDATE cdc_relay.slots SET state = 'adopt', ` + change)
		b.insert("b")
		stop := b.wantStop(b.run().endsBefore("b"), event.ExitOperator, "slot_moved")
		b.wantFinding("slot", b.cfg.Slot, "cdc-relay accept "+stop.Finding)
		b.runFix(stop)
		b.delivers("b")
	})
}

// accept accepts a slot of which there is no record.
func (b *bench) accept() {
	b.t.Helper()
	b.withSchema()
	b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "slot_foreign"))
}

// Without publish_via_partition_root, which Debezium does not set, rows come under the names of
// their partitions. In a slot that was accepted the relay stops at them, until an operator has them
// sent; those of a partition that is detached or gone may be ignored.
func TestSlotWithRowsOfPartitions(t *testing.T) {
	const (
		root = `CREATE PUBLICATION p FOR TABLE outbox`
		// as Debezium makes it of a pattern that matches the partitions, too
		all     = `CREATE PUBLICATION p FOR TABLE outbox, outbox_0, outbox_1`
		dropped = `DROP TABLE outbox_0`
	)
	each(t, map[string]struct{ publication, remove string }{
		"a partition":          {root, ""},
		"detached":             {root, `ALTER TABLE outbox DETACH PARTITION outbox_0`},
		"dropped":              {root, dropped},
		"a partition, listed":  {all, ""},
		"detached, and listed": {all, `ALTER TABLE outbox DETACH PARTITION outbox_0`},
	}, func(t *testing.T, b *bench, c struct{ publication, remove string }) {
		b.partition()
		b.exec(c.publication)
		b.createSlot("pgoutput")
		b.insert("waits")
		b.insert("as well")
		if c.remove != "" {
			b.exec(c.remove)
		}
		b.exec(`ALTER PUBLICATION p SET (publish_via_partition_root = true)`)
		b.accept()
		b.insert("after")
		want := []string{"waits", "as well", "after"}
		if c.remove != "" {
			stop := b.wantStop(b.run().endsBefore("waits"), event.ExitOperator, schema.NotConfigured, "public.outbox_0")
			events, ignore, _ := strings.Cut(stop.Fix, "; if they are not: ")
			if c.remove == dropped {
				ignore = events
			}
			b.runFix(&event.Stop{Fix: ignore})
			want = want[1:]
		}
		b.runFix(b.wantStop(b.run().endsBefore("as well"), event.ExitOperator, schema.NotConfigured))
		if sent := slices.Contains(b.current().Seen(), "waits"); sent != (c.remove == dropped) {
			t.Errorf("sent the row of the former partition: %t", sent)
		}
		b.delivers(want...)
		b.wantSeen(want...)
		b.goesOn("later")
	})
}

// partition makes the outbox one of two partitions: rows of the id "waits" go to the first one.
func (b *bench) partition() {
	b.t.Helper()
	b.exec(`DROP TABLE outbox`)
	b.exec(`CREATE TABLE outbox (id text, payload jsonb) PARTITION BY LIST (id)`)
	b.exec(`CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES IN ('waits')`)
	b.exec(`CREATE TABLE outbox_1 PARTITION OF outbox DEFAULT`)
	b.exec(`CREATE TABLE orders (id text)`)
}
