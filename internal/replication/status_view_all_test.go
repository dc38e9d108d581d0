//go:build testall

package replication

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
)

// An event is processed some seconds after the relay has reported it, also when none follows.
func TestStatusViewOfARelay(t *testing.T) {
	b := alone(t)
	b.init(setup.InitOptions{StatusView: true})
	r := b.streaming()
	b.insert("a")
	r.waitReported("a")
	await.Until(t, "a to be processed", func() bool { return b.statuses() == "a processed" }, func() any { return b.statuses() })
	r.endClean()
	b.insert("b")
	b.wantStatuses("a processed, b new")
	b.goesOn("c") // Verify accepts the view
}

// The newest rows of a large table are found by its index, and their rows in the retry tables by
// theirs: also with a second table, when the time is bounded.
func TestStatusViewPlan(t *testing.T) {
	b := withView(t)
	b.exec(`CREATE INDEX ON outbox (created_at); INSERT INTO outbox SELECT i::text, '{}', now() - i * interval '1 second' FROM generate_series(1, 5000) i`)
	for _, table := range []string{"retry", "dead_letter"} {
		b.exec(`INSERT INTO cdc_relay.`+table+refusedRow, b.cfg.Slot, "x", 5000)
		b.exec(`UPDATE cdc_relay.` + table + ` SET id = convert_to('x' || n, 'UTF8')`)
	}
	b.refuse("retry", "1")
	b.refuse("dead_letter", "2")
	b.exec(`VACUUM ANALYZE outbox, cdc_relay.retry, cdc_relay.dead_letter`)
	plan := func(sql string) {
		t.Helper()
		rows, err := b.conn.Query(await.Context(t), "EXPLAIN (ANALYZE, TIMING OFF) "+sql)
		await.Must(t, err)
		var lines []string
		for rows.Next() {
			var line string
			await.Must(t, rows.Scan(&line))
			lines = append(lines, line)
		}
		await.Must(t, rows.Err())
		out := strings.Join(lines, "\n")
		for _, no := range []string{"Seq Scan on retry", "Seq Scan on dead_letter", "Seq Scan on outbox"} {
			if strings.Contains(out, no) {
				t.Errorf("%s has a %s:\n%s", sql, no, out)
			}
		}
		if !strings.Contains(out, "retry_id") || !strings.Contains(out, "dead_letter_id") {
			t.Errorf("%s does not use the indexes of the ids:\n%s", sql, out)
		}
	}
	plan(`SELECT * FROM cdc_relay.outbox_status ORDER BY event_time DESC LIMIT 100`)
	b.cfg.Tables = append(b.cfg.Tables, b.cfg.Tables[0])
	b.cfg.Tables[1].Name = "more"
	b.exec(`CREATE TABLE more (LIKE outbox INCLUDING ALL)`)
	b.init(setup.InitOptions{NoSlot: true, StatusView: true})
	plan(`SELECT * FROM cdc_relay.outbox_status WHERE event_time > now() - interval '2 minutes' ORDER BY event_time DESC LIMIT 100`)
	b.wantText("2", `SELECT count(*)::text FROM cdc_relay.outbox_status WHERE event_time > now() - interval '1 day' AND status IN ('deferred', 'failed')`)
}

// A row is processed whatever the type of its id and of its transaction, but for ids whose text
// another session may show differently.
func TestStatusViewOfIDs(t *testing.T) {
	b := withView(t)
	for kind, want := range map[string]string{
		"char(8)": "7 processed", "varchar(8)": "7 processed", "bigint": "7 processed", "numeric": "7 processed", "float8": "7 new", "money": "$7.00 new", "bytea": "\\x37 new",
	} {
		b.exec(`DROP VIEW cdc_relay.outbox_status; DROP TABLE outbox; CREATE TABLE outbox (id ` + kind + `, payload jsonb, tx bigint DEFAULT pg_current_xact_id()::text::bigint)`)
		b.init(setup.InitOptions{NoSlot: true, StatusView: true})
		b.exec(`INSERT INTO outbox VALUES ('7')`)
		b.deliver(b.text(`SELECT id::text FROM outbox`))
		b.wantText("1", `SELECT count(*)::text FROM cdc_relay.sent`)
		b.wantStatuses(want)
		b.exec(`DELETE FROM cdc_relay.sent`)
	}
}

// The tables of another slot stay in the view when one is added, and when one goes. A table that
// was renamed is left out.
func TestStatusViewOfTwoSlots(t *testing.T) {
	b := withView(t)
	o := b.another()
	o.cfg.Slot += "_other"
	o.cfg.Tables = append([]decode.Table{}, b.cfg.Tables...)
	o.cfg.Tables[0].Name, o.cfg.Publication = `odd "name" of`, "o"
	o.exec(`CREATE TABLE "odd ""name"" of" (id bigint PRIMARY KEY, payload jsonb, tx bigint) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF "odd ""name"" of" DEFAULT`)
	o.exec(`INSERT INTO "odd ""name"" of" VALUES (7)`)
	b.insert("a")
	o.init(setup.InitOptions{NoSlot: true, StatusView: true})
	o.record()
	b.wantStatuses("a new")
	o.wantStatuses("7 new")
	b.init(setup.InitOptions{NoSlot: true, StatusView: true})
	o.wantStatuses("7 new")
	await.Must(t, setup.Teardown(await.Context(t), b.cfg, true))
	b.wantStatuses("")
	o.wantStatuses("7 new")

	b.init(setup.InitOptions{NoSlot: true, StatusView: true})
	b.record()
	o.exec(`ALTER TABLE "odd ""name"" of" RENAME TO other`)
	o.wantStatuses("7 new")
	b.init(setup.InitOptions{NoSlot: true, StatusView: true})
	o.wantStatuses("")
	b.wantLogged("table left out of cdc_relay.outbox_status")
	b.wantStatuses("a new")
	b.exec(`DROP TABLE other`)
	await.Must(t, setup.Teardown(await.Context(t), o.cfg, true))
	b.wantStatuses("a new")
}

// Who reads the view needs no right on the tables. Its owner gets two columns of an outbox table,
// from whoever runs init, or by the statement that init names.
func TestStatusViewRights(t *testing.T) {
	t.Parallel()
	board, asBoard := newRole(t, "")
	admin, asAdmin := newRole(t, "")
	a := attack(t)
	a.init(setup.InitOptions{URL: a.url, Role: a.relay, NoSlot: true})
	// a role that may become the owner of the schema, and may not grant
	a.exec(`GRANT ` + schema.OwnerRole + ` TO ` + admin)
	a.by(a.asApp, `REVOKE ALL ON outbox FROM PUBLIC; GRANT SELECT ON outbox TO `+a.relay)
	stop := a.wantStop(setup.Init(await.Context(t), a.cfg, setup.InitOptions{URL: asAdmin(a.url), NoSlot: true, StatusView: true}), event.ExitFailure, "rights",
		fmt.Sprintf(`role %q, which is to own the view cdc_relay.outbox_status, may not read table "public"."outbox"`, schema.OwnerRole))
	a.by(a.asApp, strings.TrimSuffix(strings.TrimPrefix(stop.Fix, "as the owner of the table: "), "; then run init again"))
	a.init(setup.InitOptions{URL: asAdmin(a.url), NoSlot: true, StatusView: true})
	a.insert("a")
	a.by(asBoard(a.url), `SELECT 1`)
	if err := a.try(asBoard(a.url), `SELECT * FROM cdc_relay.outbox_status`); err == nil {
		t.Error("everybody may read the view")
	}
	a.exec(`GRANT USAGE ON SCHEMA cdc_relay TO ` + board + `; GRANT SELECT ON cdc_relay.outbox_status TO ` + board)
	a.by(asBoard(a.url), `DO $$ BEGIN ASSERT (SELECT status = 'new' FROM cdc_relay.outbox_status WHERE id = 'a'); END $$`)
	for _, sql := range []string{`SELECT payload FROM outbox`, `SELECT FROM cdc_relay.retry`, `DELETE FROM cdc_relay.outbox_status`} {
		if err := a.try(asBoard(a.url), sql); err == nil {
			t.Errorf("a role that may read the view may %s", sql)
		}
	}
	a.init(setup.InitOptions{URL: a.url, Role: a.relay, NoSlot: true, StatusView: true})
	a.by(asBoard(a.url), `SELECT FROM cdc_relay.outbox_status`)
	if err := a.try(a.asRelay, `DELETE FROM cdc_relay.outbox_status`); err == nil {
		t.Error("the relay's role may write through the view")
	}
	a.cfg.NoBackfill = true
	a.goesOn("b")

	// an id whose type or value is its owner's
	a.exec(`DROP VIEW cdc_relay.outbox_status`)
	a.by(a.asApp, `CREATE DOMAIN app.d AS text CHECK (app.fixed(1) > 0); ALTER TABLE outbox ALTER id TYPE app.d`)
	a.wantStop(setup.Init(await.Context(t), a.cfg, setup.InitOptions{URL: a.url, NoSlot: true, StatusView: true}), event.ExitFailure, "table", "has an id column, id, that is computed")
	a.by(a.asApp, `ALTER TABLE outbox RENAME TO away; CREATE VIEW outbox AS SELECT '1'::text AS id, app.steal()`)
	a.wantStop(setup.Init(await.Context(t), a.cfg, setup.InitOptions{URL: a.url, NoSlot: true, StatusView: true}), event.ExitFailure, "table", "is neither an ordinary nor a partitioned table")
}

// A view that another role made is refused, and so is what would run when somebody writes through
// one that is in order.
func TestStatusViewOfAnAttacker(t *testing.T) {
	t.Parallel()
	a := attack(t)
	a.init(setup.InitOptions{URL: a.url, Role: a.relay, NoSlot: true})
	a.exec(`GRANT CREATE ON SCHEMA cdc_relay TO ` + a.app)
	a.by(a.asApp, `CREATE VIEW cdc_relay.outbox_status AS SELECT app.steal()`)
	a.exec(`REVOKE CREATE ON SCHEMA cdc_relay FROM ` + a.app)
	a.refused("view cdc_relay.outbox_status belongs to role "+a.app, "ALTER VIEW cdc_relay.outbox_status OWNER TO "+schema.OwnerRole)
	a.exec(`DROP VIEW cdc_relay.outbox_status`)
	a.init(setup.InitOptions{URL: a.url, Role: a.relay, NoSlot: true, StatusView: true})
	a.exec(`GRANT TRIGGER ON cdc_relay.outbox_status TO ` + a.app)
	a.refused("table cdc_relay.outbox_status gives role " + a.app + " the right to create triggers")
	a.exec(`REVOKE TRIGGER ON cdc_relay.outbox_status FROM ` + a.app)
	a.exec(`CREATE RULE r AS ON INSERT TO cdc_relay.outbox_status DO INSTEAD SELECT app.steal()`)
	a.refused("cdc_relay.outbox_status has a rule r")
	a.exec(`DROP RULE r ON cdc_relay.outbox_status`)
	a.goesOn("a")
}

// A view of the schema's owner before is not handed over: it would read with more rights.
func TestStatusViewIsNotHandedOver(t *testing.T) {
	t.Parallel()
	a := attack(t)
	a.exec(`CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`)
	a.goesOn("a") // the relay's role makes a schema of its own
	a.by(a.asRelay, `CREATE VIEW cdc_relay.outbox_status AS SELECT 1 AS mine`)
	a.init(setup.InitOptions{URL: a.url, Role: a.relay, NoSlot: true})
	a.wantText("true", `SELECT (to_regclass('cdc_relay.outbox_status') IS NULL)::text`)
	a.init(setup.InitOptions{URL: a.url, Role: a.relay, NoSlot: true, StatusView: true})
	a.wantText(schema.OwnerRole, `SELECT pg_get_userbyid(relowner)::text FROM pg_class WHERE oid = 'cdc_relay.outbox_status'::regclass`)
	a.goesOn("b")
}
