// Attacks by roles of applications on what the relay reads and writes. Each is shown to work on who
// runs the statements without a look first, and to be refused by the relay, by init and by check.

package replication

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// attacked is a database in which the role app may CREATE, and has functions that write down who
// ran them.
type attacked struct {
	*bench
	relay, app     string // roles
	asRelay, asApp string // addresses
}

func attack(t *testing.T) *attacked {
	t.Helper()
	relay, asRelay := newRole(t, "REPLICATION")
	app, asApp := newRole(t, "")
	b := newBench(t, servers.OwnPostgres(t).Database(t))
	a := &attacked{bench: b, relay: relay, app: app, asRelay: asRelay(b.url), asApp: asApp(b.url)}
	b.exec(fmt.Sprintf(`DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %%I TO %s, %s', current_database()); END $$`, app, relay))
	b.exec(`ALTER TABLE outbox OWNER TO ` + app + `; GRANT CREATE ON SCHEMA public TO ` + app)
	a.by(a.asApp, `GRANT SELECT ON outbox TO PUBLIC;
		CREATE SCHEMA app; GRANT USAGE ON SCHEMA app TO PUBLIC;
		CREATE TABLE app.loot (who text); GRANT INSERT ON app.loot TO PUBLIC;
		CREATE FUNCTION app.steal() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO app.loot VALUES (session_user); RETURN 1; END $$;
		CREATE FUNCTION app.fixed(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM app.steal(); RETURN $1; END $$;
		CREATE FUNCTION app.on_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM app.steal(); RETURN NEW; END $$`)
	b.cfg.URL = a.asRelay
	return a
}

// by runs statements as another role, in one session without the relay's settings.
func (a *attacked) by(url, sql string) {
	a.t.Helper()
	if err := a.try(url, sql); err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
}

func (a *attacked) try(url, sql string) error {
	ctx := await.Context(a.t)
	conn, err := pgx.Connect(ctx, url)
	await.Must(a.t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(ctx, sql)
	return err
}

// stolen is how often code of app ran as the relay, or as the superuser, since the last time.
func (a *attacked) stolen() (n int) {
	a.t.Helper()
	a.scan(&n, `WITH gone AS (DELETE FROM app.loot RETURNING who) SELECT count(*) FROM gone WHERE who <> $1`, a.app)
	return n
}

// refused: the relay, init and check refuse the schema in these words, and run nothing of it.
func (a *attacked) refused(words ...string) {
	t := a.t
	t.Helper()
	a.wantStop(a.run().wait(), event.ExitOperator, "schema_foreign", words...)
	a.wantStop(setup.Init(await.Context(t), a.cfg, setup.InitOptions{URL: a.url, Role: a.relay, NoSlot: true}), event.ExitOperator, "schema_foreign", words...)
	a.wantStop(setup.Teardown(await.Context(t), a.cfg, true), event.ExitOperator, "schema_foreign", words...)
	f := a.finding("schema")
	if f.Level != check.LevelFail || !hasWords(f.Detail+f.Fix, words) {
		t.Errorf("check says %+v, want %q", f, words)
	}
	if n := a.stolen(); n > 0 {
		t.Errorf("code of role %s ran %d times", a.app, n)
	}
}

// What an application may make before init: all that init would write and read.
func TestSchemaSquattedBeforeInit(t *testing.T) {
	t.Parallel()
	a := attack(t)
	const open = `CREATE SCHEMA cdc_relay; GRANT ALL ON SCHEMA cdc_relay TO PUBLIC;`
	const table = open + `CREATE TABLE cdc_relay.migration (version int, applied_at timestamptz DEFAULT now()); GRANT ALL ON cdc_relay.migration TO PUBLIC;`
	const read, write = `SELECT max(version) FROM cdc_relay.migration`, `INSERT INTO cdc_relay.migration (version) VALUES (1)`
	for name, c := range map[string]struct{ attack, victim string }{
		"view":             {open + `CREATE VIEW cdc_relay.migration AS SELECT app.steal() AS version; GRANT SELECT ON cdc_relay.migration TO PUBLIC`, read},
		"trigger":          {table + `CREATE TRIGGER t BEFORE INSERT ON cdc_relay.migration FOR EACH ROW EXECUTE FUNCTION app.on_row()`, write},
		"default":          {table + `ALTER TABLE cdc_relay.migration ADD i int DEFAULT app.steal()`, write},
		"generated column": {table + `ALTER TABLE cdc_relay.migration ADD i int GENERATED ALWAYS AS (app.fixed(version)) STORED`, write},
		"constraint":       {table + `ALTER TABLE cdc_relay.migration ADD CHECK (app.steal() > 0)`, write},
		"index":            {table + `CREATE INDEX ON cdc_relay.migration (app.fixed(version))`, write},
		"rule":             {table + `CREATE RULE r AS ON INSERT TO cdc_relay.migration DO ALSO SELECT app.steal()`, write},
		"domain":           {table + `CREATE DOMAIN app.checked AS int CHECK (app.fixed(VALUE) > 0); ALTER TABLE cdc_relay.migration ALTER version TYPE app.checked`, write},
		"policy": {table + `INSERT INTO cdc_relay.migration VALUES (1); ALTER TABLE cdc_relay.migration ENABLE ROW LEVEL SECURITY;
			CREATE POLICY p ON cdc_relay.migration USING (app.steal() > 0)`, read},
		"function": {open + `CREATE FUNCTION cdc_relay.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT app.steal(); SELECT pg_catalog.now()'`, `SET search_path = cdc_relay, pg_catalog; SELECT now()`},
		"operator": {
			open + `CREATE FUNCTION cdc_relay.less(int, int) RETURNS bool LANGUAGE sql AS 'SELECT app.steal() > 0';
			CREATE OPERATOR cdc_relay.< (FUNCTION = cdc_relay.less, LEFTARG = int, RIGHTARG = int)`,
			`SET search_path = cdc_relay, pg_catalog; SELECT 1 < 2`,
		},
		// nothing runs at once, but the owner of a schema may drop whatever others make in it
		"schema": {open, `CREATE TABLE cdc_relay.migration (version int); SELECT app.steal()`},
	} {
		a.by(a.asApp, c.attack)
		a.stolen()
		a.by(a.asRelay, c.victim)
		if n := a.stolen(); n == 0 {
			t.Errorf("%s: the attack does not work, so that nothing shows that it is refused", name)
		}
		a.refused(`schema cdc_relay belongs to role `+a.app, "DROP SCHEMA cdc_relay CASCADE")
		a.exec(`DROP SCHEMA cdc_relay CASCADE`)
	}
}

// A relay that may only CREATE in its database makes a schema of its own. init hands it over, also
// while that relay runs, which goes on.
func TestSchemaOfTheRelayIsHandedOver(t *testing.T) {
	t.Parallel()
	a := attack(t)
	a.exec(`CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`)
	owners := func(want string) {
		t.Helper()
		a.wantText(want, `SELECT string_agg(DISTINCT pg_get_userbyid(owner), ' ') FROM (SELECT relowner FROM pg_class WHERE relnamespace = 'cdc_relay'::regnamespace
			UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = 'cdc_relay'::regnamespace UNION ALL SELECT nspowner FROM pg_namespace WHERE nspname = 'cdc_relay') o (owner)`)
	}
	r := a.settledRun("a")
	owners(a.relay)
	if f := a.wantLine(check.LevelWarn, "schema", "belongs to the relay's own role", a.relay); !hasWords(f.Fix, []string{"cdc-relay init --no-slot --url", a.relay}) {
		t.Errorf("the fix is %q", f.Fix)
	}
	for range 2 {
		a.init(setup.InitOptions{URL: a.url, Role: a.relay, NoSlot: true})
		owners(schema.OwnerRole)
	}
	a.wantLine(check.LevelOK, "schema", "cdc_relay, version")
	a.insert("b")
	r.waitReported("b")
	r.endClean()
	a.goesOn("c")
	a.wantStop(setup.Teardown(await.Context(t), a.cfg, false), event.ExitFailure, "rights", "may not drop the rest", schema.OwnerRole)
	a.cfg.URL = a.url
	await.Must(t, setup.Teardown(await.Context(t), a.cfg, false))
	a.wantText("0 1", `SELECT (SELECT count(*) FROM pg_namespace WHERE nspname = 'cdc_relay') || ' ' || (SELECT count(*) FROM pg_roles WHERE rolname = '`+schema.OwnerRole+`')`)
}

// What whoever was given a right too much may add to a schema in order, and what the owner itself
// must not have in it.
func TestSchemaThatOthersCanWriteInto(t *testing.T) {
	t.Parallel()
	a := attack(t)
	a.init(setup.InitOptions{URL: a.url, Role: a.relay})
	a.goesOn("a")
	a.waitFree()
	a.exec(`GRANT USAGE ON SCHEMA cdc_relay TO ` + a.app)
	const write = `INSERT INTO cdc_relay.progress (slot, max_flush_lsn, reported, good) VALUES ('x', '0/1', '0/1', '0/1'); DELETE FROM cdc_relay.progress WHERE slot = 'x'`
	grant := `GRANT TRIGGER ON cdc_relay.progress TO ` + a.app
	for name, c := range map[string]struct {
		owner, app, victim, undo string
		words                    []string
	}{
		"trigger": {
			grant, `CREATE TRIGGER t BEFORE INSERT ON cdc_relay.progress FOR EACH ROW EXECUTE FUNCTION app.on_row()`, write,
			`DROP TRIGGER t ON cdc_relay.progress; REVOKE TRIGGER ON cdc_relay.progress FROM ` + a.app,
			[]string{"table cdc_relay.progress has a trigger t, which calls app.on_row() of role " + a.app, "DROP TRIGGER t ON cdc_relay.progress"},
		},
		"right to make triggers": {
			grant, ``, ``, `REVOKE TRIGGER ON cdc_relay.progress FROM ` + a.app,
			[]string{"table cdc_relay.progress gives role " + a.app + " the right to create triggers", "REVOKE TRIGGER ON cdc_relay.progress FROM " + a.app},
		},
		"right to make foreign keys": {
			`GRANT REFERENCES (slot) ON cdc_relay.progress TO ` + a.app, ``, ``, `REVOKE REFERENCES (slot) ON cdc_relay.progress FROM ` + a.app,
			[]string{"table cdc_relay.progress gives role " + a.app + " the right to create foreign keys", "REVOKE REFERENCES ON cdc_relay.progress FROM " + a.app},
		},
		"right to create": {
			`GRANT CREATE ON SCHEMA cdc_relay TO PUBLIC`, ``, ``, `REVOKE CREATE ON SCHEMA cdc_relay FROM PUBLIC`,
			[]string{"schema cdc_relay gives PUBLIC the right to create objects", "REVOKE CREATE ON SCHEMA cdc_relay FROM PUBLIC"},
		},
		"table": {
			`GRANT CREATE ON SCHEMA cdc_relay TO ` + a.app, `CREATE TABLE cdc_relay.next_version ()`, ``,
			`DROP TABLE cdc_relay.next_version`,
			[]string{"table cdc_relay.next_version belongs to role " + a.app},
		},
		"function": {
			`GRANT CREATE ON SCHEMA cdc_relay TO ` + a.app, `CREATE FUNCTION cdc_relay.f() RETURNS int LANGUAGE sql AS 'SELECT 1'`, ``,
			`DROP FUNCTION cdc_relay.f()`,
			[]string{"function cdc_relay.f() belongs to role " + a.app},
		},
		"type": {`CREATE TYPE cdc_relay.t AS (i int)`, ``, ``, `DROP TYPE cdc_relay.t`, []string{"type cdc_relay.t is none of the relay's"}},
		"view": {`CREATE VIEW cdc_relay.v AS SELECT 1`, ``, ``, `DROP VIEW cdc_relay.v`, []string{"view cdc_relay.v is none of the relay's"}},
		"default": {
			`ALTER TABLE cdc_relay.progress ADD i int DEFAULT app.steal()`, ``, write, `ALTER TABLE cdc_relay.progress DROP i`,
			[]string{"relation cdc_relay.progress uses function app.steal()"},
		},
		"domain": {
			`CREATE DOMAIN app.checked AS int CHECK (app.fixed(VALUE) > 0); ALTER TABLE cdc_relay.progress ADD i app.checked`, ``,
			`INSERT INTO cdc_relay.progress (slot, max_flush_lsn, reported, good, i) VALUES ('x', '0/1', '0/1', '0/1', 2); DELETE FROM cdc_relay.progress WHERE slot = 'x'`,
			`ALTER TABLE cdc_relay.progress DROP i; DROP DOMAIN app.checked`,
			[]string{"relation cdc_relay.progress uses type app.checked in column i"},
		},
		"rule": {
			`CREATE RULE r AS ON INSERT TO cdc_relay.progress DO ALSO SELECT app.steal()`, ``, write, `DROP RULE r ON cdc_relay.progress`,
			[]string{"table cdc_relay.progress has a rule r"},
		},
		"policy": {
			`CREATE POLICY p ON cdc_relay.progress USING (app.steal() > 0)`, ``, ``, `DROP POLICY p ON cdc_relay.progress`,
			[]string{"table cdc_relay.progress has a policy p"},
		},
		"row level security": {
			`ALTER TABLE cdc_relay.progress ENABLE ROW LEVEL SECURITY`, ``, ``, `ALTER TABLE cdc_relay.progress DISABLE ROW LEVEL SECURITY`,
			[]string{"table cdc_relay.progress has row level security"},
		},
		"child": {
			`CREATE TABLE app.child () INHERITS (cdc_relay.progress)`, ``, ``, `DROP TABLE app.child`,
			[]string{"table cdc_relay.progress is in one inheritance with others: app.child inherits"},
		},
		"foreign key": {
			`GRANT REFERENCES ON cdc_relay.progress TO ` + a.app, `CREATE TABLE app.refers (slot name REFERENCES cdc_relay.progress)`, ``, `DROP TABLE app.refers`,
			[]string{"table cdc_relay.progress has a foreign key of table app.refers"},
		},
		"owner that logs in": {
			`ALTER TABLE cdc_relay.retry OWNER TO ` + a.app, ``, ``, `ALTER TABLE cdc_relay.retry OWNER TO ` + schema.OwnerRole,
			[]string{"table cdc_relay.retry belongs to role " + a.app, "OWNER TO " + schema.OwnerRole},
		},
		"owner of all": { // with its sequences, which follow: one answer is enough
			`ALTER TABLE cdc_relay.audit OWNER TO ` + a.app + `; ALTER TABLE cdc_relay.request OWNER TO ` + a.app, ``, ``,
			`ALTER TABLE cdc_relay.audit OWNER TO ` + schema.OwnerRole + `; ALTER TABLE cdc_relay.request OWNER TO ` + schema.OwnerRole,
			[]string{
				"table cdc_relay.audit belongs to role " + a.app, "the same is true of table cdc_relay.request)",
				"made them: ALTER TABLE cdc_relay.audit OWNER TO " + schema.OwnerRole + "; ALTER TABLE cdc_relay.request OWNER TO " + schema.OwnerRole + "; if not",
			},
		},
	} {
		a.exec(c.owner)
		if c.app != "" {
			a.by(a.asApp, c.app)
		}
		a.stolen()
		if c.victim != "" {
			a.by(a.asRelay, c.victim)
			if a.stolen() == 0 {
				t.Errorf("%s: the attack does not work, so that nothing shows that it is refused", name)
			}
		}
		if strings.HasPrefix(c.owner, "GRANT CREATE") || name == "foreign key" {
			a.exec(strings.NewReplacer("GRANT", "REVOKE", " TO ", " FROM ").Replace(c.owner))
			if name == "right to create" {
				a.exec(c.owner)
			}
		}
		a.refused(c.words...)
		a.exec(c.undo)
	}
	a.goesOn("b")
}

// A trigger that is made while the relay runs is seen at the next connect of the stream, before
// anything is written.
func TestTriggerMadeWhileTheRelayRuns(t *testing.T) {
	t.Parallel()
	a := attack(t)
	a.init(setup.InitOptions{URL: a.url, Role: a.relay})
	r := a.settledRun("a")
	a.exec(`GRANT USAGE ON SCHEMA cdc_relay TO ` + a.app + `; GRANT TRIGGER ON cdc_relay.slots TO ` + a.app)
	a.by(a.asApp, `CREATE TRIGGER t BEFORE UPDATE ON cdc_relay.slots FOR EACH ROW EXECUTE FUNCTION app.on_row()`)
	a.exec(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, a.cfg.Slot)
	a.wantStop(r.wait(), event.ExitOperator, "schema_foreign", "table cdc_relay.slots has a trigger t")
	if n := a.stolen(); n > 0 {
		t.Errorf("code of role %s ran %d times", a.app, n)
	}
}

// What the owner of an outbox table can have run by those who read it: events show, check and the
// first start do not read such a table, and say why.
func TestOutboxThatRunsCode(t *testing.T) {
	t.Parallel()
	a := attack(t)
	a.init(setup.InitOptions{URL: a.url, Role: a.relay, NoSlot: true})
	const row = `INSERT INTO outbox VALUES ('1', '{}');`
	const find = `SELECT FROM outbox t WHERE t.id = '1'::text::`
	const count = `SELECT count(*) FROM outbox`
	for name, c := range map[string]struct {
		attack, victim string
		shows          string // of events show
		first          string // of the first start; "": it reads no column
	}{
		"view": {
			`DROP TABLE outbox; CREATE VIEW outbox AS SELECT '1'::text AS id, app.steal() AS i, '{}'::jsonb AS payload; GRANT SELECT ON outbox TO PUBLIC`,
			`SELECT * FROM outbox`, "is a view", "",
		},
		"domain": {
			`CREATE DOMAIN app.d AS text CHECK (app.fixed(1) > 0); ALTER TABLE outbox ALTER id TYPE app.d`,
			find + `app.d`, "column id has type app.d, which is not one of PostgreSQL's own", "",
		},
		"cast": {
			`CREATE TYPE app.e AS (v text); CREATE FUNCTION app.to_e(text) RETURNS app.e LANGUAGE sql AS 'SELECT app.steal(); SELECT ROW($1)::app.e';
			CREATE CAST (text AS app.e) WITH FUNCTION app.to_e(text); ALTER TABLE outbox DROP id, ADD id app.e; INSERT INTO outbox VALUES ('{}', ROW('1'))`,
			find + `app.e`, "column id has type app.e, which is not one of PostgreSQL's own", "",
		},
		"policy": {
			row + `ALTER TABLE outbox ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON outbox USING (app.steal() > 0)`,
			count, "has row level security, whose policies would run", "row level security applies",
		},
		"index": {
			`CREATE INDEX ON outbox (payload) WHERE app.fixed(1) > 0`,
			count, "cannot be read without function app.fixed(integer) of role " + a.app, "cannot be read without function app.fixed(integer)",
		},
		"partition key": {
			`DROP TABLE outbox; CREATE TABLE outbox (id text, payload jsonb) PARTITION BY RANGE ((app.fixed(1) + length(id))); GRANT SELECT ON outbox TO PUBLIC;
			CREATE TABLE app.part PARTITION OF outbox DEFAULT`,
			count, "cannot be read without function app.fixed(integer) of role " + a.app, "cannot be read without function app.fixed(integer)",
		},
	} {
		a.by(a.asApp, c.attack)
		a.stolen()
		a.by(a.asRelay, c.victim)
		if a.stolen() == 0 {
			t.Errorf("%s: the attack does not work, so that nothing shows that it is refused", name)
		}
		// a session with the relay's settings, which read-only transactions alone would not protect
		pool, err := source.Connect(await.Context(t), a.cfg)
		await.Must(t, err)
		e, err := dlq.New(pool, a.cfg.Slot).Event(await.Context(t), "1", []dlq.Outbox{{Schema: "public", Table: "outbox", ID: []string{"id"}}}, func(context.Context) dlq.Relay { return dlq.Relay{} })
		pool.Close()
		await.Must(t, err)
		if !strings.Contains(e.Why, c.shows) || e.State != dlq.EventNotThere {
			t.Errorf("%s: events show says %s: %s; want %q", name, e.State, e.Why, c.shows)
		}
		if c.first != "" {
			a.exec(`DROP PUBLICATION IF EXISTS p; CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`)
			a.wantStop(a.run().wait(), event.ExitFailure, "rights", c.first)
			if f := a.finding("rights"); f.Level != check.LevelFail || !strings.Contains(f.Detail, c.first) {
				t.Errorf("%s: check says %+v, want %q", name, f, c.first)
			}
		}
		if n := a.stolen(); n > 0 {
			t.Errorf("%s: code of role %s ran %d times", name, a.app, n)
		}
		a.by(a.asApp, `DROP TABLE IF EXISTS app.part`)
		_ = a.try(a.asApp, `DROP VIEW outbox`)
		a.exec(`DROP PUBLICATION IF EXISTS p`)
		_ = a.try(a.asApp, `DROP TABLE outbox`)
		a.exec(`CREATE TABLE outbox (id text PRIMARY KEY, payload jsonb); ALTER TABLE outbox OWNER TO ` + a.app + `; GRANT SELECT ON outbox TO PUBLIC`)
	}
	// A partition may be a foreign table, which asks another server, by whatever its owner named.
	a.exec(`DROP TABLE outbox; CREATE TABLE outbox (id text, payload jsonb) PARTITION BY LIST (id); CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w;
		CREATE FOREIGN TABLE app.part PARTITION OF outbox DEFAULT SERVER s`)
	err := slot.CheckReadable(await.Context(t), a.conn, &source.Config{Tables: []decode.Table{{Schema: "public", Name: "outbox", OID: a.oid("outbox")}}})
	a.wantStop(err, event.ExitFailure, "rights", `table "public"."outbox"`, "has app.part below it, a foreign table")
}

func (a *attacked) oid(table string) (oid uint32) {
	a.t.Helper()
	a.scan(&oid, `SELECT $1::regclass::oid`, table)
	return oid
}
