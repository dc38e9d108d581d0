//go:build testall

package replication

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Each setting of the server that hurts stops a relay with the fix, and is a line of check with a
// fix that works as it stands.
func TestServerThatIsNotPrepared(t *testing.T) {
	t.Parallel()
	p := ownServer(t, map[string]string{
		"wal_level": "replica", "max_wal_senders": "2", "max_replication_slots": "1", "synchronous_standby_names": "",
	})
	b := newBench(t, p.URL("shop"))
	b.wantStop(b.run().wait(), event.ExitFailure, "wal_level", "ALTER SYSTEM SET wal_level = logical")
	b.fixed(p, b.wantLine(check.LevelFail, "wal_level", "replica"))
	b.exec(`SELECT pg_create_physical_replication_slot('another')`)
	b.wantStop(b.run().wait(), event.ExitFailure, "no_slot", "max_replication_slots")
	f := b.wantLine(check.LevelFail, "replication slots", "1 of 1 used by others")
	f.Fix, _, _ = strings.Cut(f.Fix, ";") // the rest is another way
	b.fixed(p, f)

	b.waitNoWalsender() // of the relays and checks before
	stranger := b.cfg
	stranger.Slot = "stranger"
	var conns [2]*pgconn.PgConn
	for i := range conns {
		if i == 1 {
			f = b.wantLine(check.LevelWarn, "wal senders", "1 of 2 used by others")
			b.waitWalsenders(1)
		}
		conn, err := source.ConnectStream(await.Context(t), &stranger)
		await.Must(t, err)
		_, err = slot.Identify(await.Context(t), conn)
		await.Must(t, err)
		conns[i] = conn
	}
	b.wantStop(b.run().wait(), event.ExitFailure, "no_sender", "max_wal_senders")
	for _, conn := range conns {
		source.CloseStream(conn)
	}
	b.fixed(p, f)
	b.goesOn("a")
	b.exec(`ALTER SYSTEM SET synchronous_standby_names = '*'`)
	b.exec(`SELECT pg_reload_conf()`)
	await.Until(t, "the server to know it", func() bool { return b.finding("synchronous standby").Level == check.LevelFail })
}

// Limits and rights of the relay's role.
func TestCheckOfTheRole(t *testing.T) {
	role, as := newRole(t, "REPLICATION")
	b := shared(t)
	b.init(setup.InitOptions{Role: role})
	b.cfg.URL = as(b.url)
	database := b.text(`SELECT current_database()`)
	ended := func() { // a connection of the check before may still count
		await.Until(t, "the role to have no connection", func() bool {
			return b.text(`SELECT count(*)::text FROM pg_stat_activity WHERE usename = '`+role+`'`) == "0"
		})
	}
	ended()
	b.exec(`ALTER ROLE ` + role + ` CONNECTION LIMIT 3`)
	b.fixed(nil, b.wantLine(check.LevelWarn, "connections", "this role may have 3", "up to 5"))
	ended()
	b.exec(`ALTER DATABASE ` + database + ` CONNECTION LIMIT 3`)
	b.fixed(nil, b.wantLine(check.LevelWarn, "connections", "this database may have 3"))
	b.exec(`REVOKE SELECT ON outbox FROM ` + role)
	b.fixed(nil, b.wantLine(check.LevelWarn, "rights", "events show"))
	b.goesOn("a")
}

// A pooler in between is found however it is configured: as it comes, it refuses the relay's
// settings; configured to ignore them, it drops them; and it knows no replication.
func TestCheckFindsAPooler(t *testing.T) {
	t.Parallel()
	p := servers.OwnPostgres(t)
	b := newBench(t, p.Database(t))
	b.init(setup.InitOptions{})
	all := make([]string, 0, 20)
	for name := range source.Settings("") {
		all = append(all, name)
	}
	for name, c := range map[string]struct {
		lines       []string
		line, words string
	}{
		"as it comes":       {nil, "postgres", "startup parameter"},
		"that ignores them": {[]string{"ignore_startup_parameters = " + strings.Join(all, ",")}, "connection pooler", "drops settings"},
		"that ignores all":  {[]string{"ignore_startup_parameters = replication,wal_sender_timeout," + strings.Join(all, ",")}, "replication connection", "IDENTIFY_SYSTEM"},
	} {
		t.Run(name, func(t *testing.T) {
			pooler, err := pgserver.StartPgBouncer(await.Context(t), p, c.lines...)
			await.Must(t, err)
			t.Cleanup(func() { pooler.Close() })
			through := newBench(t, b.url)
			through.cfg.Slot, through.cfg.URL = b.cfg.Slot, pooler.URL(b.text(`SELECT current_database()`))
			if f := through.finding(c.line); f.Level != check.LevelFail || !strings.Contains(f.Detail, c.words) || f.Fix != source.FixPooler {
				t.Errorf("%+v", f)
			}
			r := through.run() // and a relay that is started so says it, too
			await.Until(t, "the relay to name the pooler", func() bool { return strings.Contains(r.s.Snapshot().Why, source.FixPooler) })
			r.endClean()
		})
	}
	b.wantLine(check.LevelOK, "connection pooler", "none")
}

// PostgreSQL goes silent while it is asked: Check ends all the same, and says of each question that
// it was not answered.
func TestCheckOfAServerThatGoesSilent(t *testing.T) {
	b := shared(t)
	p := b.through()
	p.Stall()
	ctx, cancel := context.WithTimeout(await.Context(t), 2*time.Second)
	defer cancel()
	list, err := check.Run(ctx, b.cfg)
	if err != nil || len(list) != 1 || list[0].Name != "postgres" || list[0].Level != check.LevelFail {
		t.Errorf("%+v, %v", list, err)
	}
}

// A relay needs no right to ask for the server's system identifier.
func TestCheckAsARoleThatMayNotAsk(t *testing.T) {
	t.Parallel()
	role, as := newRole(t, "REPLICATION")
	p := servers.OwnPostgres(t)
	b := newBench(t, p.Database(t))
	b.init(setup.InitOptions{Role: role})
	b.exec(`REVOKE EXECUTE ON FUNCTION pg_catalog.pg_control_system() FROM PUBLIC`)
	b.cfg.URL = as(b.url)
	b.wantLine(check.LevelOK, "slot")
	b.goesOn("a")
}

// Rows are converted to UTF-8, messages are not: check says so, and what is not
// UTF-8 is a fault, not another text.
func TestMessagesOfAnotherEncoding(t *testing.T) {
	t.Parallel()
	b := newBench(t, servers.OwnPostgres(t).DatabaseOf(t, "LATIN1"))
	b.relayMessages()
	if f := b.wantLine(check.LevelWarn, "messages", "LATIN1"); !strings.Contains(f.Fix, "convert_to") {
		t.Error(f)
	}
	r := b.streaming()
	// this connection's, whose text the server converts to the database's
	b.exec(`SET client_encoding = 'UTF8'`)
	const text = `{"id": "café", "key": "1", "payload": {}}`
	b.exec(`SELECT pg_logical_emit_message(true, 'orders', '` + text + `')`)
	b.exec(`SELECT pg_logical_emit_message(true, 'orders', convert_to('` + text + `', 'UTF8'))`)
	r.waitSeen("café")
	r.endClean()
	first := b.current().All()[0]
	if want := fmt.Sprintf(`{"message:hex":"%x"}`, strings.ReplaceAll(text, "é", "\xe9")); first.Raw != want || !strings.Contains(first.Fault, "convert_to") {
		t.Errorf("got %+v, want raw %s", first, want)
	}
}

// Every right by which the audit could be forged is named with its role, and the fix takes it back
// without touching what the relay and the operators need.
func TestCheckNamesWhoMayForgeTheAudit(t *testing.T) {
	t.Parallel()
	role, as := newRole(t, "REPLICATION")
	operator, _ := newRole(t, "")
	b := newBench(t, servers.OwnPostgres(t).Database(t))
	b.init(setup.InitOptions{Role: role})
	if f := b.wantLine(check.LevelWarn, "audit", "only as safe as its password"); !strings.Contains(f.Fix, "--role") {
		t.Errorf("check as a superuser: %+v", f)
	}
	b.cfg.URL = as(b.url)
	b.exec("GRANT INSERT (slot, kind, n, reason) ON cdc_relay.request TO " + operator)
	b.exec("GRANT EXECUTE ON FUNCTION cdc_relay.cancel_job(bigint, text, text) TO " + operator)
	b.wantLine(check.LevelOK, "audit", "the relay appends")
	for _, grant := range []string{
		"INSERT, INSERT (who) ON cdc_relay.audit TO " + operator,
		"UPDATE, DELETE, TRUNCATE ON cdc_relay.audit TO " + role,
		"INSERT ON cdc_relay.bulk TO " + operator,
		"INSERT (who, slot), UPDATE (state) ON cdc_relay.bulk TO PUBLIC",
		"DELETE, UPDATE (state, done_at) ON cdc_relay.request TO " + operator,
		"EXECUTE ON FUNCTION cdc_relay.prune_audit(interval) TO PUBLIC, " + role,
		"pg_write_all_data TO " + operator,
	} {
		b.exec("GRANT " + grant)
	}
	b.fixed(nil, b.wantLine(check.LevelWarn, "audit",
		operator+" may INSERT, INSERT (who) ON cdc_relay.audit", role+" may DELETE, TRUNCATE, UPDATE ON cdc_relay.audit",
		operator+" may INSERT ON cdc_relay.bulk", "PUBLIC may INSERT (who), UPDATE (state) ON cdc_relay.bulk",
		operator+" may DELETE, UPDATE (done_at, state) ON cdc_relay.request",
		"PUBLIC may EXECUTE ON FUNCTION cdc_relay.prune_audit(interval)", role+" may EXECUTE ON FUNCTION cdc_relay.prune_audit(interval)",
		operator+" may pg_write_all_data"))
	if left := b.text(`SELECT relacl::text || (SELECT string_agg(attacl::text, '') FROM pg_attribute WHERE attrelid = c.oid) FROM pg_class c WHERE oid = 'cdc_relay.request'::regclass`); !strings.Contains(left, role+"=arwd") || !strings.Contains(left, operator+"=a/") {
		t.Errorf("the rights that are left are %s", left)
	}
	b.exec("GRANT cdc_relay_owner TO " + role)
	b.wantLine(check.LevelWarn, "audit", "only as safe as its password")
}

// What gives the rows of another system to this one ends a relay that leads, which
// has not counted them. Run again it moves nothing, and ends nobody.
func TestMovedRowsAreMovedOnce(t *testing.T) {
	b := shared(t)
	b.goesOn("a")
	b.deferRow()
	b.exec(`UPDATE cdc_relay.retry SET system_id = '4711'`)
	line := b.wantLine(check.LevelWarn, "deferred events", "4711", "1 deferred")
	const did = `SELECT epoch || ' ' || (SELECT count(*) FROM cdc_relay.audit WHERE action = 'accept' AND why = 'a test') || ' ' || (SELECT count(*) FROM cdc_relay.retry WHERE system_id = s.system_id) FROM cdc_relay.slots s`
	b.exec(`UPDATE cdc_relay.slots SET epoch = 7`)
	b.acceptFix(line.Fix)
	if got := b.text(did); got != "8 1 1" {
		t.Errorf("epoch, audit and rows are %s", got)
	}
	_, err := setup.Accept(await.Context(t), b.cfg, setup.AcceptOptions{ID: acceptLine.FindStringSubmatch(line.Fix)[1], SameData: true})
	b.wantStop(err, event.ExitUsage, "usage", "it was accepted")
	if got := b.text(did); got != "8 1 1" {
		t.Errorf("epoch, audit and rows are %s", got)
	}
}
