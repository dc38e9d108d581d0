//go:build testall

package replication

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
)

// A role with CREATEROLE and CREATE on the database is enough for init and teardown, as managed
// services have it. One without CREATEROLE is told what a superuser has to do; then it is enough,
// too. The server is the test's own, because the owner's role is the whole server's.
func TestInitWithoutSuperuser(t *testing.T) {
	t.Parallel()
	p, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true})
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, p.Close()) })
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

// The inits of many databases at once make one role.
func TestInitsOfManyDatabasesAtOnce(t *testing.T) {
	t.Parallel()
	p, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true})
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, p.Close()) })
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
