package cli

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// run ends with exit 4 when the first start finds no table, or one that the mapping does not fit: nothing was created.
func TestTableThatDoesNotFit(t *testing.T) {
	t.Parallel()
	r := bare(t)
	r.refused(4, "run", "table public.outbox does not exist", "cdc-relay init --outbox-table")

	r.exec(`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, payload integer)`)
	line := r.refused(4, "run", "table public.outbox", `no column "type"`, `payload: column "payload" has type`, "wanted json, jsonb, text", "columns there: id, aggregatetype")
	if strings.Contains(line, "traceparent") || strings.Contains(line, "headers") {
		t.Errorf("optional columns are asked for: %s", line)
	}
	r.more = "outbox: {headers_column: headers}"
	r.refused(4, "run", `headers_column: no column "headers"`) // one that is written must exist
	if n := ask[int](r, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, r.slot); n != 0 {
		t.Error("a slot was created all the same")
	}
}

// A table with rows asks for a word about them, and leaves no slot behind that would hold WAL.
func TestRowsAskForBackfill(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.insert(3)
	r.refused(2, "run", "public.outbox", "3 rows", "source.backfill: false")
	r.refused(2, "init", "public.outbox", "3 rows", "source.backfill: false")
	if n := ask[int](r, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, r.slot); n != 0 {
		t.Error("a slot was left behind")
	}
	r.source = "  backfill: false"
	relay := r.start()
	if log := relay.Log(); !strings.Contains(log, "left behind") || !strings.Contains(log, `"rows":3`) {
		t.Errorf("the log does not count the rows that are left behind: %s", log)
	}
	r.insert(1)
	eventually(t, func() string { return wantLines(relay, 1) })
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// wantLines says "" when the relay has written n lines to stdout.
func wantLines(relay *devenv.Relay, n int) string {
	if got := strings.Count(relay.Stdout(), "\n"); got != n {
		return "the sink has written " + strings.Repeat("|", got) + ", want " + strings.Repeat("|", n)
	}
	return ""
}

// With source.create: false nothing is made: what is missing is named, with what makes it.
func TestNothingIsMadeWithoutCreate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := *r
	other.slot += "_other"
	r.source = "  create: false"
	r.refused(1, "run", "schema cdc_relay", "cdc-relay init")
	other.ok("init")
	for _, command := range []string{"run", "init"} {
		r.refused(3, command, `slot "`+r.slot+`" does not exist`, "source.create is false", "correct source.slot", "FROM pg_replication_slots")
	}
	r.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.slot)
	r.refused(3, "run", `publication "`+r.slot+`" does not exist`, "CREATE PUBLICATION")
	r.refused(3, "init", `publication "`+r.slot+`" does not exist`, "source.create is false", "correct source.publication")
	if n := ask[int](r, `SELECT count(*) FROM pg_publication WHERE pubname = $1`, r.slot); n != 0 {
		t.Error("the publication was made all the same")
	}
	if n := ask[int](r, `SELECT count(*) FROM cdc_relay.slots WHERE slot = $1`, r.slot); n != 0 {
		t.Error("the slot is somebody's now")
	}
	r.exec(`SELECT pg_drop_replication_slot($1)`, r.slot)
	r.source = ""
	r.ok("init")
	r.source = "  create: false"
	r.ok("init")
	relay := r.start()
	r.insert(1)
	eventually(t, func() string { return wantLines(relay, 1) })
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// A database that does not exist is not waited for.
func TestMissingDatabase(t *testing.T) {
	t.Parallel()
	r := on(t, devenv.SharedPostgres(t).URL("no_such_database"))
	r.refused(1, "run", "the database does not exist", "no_such_database", "correct source.url")
	r.refused(1, "init", `database "no_such_database" does not exist`)
}

// A role that may not replicate is told so.
func TestRoleWithoutReplication(t *testing.T) {
	t.Parallel()
	role := newRole(t, "LOGIN SUPERUSER NOREPLICATION") // a superuser may; see the plain one below
	plain := newRole(t, "LOGIN")
	r := newRig(t)
	owner := r.db
	r.ok("init")
	r.ok("teardown", "--yes")
	r.db = as(owner, plain, "")
	r.refused(1, "run", "schema cdc_relay", "cdc-relay init --no-slot --url")
	r.db = owner
	r.ok("init", "--role", plain)
	r.db = as(owner, plain, "")
	r.refused(1, "run", "may not replicate", "ALTER ROLE", "REPLICATION")
	r.db = as(owner, role, "")
	relay := r.start()
	relay.Stop(t)
}

// newRole makes a role of the shared server. It must be called before the database is made, so that it is dropped after
// it.
func newRole(t *testing.T, attributes string) string {
	t.Helper()
	r := on(t, devenv.SharedPostgres(t).URL("postgres"))
	name := "role_" + r.slot
	r.exec("CREATE ROLE " + name + " " + attributes)
	t.Cleanup(func() { r.exec("DROP ROLE " + name) })
	return name
}

// What else stands by the slot's name is never taken for ours: exit 3, and nothing of it is changed.
func TestSlotThatIsNotOurs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make  string
		words []string
	}{
		"another plugin":  {`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, []string{"test_decoding", "not pgoutput", "choose another source.slot"}},
		"a physical slot": {`SELECT pg_create_physical_replication_slot($1)`, []string{"physical", "choose another source.slot"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.exec(c.make, r.slot)
			t.Cleanup(func() { r.exec(`SELECT pg_drop_replication_slot($1)`, r.slot) })
			r.refused(3, "run", append(c.words, r.slot)...)
			r.refused(3, "init", append(c.words, r.slot)...)
			r.refused(3, "teardown --yes", append(c.words, r.slot, "not ours to drop")...)
			if n := ask[int](r, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, r.slot); n != 1 {
				t.Error("the slot is gone")
			}
		})
	}
	t.Run("another database", func(t *testing.T) {
		theirs, r := newRig(t), newRig(t)
		r.slot = theirs.slot
		theirs.ok("init")
		r.refused(3, "run", r.slot, "belongs to database", "choose another source.slot")
		r.refused(3, "teardown --yes", r.slot, "belongs to database", "not ours to drop")
		r.exec(`INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation) VALUES ($1, '1', 1, 'p', 'creating', 1)`, r.slot)
		r.refused(3, "run", r.slot, "belongs to database", "choose another source.slot")
		r.ok("teardown", "--yes") // of what is ours here
		if n := ask[int](theirs, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, r.slot); n != 1 {
			t.Error("the slot is gone")
		}
		theirs.start().Stop(t)
	})
	t.Run("no relay's", func(t *testing.T) {
		r := newRig(t)
		r.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.slot)
		line := r.refused(3, "teardown --yes", r.slot, "no relay has used it", "not ours to drop", "SELECT pg_drop_replication_slot('"+r.slot+"')")
		_, sql, _ := strings.Cut(line, "if nobody needs it: ")
		r.exec(sql)
	})
	t.Run("held by another program", func(t *testing.T) {
		r := newRig(t)
		r.ok("init")
		conn := hold(t, r.db, r.slot, "other-program")
		r.refused(3, "run", r.slot, `held by "other-program"`, "not a cdc-relay", "stop that program")
		r.refused(1, "teardown --yes", r.slot, "other-program", "stop it first")
		must(t, conn.Close(within(t, bound)))
		r.released()
		relay := r.start()
		relay.Stop(t)
	})
}

// hold reads a slot as some other program does.
func hold(t *testing.T, db, slot, application string) *pgconn.PgConn {
	t.Helper()
	conn := walsender(t, db, application)
	must(t, pglogrepl.StartReplication(within(t, bound), conn, slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names '" + slot + "'"},
	}))
	return conn
}

// walsender is a replication connection that does nothing.
func walsender(t *testing.T, db, application string) *pgconn.PgConn {
	t.Helper()
	cfg, err := pgconn.ParseConfig(db)
	must(t, err)
	cfg.RuntimeParams["replication"] = "database"
	cfg.RuntimeParams["application_name"] = application
	var conn *pgconn.PgConn
	eventually(t, func() string { // the walsender of a relay that has just ended may still be there
		if conn, err = pgconn.ConnectConfig(within(t, bound), cfg); err != nil {
			return err.Error()
		}
		return ""
	})
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// A slot that is gone, or was made anew while the relay was away, is never silently replaced or used; the SQL of the
// message is what goes on from there.
func TestSlotThatWasLost(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]string{
		"dropped":    `SELECT pg_drop_replication_slot($1)`,
		"re-created": `SELECT pg_drop_replication_slot($1); SELECT pg_create_logical_replication_slot($1, 'pgoutput')`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			relay := r.start()
			r.insert(2)
			eventually(t, func() string { return wantLines(relay, 2) })
			if code := relay.Stop(t); code != 0 {
				t.Fatalf("exit %d", code)
			}
			r.released()
			for i, sql := range strings.Split(after, "; ") {
				if i > 0 {
					r.insert(1) // committed while there was no slot: lost to it
				}
				r.exec(sql, r.slot)
			}
			line := r.refused(3, "run", r.slot, "find and re-send what is missing", "UPDATE cdc_relay.slots SET state = 'adopt'")
			r.exec(adopting(t, line))
			relay = r.start()
			r.insert(1)
			eventually(t, func() string { return wantLines(relay, 1) })
			relay.Stop(t)
		})
	}
}

// adopting is the statement that a message tells the operator to run.
func adopting(t *testing.T, line string) string {
	t.Helper()
	at := strings.Index(line, "UPDATE cdc_relay.slots")
	if at < 0 {
		t.Fatalf("there is no statement in %q", line)
	}
	sql, _, _ := strings.Cut(line[at:], " (")
	return sql
}

// What only a server of its own can show: its limits, its WAL level, a synchronous standby, its passwords.
func TestServerThatCannotServe(t *testing.T) {
	t.Parallel()
	ctx := within(t, 2*bound)
	t.Run("wal_level", func(t *testing.T) {
		r := onOwn(t, map[string]string{"wal_level": "replica"})
		r.refused(1, "run", "wal_level is replica, not logical", "ALTER SYSTEM SET wal_level = logical", "restart")
		r.refused(1, "init", "wal_level is replica, not logical")
	})
	t.Run("limits", func(t *testing.T) {
		r := onOwn(t, map[string]string{
			"max_replication_slots": "1", "max_wal_senders": "1", "max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB",
		})
		r.exec(`SELECT pg_create_physical_replication_slot('taken')`)
		r.refused(1, "run", "no free replication slot", r.slot, "max_replication_slots")
		r.exec(`SELECT pg_drop_replication_slot('taken')`)

		sender := walsender(t, r.db, "somebody")
		r.refused(1, "run", "no free walsender", "max_wal_senders")
		ended := func() { // the one walsender that there may be
			t.Helper()
			eventually(t, func() string {
				if ask[int](r, `SELECT count(*) FROM pg_stat_replication`) != 0 {
					return "the walsender has not ended"
				}
				return ""
			})
		}
		must(t, sender.Close(ctx))
		ended()

		r.exec(`ALTER SYSTEM SET synchronous_standby_names = '*'`)
		r.exec(`SELECT pg_reload_conf()`)
		eventually(t, func() string {
			if ask[string](r, `SELECT current_setting('synchronous_standby_names')`) != "*" {
				return "the setting was not read"
			}
			return ""
		})
		r.refused(1, "run", "synchronous_standby_names = '*'", "cdc-relay/"+r.slot, "list the real standbys by name")
		r.exec(`ALTER SYSTEM RESET synchronous_standby_names`)
		r.exec(`SELECT pg_reload_conf()`)

		r.ok("init")
		r.exec(`CREATE TABLE filler (n int)`)
		eventually(t, func() string {
			r.exec(`INSERT INTO filler VALUES (1)`)
			r.exec(`SELECT pg_switch_wal()`)
			r.exec(`CHECKPOINT`)
			if status := ask[string](r, `SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1`, r.slot); status != "lost" {
				return "wal_status is " + status
			}
			return ""
		})
		line := r.refused(3, "run", r.slot, "invalidated", "wal_status lost", "pg_drop_replication_slot")
		r.exec(`SELECT pg_drop_replication_slot($1)`, r.slot)
		r.exec(adopting(t, line))
		ended()
		relay := r.start()
		relay.Stop(t)
	})
}

// onOwn is a rig with an outbox table on a server of its own.
func onOwn(t *testing.T, settings map[string]string) *rig {
	t.Helper()
	p, err := devenv.StartPostgres(within(t, 2*bound), devenv.PostgresOptions{Settings: settings, NoFsync: true})
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	r := on(t, p.URL("postgres"))
	r.exec(devenv.OutboxTable)
	return r
}

// A password that is refused is waited for, and read again at every try: one that is corrected in its file is taken up
// without a restart. Neither is ever written to the log.
func TestPasswordsAreReadAgain(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "cdc-relay-cli-") // PostgreSQL is another user, who cannot enter t.TempDir
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	hba := filepath.Join(dir, "pg_hba.conf")
	must(t, os.WriteFile(hba, []byte("host all postgres 127.0.0.1/32 trust\nhost postgres relay 127.0.0.1/32 scram-sha-256\n"), 0o644))
	r := onOwn(t, map[string]string{"hba_file": hba})
	r.exec(`CREATE ROLE relay LOGIN SUPERUSER PASSWORD 'pgsecret'`)
	r.db = as(r.db, "relay", "")

	vhost, err := url.Parse(devenv.SharedRabbitMQ(t).VHost(t))
	must(t, err)
	password, _ := vhost.User.Password()
	user := vhost.User.Username()
	vhost.User = nil
	pgFile, mqFile := filepath.Join(dir, "pg"), filepath.Join(dir, "mq")
	must(t, os.WriteFile(pgFile, []byte("pgsecret-wrong\n"), 0o600))
	must(t, os.WriteFile(mqFile, []byte("mqsecret-wrong\n"), 0o600))
	r.source = "  password: ${file:" + pgFile + "}"
	r.sink = "  rabbitmq: {declare: true, url: '" + vhost.String() + "', username: " + user + ", password: '${file:" + mqFile + "}'}"

	relay := devenv.StartRelay(t, r.binary, r.yaml())
	state(t, relay, "waiting for postgres", "password authentication failed")
	eventually(t, func() string { return answers(t, relay, "/readyz", 503, "waiting for postgres", "broker down", "403") })
	must(t, os.WriteFile(pgFile, []byte("pgsecret\n"), 0o600))
	state(t, relay, "broker down", "403")
	must(t, os.WriteFile(mqFile, []byte(password+"\n"), 0o600))
	must(t, relay.WaitReady(within(t, bound)))
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	hidden(t, relay.Log())
	if n := strings.Count(relay.Log(), "waiting for PostgreSQL"); n != 1 {
		t.Errorf("%d lines about the password, want 1: %s", n, relay.Log())
	}
}
