package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

func TestMain(m *testing.M) { servers.Main(m) }

// A schema of an earlier version gets the newer tables, and its own are as they were: unlogged ones
// are refused before an event is deferred into them.
func TestUpgradedTablesAreLogged(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	pool, err := source.ConnectPool(&source.Config{URL: servers.SharedPostgres(t).Database(t), Slot: "upgraded"})
	await.Must(t, err)
	defer pool.Close()
	_, err = pool.Exec(ctx, "CREATE SCHEMA cdc_relay;"+Bootstrap+strings.Join(Migrations()[:1], "")+
		"INSERT INTO cdc_relay.migration (version) SELECT generate_series(1, 1); ALTER TABLE cdc_relay.retry SET UNLOGGED")
	await.Must(t, err)
	stop, is := errors.AsType[*event.Stop](Ensure(ctx, pool, &source.Config{Create: true}))
	if !is || stop.Reason != "schema" || !strings.Contains(stop.What, "UNLOGGED (retry)") {
		t.Errorf("the upgrade ends with %v", stop)
	}
}

// strange are changes of the schema, and what takes them back. Those that verifySQL does not refuse
// are there to be asked about, too: the quick question must not be wrong about what it cannot know.
var strange = []struct {
	name, do, undo string
	refused        bool // by verifySQL
}{
	{"right to create", `GRANT CREATE ON SCHEMA cdc_relay TO PUBLIC`, `REVOKE CREATE ON SCHEMA cdc_relay FROM PUBLIC`, true},
	{"right to make triggers", `GRANT TRIGGER ON cdc_relay.progress TO $app`, `REVOKE TRIGGER ON cdc_relay.progress FROM $app`, true},
	{"right to make foreign keys", `GRANT REFERENCES ON cdc_relay.progress TO $app`, `REVOKE REFERENCES ON cdc_relay.progress FROM $app`, true},
	{"right to refer to a column", `GRANT REFERENCES (slot) ON cdc_relay.progress TO $app`, `REVOKE REFERENCES (slot) ON cdc_relay.progress FROM $app`, true},
	{"owner of the schema", `ALTER SCHEMA cdc_relay OWNER TO $app`, `ALTER SCHEMA cdc_relay OWNER TO cdc_relay_owner`, true},
	{"owner of a table", `ALTER TABLE cdc_relay.sent OWNER TO $app`, `ALTER TABLE cdc_relay.sent OWNER TO cdc_relay_owner`, true},
	{"owner of a sequence", `ALTER SEQUENCE cdc_relay.job OWNER TO $app`, `ALTER SEQUENCE cdc_relay.job OWNER TO cdc_relay_owner`, true},
	{"owner of a function", `ALTER FUNCTION cdc_relay.prune_audit OWNER TO $app`, `ALTER FUNCTION cdc_relay.prune_audit OWNER TO cdc_relay_owner`, true},
	{"function of its caller's rights", `ALTER FUNCTION cdc_relay.prune_audit SECURITY INVOKER`, `ALTER FUNCTION cdc_relay.prune_audit SECURITY DEFINER`, true},
	// a superuser's function
	{"function", `CREATE FUNCTION cdc_relay.f() RETURNS int LANGUAGE sql AS 'SELECT 1'`, `DROP FUNCTION cdc_relay.f`, false},
	{"trigger", `CREATE TRIGGER t BEFORE INSERT ON cdc_relay.retry FOR EACH ROW EXECUTE FUNCTION app.on_row()`, `DROP TRIGGER t ON cdc_relay.retry`, true},
	{"rule", `CREATE RULE r AS ON INSERT TO cdc_relay.retry DO ALSO SELECT 1`, `DROP RULE r ON cdc_relay.retry`, true},
	{"policy", `CREATE POLICY p ON cdc_relay.retry USING (true)`, `DROP POLICY p ON cdc_relay.retry`, true},
	{"row level security", `ALTER TABLE cdc_relay.retry ENABLE ROW LEVEL SECURITY`, `ALTER TABLE cdc_relay.retry DISABLE ROW LEVEL SECURITY`, true},
	{"child", `CREATE TABLE app.child () INHERITS (cdc_relay.gap)`, `DROP TABLE app.child`, true},
	{"child of the owner", `SET ROLE cdc_relay_owner; CREATE TABLE cdc_relay.child () INHERITS (cdc_relay.gap); RESET ROLE`, `DROP TABLE cdc_relay.child`, true},
	{"parent", `CREATE TABLE app.parent (); ALTER TABLE cdc_relay.gap INHERIT app.parent`, `ALTER TABLE cdc_relay.gap NO INHERIT app.parent; DROP TABLE app.parent`, true},
	{"foreign key", `CREATE TABLE app.refers (slot name REFERENCES cdc_relay.progress)`, `DROP TABLE app.refers`, true},
	{
		"foreign key to another table",
		`CREATE TABLE app.named (slot name PRIMARY KEY); ALTER TABLE cdc_relay.progress ADD CONSTRAINT f FOREIGN KEY (slot) REFERENCES app.named NOT VALID`,
		`ALTER TABLE cdc_relay.progress DROP CONSTRAINT f; DROP TABLE app.named`, true,
	},
	{"default", `ALTER TABLE cdc_relay.retry ALTER bytes SET DEFAULT app.one(1)`, `ALTER TABLE cdc_relay.retry ALTER bytes DROP DEFAULT`, true},
	{"default that calls a function of the owner", `SET ROLE cdc_relay_owner; CREATE FUNCTION cdc_relay.f() RETURNS bigint SECURITY DEFINER LANGUAGE sql AS 'SELECT 1::bigint'; RESET ROLE;
		ALTER TABLE cdc_relay.retry ALTER bytes SET DEFAULT cdc_relay.f()`, `ALTER TABLE cdc_relay.retry ALTER bytes DROP DEFAULT; DROP FUNCTION cdc_relay.f`, true},
	{"check", `ALTER TABLE cdc_relay.retry ADD CONSTRAINT c CHECK (app.one(1) > 0)`, `ALTER TABLE cdc_relay.retry DROP CONSTRAINT c`, true},
	{"index", `CREATE INDEX i ON cdc_relay.retry (app.one(1))`, `DROP INDEX cdc_relay.i`, true},
	{"partial index", `CREATE INDEX i ON cdc_relay.retry (n) WHERE app.one(1) > 0`, `DROP INDEX cdc_relay.i`, true},
	{"statistics", `CREATE STATISTICS app.s ON (app.one(1)), (n + 1) FROM cdc_relay.retry`, `DROP STATISTICS app.s`, true},
	{"domain", `CREATE DOMAIN app.d AS int CHECK (app.one(VALUE) > 0); ALTER TABLE cdc_relay.gap ADD d app.d`, `ALTER TABLE cdc_relay.gap DROP d; DROP DOMAIN app.d`, true},
	{"composite type", `CREATE TYPE cdc_relay.t AS (i int)`, `DROP TYPE cdc_relay.t`, true},
	{"enum", `CREATE TYPE cdc_relay.e AS ENUM ('a')`, `DROP TYPE cdc_relay.e`, true},
	{"view", `CREATE VIEW cdc_relay.v AS SELECT 1`, `DROP VIEW cdc_relay.v`, true},
	{"view of a table elsewhere", `CREATE VIEW app.v AS SELECT * FROM cdc_relay.gap`, `DROP VIEW app.v`, false},
	{"table", `CREATE TABLE cdc_relay.x ()`, `DROP TABLE cdc_relay.x`, false}, // a superuser's
	{"partitioned table", `CREATE TABLE cdc_relay.x (i int) PARTITION BY LIST (i)`, `DROP TABLE cdc_relay.x`, true},
	{"operator", `CREATE OPERATOR cdc_relay.<<<< (FUNCTION = app.two, LEFTARG = int, RIGHTARG = int)`, `DROP OPERATOR cdc_relay.<<<< (int, int)`, true},
	{"unlogged", `ALTER TABLE cdc_relay.gap SET UNLOGGED`, `ALTER TABLE cdc_relay.gap SET LOGGED`, false},
	{"publication", `CREATE PUBLICATION p FOR TABLE cdc_relay.gap`, `DROP PUBLICATION p`, false},
}

// asMadeSQL is true of what init and a relay make, and of nothing that verifySQL refuses.
func TestStrangeSchemaIsNotAsMade(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	url := servers.SharedPostgres(t).Database(t)
	pool, err := source.ConnectPool(&source.Config{URL: url, Slot: "verified"})
	await.Must(t, err)
	defer pool.Close()
	app := fmt.Sprintf("app_%d", time.Now().UnixNano())
	exec := func(sql string) {
		t.Helper()
		conn, err := pgx.Connect(ctx, url)
		await.Must(t, err)
		defer conn.Close(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, strings.ReplaceAll(sql, "$app", app)); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	is := func(of *pgxpool.Pool, what string, want found) {
		t.Helper()
		if got, err := verify(ctx, of, Trust{}); err != nil || got != want {
			t.Errorf("%s: the schema is found %d (%v), want %d", what, got, err, want)
		}
	}
	is(pool, "nothing", none)
	exec(`CREATE ROLE $app; GRANT CREATE ON DATABASE ` + pool.Config().ConnConfig.Database + ` TO $app; CREATE SCHEMA app;
		CREATE FUNCTION app.one(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'; ALTER FUNCTION app.one OWNER TO $app;
		CREATE FUNCTION app.two(int, int) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT true';
		CREATE FUNCTION app.on_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; ALTER FUNCTION app.on_row OWNER TO $app`)
	t.Cleanup(func() { exec(`DROP OWNED BY $app CASCADE; DROP ROLE $app`) })

	cfg := *pool.Config()
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET SESSION AUTHORIZATION "+app)
		return err
	}
	asApp, err := pgxpool.NewWithConfig(ctx, &cfg)
	await.Must(t, err)
	defer asApp.Close()
	await.Must(t, Ensure(ctx, asApp, &source.Config{Create: true}))
	is(asApp, "made by a relay", asMade)
	if _, err := verify(ctx, pool, Trust{}); err == nil {
		t.Error("a schema of a role that is not trusted is in order")
	}
	exec(`DROP SCHEMA cdc_relay CASCADE`)

	await.Must(t, Install(ctx, pool, app))
	is(pool, "made by init", asMade)
	is(asApp, "made by init, to the relay", asMade)
	for _, c := range strange {
		exec(c.do)
		found, err := verify(ctx, pool, Trust{})
		stop, refused := errors.AsType[*event.Stop](err)
		if found == asMade || refused != c.refused || err != nil && !refused {
			t.Errorf("%s: found %d, refused: %v (%v), want %v", c.name, found, stop, err, c.refused)
		}
		if !c.refused {
			await.Must(t, findStrange(ctx, pool, Trust{}))
		}
		exec(c.undo)
		is(pool, "without "+c.name, asMade)
	}
}
