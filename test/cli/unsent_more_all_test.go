//go:build testall

package cli

import (
	"maps"
	"testing"
)

func init() {
	maps.Copy(unsentDays, map[string]func(*day){
		"a table swapped in": func(d *day) {
			d.start()
			d.fix = `ALTER PUBLICATION {pub} ADD TABLE outbox`
			d.sql(`CREATE TABLE outbox_new (LIKE outbox INCLUDING ALL)`)
			d.unsent(`INSERT INTO outbox_new VALUES ({a}), ({b})`)
			d.sql(`ALTER TABLE outbox RENAME TO outbox_old; ALTER TABLE outbox_new RENAME TO outbox`)
		},
		"rows that are not what was inserted": func(d *day) {
			d.unsent(`INSERT INTO outbox VALUES ({a}), ({b}), ({c})`)
			d.rig.ok("init", "--no-backfill")
			d.start()
			d.sql(`BEGIN; INSERT INTO outbox VALUES ({sent}); INSERT INTO outbox VALUES ({a}) ON CONFLICT (id) DO UPDATE SET tx = excluded.tx; COMMIT`,
				`UPDATE outbox SET tx = NULL WHERE id = {b}`, `BEGIN; INSERT INTO outbox VALUES ({too}); UPDATE outbox SET tx = pg_current_xact_id() WHERE id = {c}; COMMIT`)
		},
		"another trigger that changes the transaction": func(d *day) {
			d.start()
			d.sql(`CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.tx := '5'; RETURN NEW; END $$`,
				`CREATE TRIGGER zzz BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION other()`, `INSERT INTO outbox VALUES ({a})`, `DROP TRIGGER zzz ON outbox`)
		},
		"a copy that is inserted again": func(d *day) {
			d.start()
			d.sql(`INSERT INTO outbox VALUES ({a})`)
			d.sql(`CREATE TABLE copy AS SELECT * FROM outbox`)
			d.control()
			d.stop()
			d.sql(`ALTER PUBLICATION {pub} DROP TABLE outbox`)
			d.unsent(`INSERT INTO outbox SELECT {a} FROM copy`)
			d.sql(`INSERT INTO copy SELECT {b}, aggregatetype, aggregateid, type, payload, headers, traceparent, created_at, tx FROM copy`)
			d.unsent(`INSERT INTO outbox SELECT * FROM copy WHERE id = {b}`)
			d.sql(`ALTER PUBLICATION {pub} ADD TABLE outbox`)
			d.start()
		},
		"a row filter": func(d *day) {
			d.start()
			d.fix = `ALTER PUBLICATION {pub} DROP TABLE outbox; ALTER PUBLICATION {pub} ADD TABLE outbox`
			d.sql(`ALTER PUBLICATION {pub} SET TABLE outbox WHERE (type <> 'hidden')`)
			d.sql(`INSERT INTO outbox (id, type) VALUES ({a}, 'hidden')`)
			d.stop()
			d.sql(`ALTER PUBLICATION {pub} SET TABLE outbox`)
			d.start()
		},
		"an heir": func(d *day) {
			d.start()
			d.sql(`CREATE TABLE outbox_heir () INHERITS (outbox)`)
			d.unsent(`INSERT INTO outbox_heir VALUES ({a})`)
			d.fix = `ALTER TABLE outbox_heir NO INHERIT outbox`
		},
		"a partition that was not logged": func(d *day) {
			d.partitioned()
			d.unsent(`ALTER TABLE outbox_2 SET UNLOGGED; INSERT INTO outbox (id, part) VALUES ({a}, 2); ALTER TABLE outbox_2 SET LOGGED`)
		},
		"a schema left and entered": func(d *day) {
			d.sql(`CREATE SCHEMA other`, `CREATE PUBLICATION {pub} FOR TABLES IN SCHEMA public WITH (publish = 'insert')`)
			d.start()
			d.sql(`ALTER TABLE outbox SET SCHEMA other`)
			d.unsent(`INSERT INTO other.outbox VALUES ({a})`)
			d.sql(`ALTER TABLE other.outbox SET SCHEMA public`)
		},
	})
	maps.Copy(recoveredDays, map[string]func(*day){
		"the file names one of two tables": func(d *day) {
			d.sql(`CREATE TABLE outbox_two (LIKE outbox INCLUDING ALL)`)
			d.rig.source = "  tables: [public.outbox, public.outbox_two]"
			d.start()
			d.stop()
			d.unsent(`INSERT INTO outbox VALUES ({a}), ({b})`)
			d.unsent(`INSERT INTO outbox_two VALUES ({c}), ({d})`)
			d.sql(`SELECT pg_drop_replication_slot('{pub}')`)
			d.rig.source = ""
			d.rig.refused(2, "recover --unordered", `has relayed table "public"."outbox_two"`, "not in source.tables")
			d.rig.source = "  tables: [public.outbox, public.outbox_two]"
			d.rig.ok("recover", "--unordered")
			d.start()
			d.delivered()
		},
		"rows that do not say which transaction wrote them": func(d *day) {
			d.start()
			d.control()
			d.stop()
			d.sql(`INSERT INTO outbox VALUES ({a})`)
			d.sql(`INSERT INTO outbox VALUES ({b}); UPDATE outbox SET tx = NULL WHERE id = {b}`)
			d.sql(`SELECT pg_drop_replication_slot('{pub}')`)
			d.rig.refused(2, "recover --unordered", "1 of 2 rows do not say which transaction wrote them")
			d.rig.ok("recover", "--unordered", "--where", "tx IS NOT NULL")
			d.start()
			d.delivered("b")
			d.named["b"] = true
		},
	})
}

// TestPreparedTransactionHoldsUpRecover is TestPreparedTransactionIsNamed of a recover.
func TestPreparedTransactionHoldsUpRecover(t *testing.T) {
	t.Parallel()
	p := startPrepared(t)
	d := newDay(on(t, p.Database(t)))
	d.start()
	d.control()
	d.stop()
	d.sql(`INSERT INTO outbox (id) VALUES ({a})`, `SELECT pg_drop_replication_slot('{pub}')`)
	p.leave(t)
	p.holdsUp(d, "recover", "--unordered")
}
