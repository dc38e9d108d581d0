package replication

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// A slot that another program made is gone on with as it stands, whatever publications of Debezium's it is read with: of all
// tables or of some, for all operations, with tables that are nobody's here, among them those of heartbeats and signals. Rows
// that wait in it are sent in their order, also those that were deleted in the transaction that inserted them.
func TestSlotOfDebezium(t *testing.T) {
	slotOfDebezium(t, map[string]string{
		"all_tables":                    `FOR ALL TABLES`,
		"filtered, with all its tables": `FOR TABLE outbox, debezium_heartbeat, debezium_signal, orders`,
	})
}

func slotOfDebezium(t *testing.T, publications map[string]string) {
	t.Parallel()
	for name, publication := range publications {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.exec(`CREATE TABLE debezium_heartbeat (id int PRIMARY KEY, at timestamptz)`)
			b.exec(`CREATE TABLE debezium_signal (id text PRIMARY KEY, type text, data text)`)
			b.exec(`CREATE TABLE orders (id int PRIMARY KEY, state text)`)
			b.exec(`CREATE PUBLICATION p ` + publication)
			b.insert("before")
			b.createSlot("pgoutput")
			want := b.busy("1")
			b.wantLine(LevelOK, "adoption", "no relay has used", b.cfg.Slot)
			b.accept()
			b.wantLine(LevelOK, "adoption", "says adopt", b.cfg.Slot)
			r := b.run()
			r.waitSeen(want...)
			want = append(want, b.busy("2")...)
			r.waitSeen(want...)
			r.endClean()
			if seen := b.current().seen(); !slices.Equal(seen, want) {
				t.Errorf("sent %v, want %v", seen, want)
			}
			b.goesOn("later")
		})
	}
}

// busy does everything to the tables that Debezium may have in its publication. It returns the ids of the events.
func (b *bench) busy(round string) []string {
	b.t.Helper()
	id := func(name string) string { return name + round }
	for _, transaction := range [][]string{
		{`INSERT INTO outbox VALUES ('` + id("plain") + `', '{}')`},
		{`INSERT INTO outbox VALUES ('` + id("gone") + `', '{}')`, `DELETE FROM outbox WHERE id = '` + id("gone") + `'`},
		{
			`INSERT INTO debezium_heartbeat VALUES (1, now()) ON CONFLICT (id) DO UPDATE SET at = now()`,
			`INSERT INTO outbox VALUES ('` + id("among") + `', '{}')`,
			`INSERT INTO debezium_signal VALUES (` + round + `, 'log', '{}')`,
			`INSERT INTO orders VALUES (` + round + `, 'new')`,
			`UPDATE outbox SET payload = '[]' WHERE id = '` + id("plain") + `'`,
		},
		{`UPDATE orders SET state = 'paid'`, `DELETE FROM orders`},
		{`TRUNCATE orders`},
		{`INSERT INTO outbox VALUES ('` + id("last") + `', '{}')`},
	} {
		b.exec(`BEGIN`)
		for _, sql := range transaction {
			b.exec(sql)
		}
		b.exec(`COMMIT`)
	}
	return []string{id("plain"), id("gone"), id("among"), id("last")}
}

// Without publish_via_partition_root, which Debezium does not set, rows come under the names of their partitions. Those that were
// written so, and wait in the slot, are sent when it was set afterwards.
func TestSlotWithRowsOfPartitions(t *testing.T) {
	b := shared(t)
	b.exec(`DROP TABLE outbox`)
	b.exec(`CREATE TABLE outbox (id text PRIMARY KEY, payload jsonb) PARTITION BY HASH (id)`)
	b.exec(`CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 0)`)
	b.exec(`CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 1) PARTITION BY HASH (id)`)
	b.exec(`CREATE TABLE outbox_1_0 PARTITION OF outbox_1 FOR VALUES WITH (MODULUS 2, REMAINDER 0)`)
	b.exec(`CREATE TABLE outbox_1_1 PARTITION OF outbox_1 FOR VALUES WITH (MODULUS 2, REMAINDER 1)`)
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	b.createSlot("pgoutput")
	want := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, id := range want {
		b.insert(id)
	}
	b.runMend(wantStop(t, b.run().wait(), outbox.ExitOperator, "publication"))
	b.accept() // it is younger now than what waits
	b.insert("after")
	r := b.run()
	r.waitSeen("after")
	r.endClean()
	if seen := b.current().seen(); !slices.Equal(seen, append(want, "after")) {
		t.Errorf("sent %v", seen)
	}
}

// The outbox got its name while its rows were waiting.
func TestSlotWithRowsOfARenamedTable(t *testing.T) {
	b := shared(t)
	b.exec(`ALTER TABLE outbox RENAME TO events_to_send`)
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	b.createSlot("pgoutput")
	b.accept()
	b.exec(`INSERT INTO events_to_send VALUES ('old name', '{}')`)
	b.exec(`ALTER TABLE events_to_send RENAME TO outbox`)
	b.insert("new name")
	r := b.run()
	r.waitSeen("old name", "new name")
	r.endClean()
}
