package replication

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// A publication that got the table after the slot's position hides rows. It can not be told for certain from one that is as old
// as the slot, so it is said: by check, and by the relay when it takes the slot.
func TestSlotOlderThanItsPublication(t *testing.T) {
	for name, sql := range map[string][2]string{
		"table added":         {`CREATE PUBLICATION p`, `ALTER PUBLICATION p ADD TABLE outbox`},
		"publication altered": {`CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'update')`, `ALTER PUBLICATION p SET (publish = 'insert')`},
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.exec(sql[0])
			b.createSlot("pgoutput")
			b.insert("hidden")
			wantStop(t, b.run().wait(), outbox.ExitOperator, "publication")
			b.exec(sql[1])
			b.wantLine(LevelWarn, "rows hidden", "younger", "committed after "+b.confirmedFlush().String())
			r := b.settledRun("sent")
			r.endClean()
			if b.logs.FilterMessageSnippet("may be younger than rows that wait").Len() != 1 {
				t.Error("adopted without a word")
			}
		})
	}
}

// A slot in use, as Debezium's is, has left its publication behind: nothing is said. A server of its own: the slots of others
// hold back what tells it.
func TestSlotYoungerThanItsPublication(t *testing.T) {
	t.Parallel()
	b := setup(t, ownServer(t, nil).URL("shop"))
	r := b.settledRun("first")
	until(t, "the slot to leave its publication behind", func() bool {
		b.exec(`CHECKPOINT`)
		b.exec(`INSERT INTO outbox VALUES (gen_random_uuid()::text, '{}')`)
		return b.text(`SELECT ((SELECT age(max(xmin::text)::xid) FROM pg_publication) > (SELECT age(catalog_xmin) FROM pg_replication_slots)
			AND (SELECT age(max(xmin::text)::xid) FROM pg_publication_rel) > (SELECT age(catalog_xmin) FROM pg_replication_slots))::text`) == "true"
	})
	r.endClean()
	b.waitFree()
	b.exec(`DELETE FROM cdc_relay.progress`)
	b.exec(`DELETE FROM cdc_relay.slots`) // no relay's any more
	b.wantLine(LevelOK, "adoption", "no relay has used")
	list, err := Check(bounded(t, 90*time.Second), b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if f.Name == "rows hidden" || f.Name == "rows of other tables" {
			t.Errorf("%+v", f)
		}
	}
	b.goesOn("later")
	if b.logs.FilterMessageSnippet("may be younger").Len() != 0 {
		t.Error("warned of a publication that is older than the slot's position")
	}
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

// And when it came before all the same, rows may be hidden: the take-over says so.
func TestTakeoverWithASlotOlderThanItsPublication(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	b.exec(`CREATE PUBLICATION p`)
	b.createSlot("pgoutput")
	b.insert("hidden")
	b.exec(`ALTER PUBLICATION p ADD TABLE outbox`)
	if _, err := b.now(o); err == nil {
		t.Error("complete below our start")
	}
	if b.logs.FilterMessageSnippet("may be younger than rows that wait").Len() != 1 {
		t.Error("taken without a word")
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
	o.start()
	k := b.take(o, asLongAsItTakes)
	k.waitTold("that the other slot is below", overlapping)
	b.insert("both")
	o.waitSeen("both")
	o.confirm()
	k.waitTold("that the other slot has passed", passed)
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

// Rows of a partition that was detached or dropped while they waited come under a name that is nobody's: check says so.
func TestCheckOfRowsWithoutTheirTable(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]string{"detached": `ALTER TABLE outbox DETACH PARTITION outbox_0`, "dropped": `DROP TABLE outbox_0`} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.exec(`DROP TABLE outbox`)
			b.exec(`CREATE TABLE outbox (id text, payload jsonb) PARTITION BY LIST (id)`)
			b.exec(`CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES IN ('lost')`)
			b.exec(`CREATE TABLE outbox_1 PARTITION OF outbox DEFAULT`)
			b.exec(`CREATE TABLE orders (id text)`)
			b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
			b.createSlot("pgoutput")
			b.insert("lost")
			b.insert("kept")
			b.exec(`INSERT INTO orders VALUES ('nobody cares')`)
			b.exec(remove)
			b.exec(`ALTER PUBLICATION p SET (publish_via_partition_root = true)`)
			f := b.wantLine(LevelWarn, "rows of other tables", "public.outbox_0 (1)")
			if strings.Contains(f.Detail, "orders") || strings.Contains(f.Detail, "outbox_1") {
				t.Error(f)
			}
		})
	}
}
