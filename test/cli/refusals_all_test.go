//go:build testall

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

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// What else stands by the slot's name is never taken for ours: exit 3, and nothing of it is
// changed.
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
		_, sql, _ := strings.Cut(line, "then drop it: ")
		r.exec(sql)
	})
	t.Run("held by another program", func(t *testing.T) {
		r := newRig(t)
		r.ok("init")
		conn := hold(t, r.db, r.slot, "other-program")
		r.refused(3, "run", r.slot, `active for "other-program"`, "not a cdc-relay", "stop that program")
		r.refused(1, "teardown --yes", r.slot, "other-program", "stop it first")
		must(t, conn.Close(await.Context(t)))
		r.released()
		relay := r.start()
		relay.Stop(t)
	})
}

// hold reads a slot as some other program does.
func hold(t *testing.T, db, slot, application string) *pgconn.PgConn {
	t.Helper()
	conn := walsender(t, db, application)
	must(t, pglogrepl.StartReplication(await.Context(t), conn, slot, 0, pglogrepl.StartReplicationOptions{
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
		if conn, err = pgconn.ConnectConfig(await.Context(t), cfg); err != nil {
			return err.Error()
		}
		return ""
	})
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// What only a server of its own can show: its limits, its WAL level, a synchronous standby, its
// passwords.
func TestServerThatCannotServe(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	t.Run("wal_level", func(t *testing.T) {
		r := onOwn(t, map[string]string{"wal_level": "replica"})
		r.refused(1, "run", "wal_level is replica, not logical", "ALTER SYSTEM SET wal_level = logical", "restart")
		r.refused(1, "init", "wal_level is replica, not logical")
	})
	t.Run("limits", func(t *testing.T) {
		r := onOwn(t, map[string]string{
			"max_replication_slots": "1", "max_wal_senders": "2", "max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB",
		})
		r.exec(`SELECT pg_create_physical_replication_slot('taken')`)
		r.refused(1, "run", "no free replication slot", r.slot, "max_replication_slots")
		r.exec(`SELECT pg_drop_replication_slot('taken')`)

		// two, because a relay that has stopped asks for its finding's ID over a second one
		senders := []*pgconn.PgConn{walsender(t, r.db, "somebody"), walsender(t, r.db, "somebody")}
		r.refused(1, "run", "no free walsender", "max_wal_senders")
		ended := func() { // each walsender that there may be
			t.Helper()
			eventually(t, func() string {
				if ask[int](r, `SELECT count(*) FROM pg_stat_replication`) != 0 {
					return "the walsender has not ended"
				}
				return ""
			})
		}
		for _, sender := range senders {
			must(t, sender.Close(ctx))
		}
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

		ended()
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
		line := r.refused(3, "run", r.slot, "invalidated", "wal_status lost", "--new-slot")
		ended()
		r.refused(2, "accept "+findingID(t, line), "cannot be read on", "--new-slot", "cdc-relay recover")
		r.ok("accept", findingID(t, line), "--new-slot")
		ended()
		relay := r.start()
		relay.Stop(t)
	})
}

// onOwn is a rig with an outbox table on a server of its own.
func onOwn(t *testing.T, settings map[string]string) *rig {
	t.Helper()
	p, err := pgserver.Start(await.Context(t), pgserver.Options{Settings: settings, NoFsync: true})
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	r := on(t, p.URL("postgres"))
	r.exec(load.OutboxTable)
	return r
}

// A password that is refused is waited for, and read again at every try: one that is corrected in
// its file is taken up without a restart. Neither is ever written to the log.
func TestPasswordsAreReadAgain(t *testing.T) {
	t.Parallel()
	// PostgreSQL is another user, who cannot enter t.TempDir
	dir, err := os.MkdirTemp("", "cdc-relay-cli-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	hba := filepath.Join(dir, "pg_hba.conf")
	must(t, os.WriteFile(hba, []byte("host all postgres 127.0.0.1/32 trust\nhost postgres relay 127.0.0.1/32 scram-sha-256\n"), 0o644))
	r := onOwn(t, map[string]string{"hba_file": hba})
	r.exec(`CREATE ROLE relay LOGIN SUPERUSER PASSWORD 'pgsecret'`)
	r.db = as(r.db, "relay", "")

	vhost, err := url.Parse(servers.SharedRabbitMQ(t).VHost(t))
	must(t, err)
	password, _ := vhost.User.Password()
	user := vhost.User.Username()
	vhost.User = nil
	pgFile, mqFile := filepath.Join(dir, "pg"), filepath.Join(dir, "mq")
	must(t, os.WriteFile(pgFile, []byte("pgsecret-wrong\n"), 0o600))
	must(t, os.WriteFile(mqFile, []byte("mqsecret-wrong\n"), 0o600))
	r.source = "  password: ${file:" + pgFile + "}"
	r.sink = "  rabbitmq: {declare: true, url: '" + vhost.String() + "', username: " + user + ", password: '${file:" + mqFile + "}'}"

	relay := runner.Start(t, r.binary, r.yaml())
	state(t, relay, "waiting for postgres", "password authentication failed")
	says(t, relay, "/readyz", 503, "waiting for postgres", "broker down", "403")
	must(t, os.WriteFile(pgFile, []byte("pgsecret\n"), 0o600))
	state(t, relay, "broker down", "403")
	must(t, os.WriteFile(mqFile, []byte(password+"\n"), 0o600))
	must(t, relay.WaitReady(await.Context(t)))
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	hidden(t, relay.Log())
	if n := strings.Count(relay.Log(), "waiting for PostgreSQL"); n != 1 {
		t.Errorf("%d lines about the password, want 1: %s", n, relay.Log())
	}
}
