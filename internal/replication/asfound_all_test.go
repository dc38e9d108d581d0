//go:build testall

package replication

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// A slot in use, as Debezium's is, has left its publication behind: nothing is said. A server of its own: the slots of others
// hold back what tells it.
func TestSlotYoungerThanItsPublication(t *testing.T) {
	b := alone(t)
	b.usedByAnother()
	b.wantLine(LevelOK, "adoption", "no relay has used")
	list, err := Check(await.Context(t), b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if f.Name == "rows hidden" || f.Name == "rows of other tables" {
			t.Errorf("%+v", f)
		}
	}
	b.goesOn("later")
}

// A slot made by hand must not come before a publication that sends the table: that is asked for first.
func TestTakeoverAsksForThePublicationFirst(t *testing.T) {
	b := shared(t)
	_, err := b.now(&otherTool{b: b, slot: "nobodys"})
	wantStop(t, err, outbox.ExitUsage, "usage") // and the schema is there
	o := b.newTool()
	b.cfg.Create = false
	b.exec(`CREATE PUBLICATION p`)
	_, err = b.now(o)
	b.runMend(wantStop(t, err, outbox.ExitOperator, "publication"))
	_, err = b.now(o)
	stop := wantStop(t, err, outbox.ExitOperator, "slot_missing")
	if !strings.Contains(stop.Mend, "pg_create_logical_replication_slot") {
		t.Error(stop)
	}
}

// Two relays that take the place of one slot for the same table would both publish it.
func TestTwoTakeoversOfOneSlot(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	if _, err := b.now(o); err == nil {
		t.Error("complete below our start")
	}
	first := b.cfg.Slot
	b.cfg.Slot += "_second"
	_, err := b.now(o)
	if stop := wantStop(t, err, outbox.ExitUsage, "usage"); !strings.Contains(stop.What, first) {
		t.Error(stop)
	}
	b.cfg.Slot = first
	if _, err := b.now(o); err == nil || strings.Contains(err.Error(), "already") {
		t.Errorf("the first one goes on: %v", err)
	}
}

// What has the other slot's name long after the end is dropped only when it may be that slot.
func TestTakeoverDropsNoOtherSlot(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	k, _ := b.takePassed(o)
	o.kill()
	k.waitComplete()
	b.exec(`SELECT pg_drop_replication_slot($1)`, o.slot)
	b.exec(`SELECT pg_create_physical_replication_slot($1)`, o.slot)
	_, err := b.take(o, TakeoverOptions{Drop: true}).wait()
	stop := wantStop(t, err, outbox.ExitOperator, "takeover")
	if !strings.Contains(stop.What, "physical") || !o.exists() {
		t.Error(stop)
	}
	b.runMend(stop)
}

// A table that fits two outboxes may have been a partition of either.
func TestRowsOfAPartitionOfOneOfTwo(t *testing.T) {
	b := shared(t)
	b.partition("waits")
	b.exec(`CREATE TABLE invoices (id text, payload jsonb) PARTITION BY LIST (id)`)
	b.exec(`CREATE TABLE invoices_0 PARTITION OF invoices DEFAULT`)
	second := b.cfg.Tables[0]
	second.Name = "invoices"
	b.cfg.Tables = append(b.cfg.Tables, second)
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	b.createSlot("pgoutput")
	b.exec(`INSERT INTO invoices VALUES ('waits', '{}')`)
	b.exec(`ALTER TABLE invoices DETACH PARTITION invoices_0`)
	b.exec(`ALTER PUBLICATION p SET (publish_via_partition_root = true)`)
	b.insert("after")
	b.accept()
	was, _ := b.stray("public.invoices_0")
	_, ofSecond, found := strings.Cut(was.Mend, "; if it was a partition of public.invoices: ")
	if !found || !strings.HasPrefix(was.Mend, "if it was a partition of public.outbox: ") {
		t.Fatal(was.Mend)
	}
	b.runMend(&outbox.Stop{Mend: ofSecond})
	r := b.run()
	r.waitSeen("after")
	r.endClean()
	if seen := b.current().seen(); !slices.Equal(seen, []string{"waits", "after"}) {
		t.Errorf("sent %v", seen)
	}
	var also bool
	if err := b.conn.QueryRow(await.Context(t), `SELECT sends #> ARRAY['tables', '"public"."invoices"'] ? 'also'
		FROM cdc_relay.slots`).Scan(&also); err != nil || !also {
		t.Errorf("its rows are not remembered as those of invoices, %v", err)
	}
}

// check says beforehand whose rows these may be.
func TestCheckOfRowsWithoutTheirTable(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]string{"detached": `ALTER TABLE outbox DETACH PARTITION outbox_0`, "dropped": `DROP TABLE outbox_0`} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.partition("lost")
			b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
			b.createSlot("pgoutput")
			b.insert("lost")
			b.insert("kept")
			b.exec(`INSERT INTO orders VALUES ('nobody cares')`)
			b.exec(remove)
			b.exec(`ALTER TABLE outbox ADD COLUMN note text`) // of which the mapping knows nothing
			b.exec(`ALTER PUBLICATION p SET (publish_via_partition_root = true)`)
			f := b.wantLine(LevelWarn, "rows of other tables", "public.outbox_0 (1)")
			if strings.Contains(f.Detail, "orders") || strings.Contains(f.Detail, "outbox_1") {
				t.Error(f)
			}
		})
	}
}

// The answers that TestRowsOfPartitionsThatAreGone does not give.
func TestRowsOfPartitionsThatAreGoneOtherwise(t *testing.T) {
	t.Parallel()
	t.Run("detached/none", func(t *testing.T) { partitionGone(t, detachPartition, false) })
	t.Run("dropped/a partition", func(t *testing.T) { partitionGone(t, `DROP TABLE outbox_0`, true) })
}
