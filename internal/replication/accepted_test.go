package replication

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// A slot without any record of ours is no relay's to use, whoever reads it: there is a takeover,
// and there is an operator's decision to accept it as it stands. That counts once, and each time is
// another incarnation.
func TestSlotWithoutARecord(t *testing.T) {
	b := shared(t)
	b.insert("before")
	b.exec(publication.CreateSQL(&b.cfg))
	b.createSlot("pgoutput")
	conn := b.hold("Debezium Streaming")
	stop := replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "slot_foreign")
	if !strings.Contains(stop.What, `"Debezium Streaming"`) || !strings.Contains(stop.Fix, "takeover --from-slot "+b.cfg.Slot) {
		t.Error(stop)
	}
	b.wantFinding("slot", "no relay has used it", "takeover --from-slot")
	source.CloseStream(conn)
	b.waitFree()
	b.insert("a")
	stop = replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "slot_foreign")
	b.runFix(stop)
	b.wantLine(check.LevelOK, "slot", b.cfg.Slot, "accepted as it is")
	r := b.run()
	r.waitSeen("a")
	r.endClean()
	if slices.Contains(b.current().Seen(), "before") {
		t.Error("the slot began after it")
	}
	if n := b.logs.FilterMessageSnippet("slot adopted").Len(); n != 1 {
		t.Errorf("adoption was named %d times", n)
	}
	b.goesOn("b")
	b.exec(`UPDATE cdc_relay.slots SET state = 'adopt'`)
	b.goesOn("c")
	if n := b.text(`SELECT incarnation::text FROM cdc_relay.slots`); n != "2" {
		t.Errorf("incarnation %s after two adoptions", n)
	}
}

func (b *bench) accept() {
	b.t.Helper()
	pool, err := source.ConnectPool(&b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	defer pool.Close()
	if err := schema.Ensure(await.Context(b.t), pool, &b.cfg); err != nil {
		b.t.Fatal(err)
	}
	b.exec(slot.AcceptSQL(&b.cfg))
}

// Without publish_via_partition_root, which Debezium does not set, rows come under the names of
// their partitions. In a slot that was accepted the relay stops at them, until an operator has them
// sent; those of a partition that is detached or gone may be ignored.
func TestSlotWithRowsOfPartitions(t *testing.T) {
	t.Parallel()
	const (
		root = `CREATE PUBLICATION p FOR TABLE outbox`
		// as Debezium makes it of a pattern that matches the partitions, too
		each = `CREATE PUBLICATION p FOR TABLE outbox, outbox_0, outbox_1`
	)
	for name, c := range map[string]struct{ publication, remove string }{
		"a partition":          {root, ""},
		"detached":             {root, `ALTER TABLE outbox DETACH PARTITION outbox_0`},
		"dropped":              {root, `DROP TABLE outbox_0`},
		"a partition, listed":  {each, ""},
		"detached, and listed": {each, `ALTER TABLE outbox DETACH PARTITION outbox_0`},
	} {
		t.Run(name, func(t *testing.T) {
			remove := c.remove
			b := shared(t)
			b.partition("waits")
			b.exec(c.publication)
			b.createSlot("pgoutput")
			b.insert("waits")
			b.insert("as well")
			if remove != "" {
				b.exec(remove)
			}
			b.exec(`ALTER PUBLICATION p SET (publish_via_partition_root = true)`)
			b.accept()
			b.insert("after")
			want := []string{"waits", "as well", "after"}
			if remove != "" {
				stop := replicationtest.WantStop(t, b.run().endsBefore("waits"), event.ExitOperator, publication.NotConfigured)
				if !strings.Contains(stop.What, "public.outbox_0") {
					t.Error(stop)
				}
				events, ignore, _ := strings.Cut(stop.Fix, "; if they are not: ")
				if name == "dropped" {
					ignore = events
				}
				b.runFix(&event.Stop{Fix: ignore})
				want = want[1:]
			}
			b.runFix(replicationtest.WantStop(t, b.run().endsBefore("as well"), event.ExitOperator, publication.NotConfigured))
			if sent := slices.Contains(b.current().Seen(), "waits"); sent != (name == "dropped") {
				t.Errorf("sent the row of the former partition: %t", sent)
			}
			r := b.run()
			r.waitSeen(want...)
			r.endClean()
			if seen := b.current().Seen(); !slices.Equal(seen, want) {
				t.Errorf("sent %v, want %v", seen, want)
			}
			b.goesOn("later")
		})
	}
}

// What an operator accepts while a relay streams counts at once: the session begins again.
func TestFormerTableAcceptedWhileRunning(t *testing.T) {
	b := shared(t)
	r := b.settledRun("a")
	b.exec(`CREATE TABLE other (id text, payload jsonb)`)
	oid, err := strconv.ParseUint(b.text(`SELECT 'other'::regclass::oid::text`), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	b.exec(publication.FormerTableSQL(&b.cfg, &b.cfg.Tables[0], uint32(oid)))
	b.exec(`ALTER PUBLICATION p ADD TABLE other`)
	b.exec(`INSERT INTO other VALUES ('of the other', '{}')`)
	r.waitSeen("of the other")
	r.endClean()
}

// Of all tables nothing tells whose the rows of a former partition were: such a slot is refused.
func TestSlotWithRowsOfPartitionsOfAllTables(t *testing.T) {
	b := shared(t)
	b.partition("waits")
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	b.createSlot("pgoutput")
	b.insert("waits")
	b.exec(`DROP TABLE outbox_0`)
	b.exec(`ALTER PUBLICATION p SET (publish_via_partition_root = true)`)
	b.accept()
	b.runFix(replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "table"))
	b.goesOn("later")
}

func (b *bench) partition(id string) {
	b.t.Helper()
	b.exec(`DROP TABLE outbox`)
	b.exec(`CREATE TABLE outbox (id text, payload jsonb) PARTITION BY LIST (id)`)
	b.exec(`CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES IN ('` + id + `')`)
	b.exec(`CREATE TABLE outbox_1 PARTITION OF outbox DEFAULT`)
	b.exec(`CREATE TABLE orders (id text)`)
}
