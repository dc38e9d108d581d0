package replication

import (
	"slices"
	"testing"
)

// Debezium has just started for the first time: its publication and its slot are new, and there is
// an older slot on the server, which holds back the catalog_xmin of every newer one. The relay
// replaces it at once, with a publication of its own or with Debezium's, whatever that has: all
// tables or some, all operations, tables that are nobody's here, among them those of heartbeats and
// signals. Rows come in their order, also those that were deleted in the transaction that inserted
// them.
func TestSlotOfDebezium(t *testing.T) {
	slotOfDebezium(t, map[string]string{
		"all_tables":                    `FOR ALL TABLES`,
		"filtered, with all its tables": `FOR TABLE outbox, debezium_heartbeat, debezium_signal, orders`,
	})
}

func slotOfDebezium(t *testing.T, publications map[string]string) {
	t.Parallel()
	for name, publication := range publications {
		for _, ours := range []string{"p", dbzPublication} {
			t.Run(name+", read with "+ours, func(t *testing.T) {
				b := shared(t)
				b.cfg.Publication = ours
				b.exec(`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, b.cfg.Slot+"_older")
				b.exec(`CREATE TABLE debezium_heartbeat (id int PRIMARY KEY, at timestamptz)`)
				b.exec(`CREATE TABLE debezium_signal (id text PRIMARY KEY, type text, data text)`)
				b.exec(`CREATE TABLE orders (id int PRIMARY KEY, state text)`)
				b.insert("before")
				b.exec(`CREATE PUBLICATION ` + dbzPublication + ` ` + publication)
				o := b.newDebezium()
				k, _ := b.takePassed(o)
				twice := b.busy("1")
				o.waitSeen(twice[len(twice)-1])
				o.kill()
				want := append(twice, b.busy("2")...)
				k.waitComplete()
				r := b.run()
				r.waitSeen(want...)
				r.endClean()
				if seen := b.current().Seen(); !slices.Equal(seen, want) {
					t.Errorf("sent %v, want %v", seen, want)
				}
				if all, _ := o.seen(); !slices.Equal(all, append([]string{"both"}, twice...)) {
					t.Errorf("Debezium has published %v", all)
				}
				b.goesOn("later")
			})
		}
	}
}

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
