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
	a.found(words...)
}

// found: check refuses the schema in these words, and runs nothing of it.
func (a *attacked) found(words ...string) {
	a.t.Helper()
	t := a.t
	f := a.finding("schema")
	if f.Level != check.LevelFail || !hasWords(f.Detail+f.Fix, words) {
		t.Errorf("check says %+v, want %q", f, words)
	}
	if n := a.stolen(); n > 0 {
		t.Errorf("code of role %s ran %d times", a.app, n)
	}
}

// What an application may make before init: all that init would write and read. The schema is
// refused for whose it is, whatever is in it.
func TestSchemaSquattedBeforeInit(t *testing.T) {
	t.Parallel()
	a := attack(t)
	const open = `CREATE SCHEMA cdc_relay; GRANT ALL ON SCHEMA cdc_relay TO PUBLIC;`
	const table = open + `CREATE TABLE cdc_relay.migration (version int, applied_at timestamptz DEFAULT now()); GRANT ALL ON cdc_relay.migration TO PUBLIC;`
	const read, write = `SELECT max(version) FROM cdc_relay.migration`, `INSERT INTO cdc_relay.migration (version) VALUES (1)`
	for name, c := range map[string]struct{ attack, victim string }{
		"view":    {open + `CREATE VIEW cdc_relay.migration AS SELECT app.steal() AS version; GRANT SELECT ON cdc_relay.migration TO PUBLIC`, read},
		"trigger": {table + `CREATE TRIGGER t BEFORE INSERT ON cdc_relay.migration FOR EACH ROW EXECUTE FUNCTION app.on_row()`, write},
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
			find + `app.d`, "no outbox table", "", // it is searched as a text
		},
		"cast": {
			`CREATE TYPE app.e AS (v text); CREATE FUNCTION app.to_e(text) RETURNS app.e LANGUAGE sql AS 'SELECT app.steal(); SELECT ROW($1)::app.e';
			CREATE CAST (text AS app.e) WITH FUNCTION app.to_e(text); ALTER TABLE outbox DROP id, ADD id app.e; INSERT INTO outbox (payload, id) VALUES ('{}', ROW('1'))`,
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
