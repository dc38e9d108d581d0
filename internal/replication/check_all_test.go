//go:build testall

package replication

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// Each setting of the server that hurts is a line with a mend, which works as it stands.
func TestCheckOfTheServersSettings(t *testing.T) {
	t.Parallel()
	p := ownServer(t, map[string]string{
		"wal_level": "replica", "max_wal_senders": "2", "max_replication_slots": "1", "max_slot_wal_keep_size": "2GB", "synchronous_commit": "off",
		"autovacuum": "off", "wal_sender_timeout": "0", "synchronous_standby_names": "",
	})
	b := setup(t, p.URL("shop"))
	f := b.finding("wal_level")
	if f.Level != LevelFail || !strings.Contains(f.Detail, "replica") {
		t.Errorf("%+v", f)
	}
	b.mended(p, f)
	if _, err := b.conn.Exec(await.Context(t), `SELECT pg_create_physical_replication_slot('another')`); err != nil {
		t.Fatal(err)
	}
	f = b.wantLine(LevelFail, "replication slots", "1 of 1 used by others")
	f.Mend, _, _ = strings.Cut(f.Mend, ";") // the rest is another way
	b.mended(p, f)
	b.waitNoWalsender() // of the checks before
	stranger := b.cfg
	stranger.Slot = "stranger"
	conn, err := connectStream(await.Context(t), &stranger)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := identify(await.Context(t), conn); err != nil {
		t.Fatal(err)
	}
	f = b.wantLine(LevelWarn, "wal senders", "1 of 2 used by others")
	closeStream(conn)
	b.mended(p, f)
	b.limited(p)
	b.mended(p, b.wantLine(LevelWarn, "synchronous_commit", "off for all", "200ms"))
	b.mended(p, b.wantLine(LevelWarn, "vacuum", "autovacuum is off"))
	b.wantLine(LevelOK, "wal_sender_timeout", "20s for the relay's own sessions", "is 0", "never notice")
	b.wantLine(LevelOK, "clock", "this machine's, give or take")
	b.exec(`ALTER SYSTEM SET synchronous_standby_names = '*'`)
	b.exec(`SELECT pg_reload_conf()`)
	await.Until(t, "the server to know it", func() bool { return b.finding("synchronous standby").Level == LevelFail })
	if b.text(`SELECT (current_setting('server_version_num')::int >= 180000)::text`) == "true" {
		b.exec(`ALTER SYSTEM SET idle_replication_slot_timeout = '1h'`)
		b.exec(`ALTER SYSTEM RESET synchronous_standby_names`)
		b.exec(`SELECT pg_reload_conf()`)
		await.Until(t, "the server to know it", func() bool { return b.text(`SHOW idle_replication_slot_timeout`) == "1h" })
		b.wantLine(LevelWarn, "idle_replication_slot_timeout", "1h")
	}
}

// limited has a limit of the WAL that is kept: it is no fault, until the slot is near it.
func (b *bench) limited(p *devenv.Postgres) {
	b.t.Helper()
	const name = "max_slot_wal_keep_size"
	b.wantLine(LevelOK, name, "2GB", "0 MB are kept")
	b.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, b.cfg.Slot)
	b.exec(`ALTER SYSTEM SET max_slot_wal_keep_size = '64MB'`)
	b.exec(`SELECT pg_reload_conf()`)
	await.Until(b.t, "the server to know it", func() bool { return b.text(`SHOW max_slot_wal_keep_size`) == "64MB" })
	b.wantLine(LevelOK, name, "64MB", "MB are kept", "is lost")
	b.exec(`SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000)) FROM generate_series(1, 55)`)
	await.Until(b.t, "the WAL to be written out", func() bool { return b.finding(name).Level == LevelWarn })
	b.mended(p, b.wantLine(LevelWarn, name, "64MB", "MB are kept", "raise it"))
	b.exec(`SELECT pg_drop_replication_slot($1)`, b.cfg.Slot)
	b.exec(`ALTER SYSTEM SET max_slot_wal_keep_size = -1`)
	b.exec(`SELECT pg_reload_conf()`)
	await.Until(b.t, "the server to know it", func() bool { return b.text(`SHOW max_slot_wal_keep_size`) == "-1" })
	b.wantLine(LevelOK, name, "no limit", "watch the disk")
}

// What is tied to a role or a database.
func TestCheckOfTheRolesSettings(t *testing.T) {
	role, as := newRole(t, "REPLICATION")
	writer, _ := newRole(t, "")
	stranger, _ := newRole(t, "")
	b := shared(t)
	b.init(InitOptions{Role: role})
	b.cfg.URL = as(b.url)
	database := b.text(`SELECT current_database()`)
	for _, who := range []string{writer, stranger} {
		b.exec(`ALTER ROLE ` + who + ` IN DATABASE ` + database + ` SET synchronous_commit = off`)
	}
	b.wantLine(LevelOK, "synchronous_commit") // neither writes to the outbox
	b.exec(`GRANT INSERT ON outbox TO ` + writer)
	f := b.wantLine(LevelWarn, "synchronous_commit", writer, database)
	if strings.Contains(f.Detail, stranger) {
		t.Errorf("a role that does not write is named: %s", f.Detail)
	}
	b.mended(nil, f)
	b.exec(`ALTER DATABASE ` + database + ` SET synchronous_commit = off`)
	b.mended(nil, b.wantLine(LevelWarn, "synchronous_commit", database))
	b.exec(`REVOKE INSERT ON outbox FROM ` + writer)

	b.wantLine(LevelOK, "role settings", "none")
	for _, setting := range []string{"statement_timeout = 1", "default_transaction_read_only = on", "search_path = nowhere", "lock_timeout = 1"} {
		b.exec(`ALTER ROLE ` + role + ` IN DATABASE ` + database + ` SET ` + setting)
	}
	b.wantLine(LevelOK, "role settings", "statement_timeout", "search_path", "lock_timeout", "default_transaction_read_only")
	b.exec(`GRANT ` + writer + ` TO ` + role)
	b.exec(`ALTER ROLE ` + role + ` IN DATABASE ` + database + ` SET role = ` + writer)
	b.mended(nil, b.wantLine(LevelWarn, "role settings", writer))
	b.exec(`REVOKE ` + writer + ` FROM ` + role)
	if b.text(`SELECT (current_setting('transaction_timeout', true) IS NOT NULL)::text`) == "true" { // PostgreSQL 17
		b.exec(`ALTER DATABASE ` + database + ` SET transaction_timeout = '30s'`)
		b.mended(nil, b.wantLine(LevelWarn, "role settings", "transaction_timeout is 30s"))
	}

	ended := func() { // a connection of the check before may still count
		await.Until(t, "the role to have no connection", func() bool {
			return b.text(`SELECT count(*)::text FROM pg_stat_activity WHERE usename = '`+role+`'`) == "0"
		})
	}
	ended()
	b.exec(`ALTER ROLE ` + role + ` CONNECTION LIMIT 3`)
	b.mended(nil, b.wantLine(LevelWarn, "connections", "this role may have 3", "up to 4"))
	ended()
	b.exec(`ALTER DATABASE ` + database + ` CONNECTION LIMIT 3`)
	b.mended(nil, b.wantLine(LevelWarn, "connections", "this database may have 3"))
	b.exec(`REVOKE SELECT ON outbox FROM ` + role)
	b.mended(nil, b.wantLine(LevelWarn, "rights", "events show"))
	b.goesOn("a")
}

// A publication of all tables, before there is a slot and beside one.
func TestCheckOfAPublicationOfAllTables(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	f := b.wantLine(LevelWarn, "publication scope", "every table")
	b.mended(nil, f)
	b.exec(`DROP PUBLICATION p`)
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	r := b.settledRun("a")
	f = b.wantLine(LevelWarn, "publication scope", "every table")
	create, rest, _ := strings.Cut(f.Mend, "; ")
	b.exec(create)
	b.insert("b")
	r.waitSeen("b")
	await.Until(t, "b to be reported", func() bool { return b.confirmedFlush() >= b.current().ownWatermark() })
	r.endClean()
	b.cfg.Publication = "p_outbox"
	if !strings.Contains(rest, b.cfg.Publication) {
		t.Errorf("the mend is %s", f.Mend)
	}
	b.exec(rest[strings.Index(rest, "UPDATE "):])
	b.goesOn("c")
	b.wantLine(LevelOK, "publication scope", "inserts alone")
}

// An outbox that is deleted from: what autovacuum leaves, and what keeps it away. Of a partitioned one the partition is named.
func TestCheckOfDeadRows(t *testing.T) {
	b := alone(t)
	b.exec(`ALTER SYSTEM SET autovacuum_naptime = '1h'`)
	b.exec(`SELECT pg_reload_conf()`)
	b.exec(`ALTER TABLE outbox SET (autovacuum_enabled = false)`)
	b.mended(nil, b.wantLine(LevelWarn, "vacuum", "leaves it out"))
	b.exec(`INSERT INTO outbox SELECT g, '{}' FROM generate_series(1, 30000) g`)
	b.exec(`DELETE FROM outbox`)
	counted := func() bool { // before PostgreSQL 15 a session tells what it has counted with its next statement
		b.exec(`SELECT 1`)
		return b.finding("vacuum").Level == LevelWarn
	}
	await.Until(t, "the dead rows to be counted", counted)
	b.mended(nil, b.wantLine(LevelWarn, "vacuum", "more air than rows"))
	b.exec(`INSERT INTO outbox SELECT g, '{}' FROM generate_series(1, 120000) g`)
	await.Until(t, "the rows to be counted", counted)
	b.mended(nil, b.wantLine(LevelWarn, "vacuum", "a fifth of it"))

	b.exec(`CREATE TABLE parts (id text, payload jsonb) PARTITION BY LIST (id)`)
	b.exec(`CREATE TABLE "part 1" PARTITION OF parts FOR VALUES IN ('1')`)
	b.exec(`CREATE TABLE "part 2" PARTITION OF parts FOR VALUES IN ('2')`)
	b.cfg.Tables[0].Name = "parts"
	b.wantLine(LevelOK, "tables", "public.parts", "id text, payload jsonb")
	b.exec(`ALTER TABLE "part 2" SET (autovacuum_enabled = false)`)
	b.mended(nil, b.wantLine(LevelWarn, "vacuum", `public."part 2"`))
}

// A pooler in between is found however it is configured: as it comes, it refuses the relay's settings; told to ignore them, it
// keeps them back; and its sessions are not those of the backend that answers.
func TestCheckFindsAPooler(t *testing.T) {
	t.Parallel()
	p := devenv.OwnPostgres(t)
	b := setup(t, p.Database(t))
	b.init(InitOptions{})
	all := make([]string, 0, 20)
	for name := range settings("") {
		all = append(all, name)
	}
	for name, c := range map[string]struct {
		lines       []string
		line, words string
	}{
		"as it comes":          {nil, "postgres", "startup parameter"},
		"that ignores them":    {[]string{"ignore_startup_parameters = " + strings.Join(all, ",")}, "connection pooler", "keeps back settings"},
		"by transaction":       {[]string{"pool_mode = transaction", "ignore_startup_parameters = " + strings.Join(all, ",")}, "connection pooler", "keeps back settings"},
		"that ignores all":     {[]string{"ignore_startup_parameters = replication,wal_sender_timeout," + strings.Join(all, ",")}, "replication connection", "IDENTIFY_SYSTEM"},
		"no stream through it": {[]string{"ignore_startup_parameters = wal_sender_timeout," + strings.Join(all, ",")}, "replication connection", "replication"},
	} {
		t.Run(name, func(t *testing.T) {
			pooler, err := devenv.StartPgBouncer(await.Context(t), p, c.lines...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { pooler.Close() })
			through := setup(t, b.url)
			through.cfg.Slot, through.cfg.URL = b.cfg.Slot, pooler.URL(b.text(`SELECT current_database()`))
			if f := through.finding(c.line); f.Level != LevelFail || !strings.Contains(f.Detail, c.words) || f.Mend != mendPooler {
				t.Errorf("%+v", f)
			}
			r := through.run() // and a relay that is started so says it, too
			await.Until(t, "the relay to name the pooler", func() bool { return strings.Contains(r.s.Snapshot().Why, mendPooler) })
			r.endClean()
		})
	}
	b.wantLine(LevelOK, "connection pooler", "none")
}

// PostgreSQL goes silent while it is asked: Check ends all the same, and says of each question that it was not answered.
func TestCheckOfAServerThatGoesSilent(t *testing.T) {
	b := shared(t)
	p := b.through()
	p.Stall()
	ctx, cancel := context.WithTimeout(await.Context(t), 2*time.Second)
	defer cancel()
	list, err := Check(ctx, b.cfg)
	if err != nil || len(list) != 1 || list[0].Name != "postgres" || list[0].Level != LevelFail {
		t.Errorf("%+v, %v", list, err)
	}
}

// A question that this role may not ask is a warning, and the others are asked.
func TestCheckAsARoleThatMayNotAsk(t *testing.T) {
	t.Parallel()
	role, as := newRole(t, "REPLICATION")
	p := devenv.OwnPostgres(t)
	b := setup(t, p.Database(t))
	b.init(InitOptions{Role: role})
	b.exec(`REVOKE SELECT ON pg_catalog.pg_db_role_setting FROM PUBLIC`)
	b.exec(`REVOKE EXECUTE ON FUNCTION pg_catalog.pg_control_system() FROM PUBLIC`)
	b.cfg.URL = as(b.url)
	for _, name := range []string{"role settings", "synchronous_commit"} {
		if f := b.finding(name); f.Level != LevelWarn || !strings.Contains(f.Detail, "could not be asked") {
			t.Errorf("%+v", f)
		}
	}
	b.wantLine(LevelOK, "slot")
	b.goesOn("a")
}
