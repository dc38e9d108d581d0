//go:build testall

package replication

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// A role with CREATEROLE and CREATE on the database is enough for init and teardown, as managed
// services have it. One without CREATEROLE is told what a superuser has to do; then it is enough,
// too. The server is the test's own, because the owner's role is the whole server's.
func TestInitWithoutSuperuser(t *testing.T) {
	t.Parallel()
	p := ownServer(t, nil)
	b := newBench(t, p.URL("postgres"))
	b.exec(`CREATE ROLE relay LOGIN REPLICATION; CREATE ROLE plain LOGIN REPLICATION; CREATE ROLE admin LOGIN CREATEROLE REPLICATION;
		CREATE ROLE owner; GRANT owner TO plain, admin; ALTER TABLE outbox OWNER TO owner; GRANT CREATE ON DATABASE postgres TO admin, plain`)
	url := func(role string) string { return strings.Replace(b.url, "postgres@", role+"@", 1) }
	b.cfg.URL = url("relay")
	initAs := func(role string) error {
		return setup.Init(await.Context(t), b.cfg, setup.InitOptions{URL: url(role), Role: "relay", NoSlot: true})
	}
	goesOn := func(role string) {
		t.Helper()
		for range 2 {
			await.Must(t, initAs(role))
		}
		b.wantText(schema.OwnerRole, `SELECT string_agg(DISTINCT pg_get_userbyid(relowner), ' ') FROM pg_class WHERE relnamespace = 'cdc_relay'::regnamespace`)
		b.goesOn("by " + role)
		b.waitFree()
		as := b.cfg
		as.URL = url(role)
		await.Must(t, setup.Teardown(await.Context(t), as, false))
		b.wantCount("0 slots, 0 publications, 0 schemas")
		b.exec(`TRUNCATE outbox`)
	}
	stop := b.wantStop(initAs("plain"), event.ExitFailure, "rights", `role "plain" may not create role `+schema.OwnerRole)
	b.wantCount("0 slots, 0 publications, 0 schemas")
	goesOn("admin")
	b.exec(`REVOKE ` + schema.OwnerRole + ` FROM admin CASCADE; DROP ROLE ` + schema.OwnerRole)

	sql, _, _ := strings.Cut(strings.TrimPrefix(stop.Fix, "as a superuser: "), "; then run init")
	b.exec(sql)
	goesOn("plain")

	b.exec(`ALTER ROLE ` + schema.OwnerRole + ` LOGIN`)
	b.wantStop(initAs("postgres"), event.ExitOperator, "schema_foreign", schema.OwnerRole, "may log in", "NOLOGIN")
}

// A relay's role that owns nothing of the schema makes publication and slot where everything else
// is there. Where something of the schema is missing it is told who can add that, and never to
// become the owner.
func TestInitByTheRelaysOwnRole(t *testing.T) {
	t.Parallel()
	p := ownServer(t, nil)
	b := newBench(t, p.URL("postgres"))
	b.exec(`CREATE ROLE dbz LOGIN REPLICATION; CREATE ROLE owner LOGIN; ALTER TABLE outbox OWNER TO owner; GRANT owner TO dbz; GRANT CREATE ON DATABASE postgres TO dbz, owner`)
	url := func(role string) string { return strings.Replace(b.url, "postgres@", role+"@", 1) }
	b.cfg.URL = url("dbz")
	initAs := func(opt setup.InitOptions) error { return setup.Init(await.Context(t), b.cfg, opt) }
	refused := func(opt setup.InitOptions, role string) {
		t.Helper()
		stop := b.wantStop(initAs(opt), event.ExitFailure, "rights", "older version, or role \"dbz\" lacks rights", `--role "dbz"`, "a superuser")
		if granted := strings.Contains(stop.Fix, "GRANT "+schema.OwnerRole); granted != (role != "dbz") || strings.Contains(stop.Fix, `TO "dbz"`) {
			t.Errorf("as %s: the fix is %q", role, stop.Fix)
		}
	}
	await.Must(t, initAs(setup.InitOptions{URL: b.url, Role: "dbz", NoSlot: true}))
	b.exec(`DROP PUBLICATION p`)
	for _, missing := range []string{"SELECT ON cdc_relay.slots", "EXECUTE ON FUNCTION cdc_relay.cancel_job", "USAGE ON SCHEMA cdc_relay"} {
		b.exec(`REVOKE ` + missing + ` FROM dbz, PUBLIC`)
		refused(setup.InitOptions{}, "dbz")
		refused(setup.InitOptions{URL: url("owner"), Role: "dbz"}, "owner")
		await.Must(t, initAs(setup.InitOptions{URL: b.url, Role: "dbz", NoSlot: true}))
		b.exec(`DROP PUBLICATION p`)
	}
	b.exec(`CREATE TABLE migrations AS SELECT * FROM cdc_relay.migration; DELETE FROM cdc_relay.migration WHERE version > 1`)
	refused(setup.InitOptions{}, "dbz")
	b.exec(`INSERT INTO cdc_relay.migration SELECT * FROM migrations WHERE version > 1`)
	b.wantCount("0 slots, 0 publications, 1 schemas")
	await.Must(t, initAs(setup.InitOptions{}))
	b.wantCount("1 slots, 1 publications, 1 schemas")
	b.wantText(schema.OwnerRole, `SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'cdc_relay'`)
	b.goesOn("a")
}

// A schema of version 1, which the role that runs init made, is handed over by that role, on every
// version of the server: with CREATEROLE, and with no more than the grant that init asks for.
// Without, init says so: the relay would not start on it.
func TestHandOverWithoutSuperuser(t *testing.T) {
	t.Parallel()
	p := ownServer(t, nil)
	b := newBench(t, p.URL("postgres"))
	b.exec(`CREATE ROLE relay LOGIN REPLICATION; CREATE ROLE ddl LOGIN; ALTER TABLE outbox OWNER TO ddl; GRANT CREATE ON DATABASE postgres TO ddl`)
	url := func(role string) string { return strings.Replace(b.url, "postgres@", role+"@", 1) }
	b.cfg.URL = url("relay")
	initAs := func() error {
		return setup.Init(await.Context(t), b.cfg, setup.InitOptions{URL: url("ddl"), Role: "relay", NoSlot: true})
	}
	old := func() {
		t.Helper()
		conn, err := pgx.Connect(await.Context(t), url("ddl"))
		await.Must(t, err)
		sql := "CREATE SCHEMA cdc_relay;" + schema.Bootstrap + strings.Join(schema.Migrations()[:1], "") +
			"INSERT INTO cdc_relay.migration (version) SELECT generate_series(1, 1);" + strings.Join(schema.GrantSQL("relay", true)[:4], ";")
		_, err = conn.Exec(await.Context(t), sql)
		await.Must(t, err)
		await.Must(t, conn.Close(await.Context(t)))
	}
	handed := func() {
		t.Helper()
		await.Must(t, initAs())
		b.wantText(schema.OwnerRole, `SELECT string_agg(DISTINCT pg_get_userbyid(owner), ' ') FROM (SELECT relowner FROM pg_class WHERE relnamespace = 'cdc_relay'::regnamespace
			UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = 'cdc_relay'::regnamespace UNION ALL SELECT nspowner FROM pg_namespace WHERE nspname = 'cdc_relay') o (owner)`)
		f := b.wantLine(check.LevelWarn, "schema owner", schema.OwnerRole, "run code as the relay: ddl")
		if !strings.Contains(f.Fix, "REVOKE "+schema.OwnerRole+` FROM "ddl"`) {
			t.Errorf("the fix is %q", f.Fix)
		}
		b.goesOn("a")
		b.waitFree()
		b.exec(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots; DROP SCHEMA cdc_relay CASCADE; DROP PUBLICATION p; TRUNCATE outbox`)
	}
	old()
	stop := b.wantStop(initAs(), event.ExitFailure, "rights", `belongs to role "ddl", and role "ddl" may not hand it over`)
	sql, _, _ := strings.Cut(strings.TrimPrefix(stop.Fix, "as a superuser: "), "; then run init")
	b.exec(sql)
	handed()
	b.exec(`DROP OWNED BY ` + schema.OwnerRole + `; DROP ROLE ` + schema.OwnerRole + `; ALTER ROLE ddl CREATEROLE`)
	old()
	handed()
}

// What the owner before put into the relay's own functions and defaults does not run as the new
// one, and no function of his own is handed over.
func TestHandOverOfPlantedFunctions(t *testing.T) {
	t.Parallel()
	a := attack(t)
	a.init(setup.InitOptions{URL: a.url, Role: a.relay, NoSlot: true})
	init := func() error {
		return setup.Init(await.Context(t), a.cfg, setup.InitOptions{URL: a.url, Role: a.relay, NoSlot: true})
	}
	a.exec(`ALTER SCHEMA cdc_relay OWNER TO ` + a.relay)
	a.exec(`DO $$ DECLARE r record; BEGIN FOR r IN SELECT oid::regclass AS c FROM pg_class WHERE relnamespace = 'cdc_relay'::regnamespace AND relkind = 'r'
		LOOP EXECUTE format('ALTER TABLE %s OWNER TO ` + a.relay + `', r.c); END LOOP;
		FOR r IN SELECT oid::regprocedure AS c FROM pg_proc WHERE pronamespace = 'cdc_relay'::regnamespace
		LOOP EXECUTE format('ALTER FUNCTION %s OWNER TO ` + a.relay + `', r.c); END LOOP; END $$`)
	a.by(a.asRelay, `CREATE FUNCTION cdc_relay.mine() RETURNS int SECURITY DEFINER LANGUAGE sql AS 'SELECT 1'`)
	a.wantStop(init(), event.ExitOperator, "schema_foreign", "cdc_relay.mine()", "DROP ROUTINE")
	a.by(a.asRelay, `DROP FUNCTION cdc_relay.mine(); ALTER TABLE cdc_relay.request ALTER who SET DEFAULT 'somebody';
		CREATE OR REPLACE FUNCTION cdc_relay.prune_audit(older_than interval) RETURNS bigint SECURITY DEFINER LANGUAGE sql AS 'DELETE FROM cdc_relay.audit; SELECT 1::bigint'`)
	await.Must(t, init())
	a.wantText("SESSION_USER", `SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef d JOIN pg_attribute a ON attrelid = adrelid AND attnum = adnum
		WHERE adrelid = 'cdc_relay.request'::regclass AND attname = 'who'`)
	a.wantLine(check.LevelOK, "schema", "version")
	a.exec(`ALTER SCHEMA cdc_relay OWNER TO SESSION_USER`)
	a.wantLine(check.LevelWarn, "schema", "belongs to superuser", "who can log in")
	a.wantText("true "+schema.OwnerRole, `SELECT (prosrc LIKE '%30 days%')::text || ' ' || pg_get_userbyid(proowner) FROM pg_proc WHERE oid = 'cdc_relay.prune_audit(interval)'::regprocedure`)
}

// Who runs the SQL of init --print may do everything, and has public in his search_path: functions
// there that fit the calls better than PostgreSQL's own are not called.
func TestPrintedInitAmongPlantedFunctions(t *testing.T) {
	t.Parallel()
	a := attack(t)
	a.by(a.asApp, `CREATE FUNCTION public.pg_has_role(name, text, text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RETURN app.steal() > 0; END $$;
		CREATE FUNCTION public.pg_create_logical_replication_slot(text, text) RETURNS int LANGUAGE sql AS 'SELECT app.steal()';
		CREATE FUNCTION public.set_config(text, text, bool) RETURNS int LANGUAGE sql AS 'SELECT app.steal()'`)
	psql := func(sql string) {
		t.Helper()
		cmd := exec.CommandContext(await.Context(t), "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", a.url)
		cmd.Stdin = strings.NewReader(sql)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, out, sql)
		}
	}
	psql(`SELECT pg_has_role(session_user, 'postgres', CASE WHEN true THEN 'MEMBER' ELSE '' END); SELECT pg_create_logical_replication_slot('x', 'pgoutput')`)
	if n := a.stolen(); n != 2 {
		t.Errorf("the attack works %d times of 2, so that nothing shows that it is averted", n)
	}
	var b strings.Builder
	await.Must(t, setup.PrintInit(&b, a.cfg, setup.InitOptions{Role: a.relay}))
	psql(b.String())
	if n := a.stolen(); n > 0 {
		t.Errorf("code of role %s ran %d times", a.app, n)
	}
	a.wantCount("1 slots, 1 publications, 1 schemas")
}

// An index that is made while its table is read can have a function run after all. It is seen then,
// and what the function leaves in the session is gone with that.
func TestReadBesideAnIndexThatIsMade(t *testing.T) {
	t.Parallel()
	a := attack(t)
	ctx := await.Context(t)
	pool, err := source.Connect(ctx, a.cfg)
	await.Must(t, err)
	defer pool.Close()
	var before, after string
	var pid int
	await.Must(t, pool.QueryRow(ctx, `SHOW work_mem`).Scan(&before))
	err = sent.ReadTable(ctx, pool, `"public"."outbox"`, func(tx pgx.Tx) error {
		a.by(a.asApp, `CREATE INDEX ON outbox (payload) WHERE app.fixed(1) > 0`)
		return tx.QueryRow(ctx, `SELECT pg_backend_pid() FROM set_config('work_mem', '77MB', false)`).Scan(&pid)
	})
	if refusal, refused := sent.IsRefusal(err); !refused || !strings.Contains(refusal.Why, "app.fixed(integer) of role "+a.app) {
		t.Errorf("the read says %v", err)
	}
	var held []*pgxpool.Conn
	defer func() {
		for _, conn := range held {
			conn.Release()
		}
	}()
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(ctx)
		await.Must(t, err)
		held = append(held, conn)
		await.Must(t, conn.QueryRow(ctx, `SHOW work_mem`).Scan(&after))
		if after != before || int(conn.Conn().PgConn().PID()) == pid {
			t.Errorf("the pool has the connection of the read, with work_mem %s", after)
		}
	}
}

// The inits of many databases at once make one role.
func TestInitsOfManyDatabasesAtOnce(t *testing.T) {
	t.Parallel()
	p := ownServer(t, nil)
	b := newBench(t, p.URL("postgres"))
	b.exec(`CREATE ROLE admin LOGIN CREATEROLE`)
	done := make(chan error)
	const databases = 4
	for _, name := range []string{"a", "b", "c", "d"} {
		b.exec(`CREATE DATABASE ` + name)
		b.exec(`GRANT CREATE ON DATABASE ` + name + ` TO admin`)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		cfg := b.cfg
		cfg.URL, cfg.Tables, cfg.Create = strings.Replace(p.URL(name), "postgres@", "admin@", 1), nil, false
		cfg.Messages.Prefix = "outbox"
		go func() { done <- setup.Init(await.Context(t), cfg, setup.InitOptions{NoSlot: true}) }()
	}
	for range databases {
		await.Must(t, <-done)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		conn, err := pgx.Connect(await.Context(t), p.URL(name))
		await.Must(t, err)
		var owner string
		await.Must(t, conn.QueryRow(await.Context(t), `SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'cdc_relay'`).Scan(&owner))
		await.Must(t, conn.Close(await.Context(t)))
		if owner != schema.OwnerRole {
			t.Errorf("in database %s the schema belongs to %s", name, owner)
		}
	}
}

// What whoever was given a right too much may add to a schema in order, and what the owner itself
// must not have in it. All of it is found by one question, which everybody asks first: check does
// each time, the others for one of them.
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
		if name == "trigger" {
			a.refused(c.words...)
		} else {
			a.found(c.words...)
		}
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
