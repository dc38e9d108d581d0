//go:build testall

package cli

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// deployed is a database after files of deploy/. The roles of the files have names of their own
// here, because names of roles are the whole server's; ann is a member of the operators', exporter
// of monitoring's.
type deployed struct {
	*operated
	owner, relayRole, ann, exporter string
}

func deploySQL(t *testing.T, files ...string) *deployed {
	t.Helper()
	server := on(t, servers.SharedPostgres(t).URL("postgres"))
	ours := map[string]string{"relay": server.slot + "_relay", "relay_operator": server.slot + "_operator", "relay_monitor": server.slot + "_monitor"}
	t.Cleanup(func() { // after the database, with what they were granted, is gone
		for _, role := range ours {
			server.exec("DROP ROLE IF EXISTS " + role)
		}
	})
	d := &deployed{relayRole: ours["relay"], ann: newRole(t, "LOGIN"), exporter: newRole(t, "LOGIN")}
	d.operated = &operated{brokered: &brokered{rig: bare(t), broker: servers.SharedRabbitMQ(t)}}
	d.owner = d.db
	for _, file := range files {
		sql := regexp.MustCompile(`([ "])(relay(?:_operator|_monitor)?)(["; \n])`).ReplaceAllStringFunc(document(t, file), func(found string) string {
			return found[:1] + ours[found[1:len(found)-1]] + found[len(found)-1:]
		})
		sql = strings.NewReplacer(`"cdc_relay"`, d.slot, `'cdc_relay'`, "'"+d.slot+"'").Replace(sql)
		cmd := exec.CommandContext(await.Context(t), "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", d.owner)
		cmd.Stdin = strings.NewReader(sql)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s\n%s", file, err, out, sql)
		}
	}
	d.exec(fmt.Sprintf("GRANT %s TO %s", ours["relay_operator"], d.ann))
	d.exec(fmt.Sprintf("GRANT %s TO %s", ours["relay_monitor"], d.exporter))
	return d
}

// as runs the commands and queries that follow as another role.
func (d *deployed) as(role string) { d.db = as(d.owner, role, "") }

// mayNot wants that a role may not run a statement.
func (d *deployed) mayNot(role, sql string) {
	d.t.Helper()
	err := execOn(await.Context(d.t), as(d.owner, role, ""), sql)
	if err == nil || !strings.Contains(err.Error(), "42501") {
		d.t.Errorf("%s may %s: %v", role, sql, err)
	}
}

// The relay starts, relays, defers, gives up, replays, starts again and is removed under the role
// of 02-relay.sql; operators do their work with 03-operator.sql, monitoring looks with
// 04-monitor.sql, and none of them may do more.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	d := deploySQL(t, "deploy/sql/01-roles.sql", relaySQL, "deploy/sql/03-operator.sql", "deploy/sql/04-monitor.sql")
	d.exec(`ALTER TABLE outbox ALTER type DROP NOT NULL`)
	d.vhost = d.broker.VHost(t)
	var err error
	d.consumer, err = consumers.StartConsumer(await.Context(t), consumers.ConsumerOptions{URL: d.vhost})
	must(t, err)
	t.Cleanup(d.consumer.Close)
	d.sink = "  rabbitmq: {url: '" + d.vhost + "', allow: {routing_key: order.*}}"
	d.more = "dead_letters: {on_dead_letter: block}\n"

	d.as(d.relayRole)
	d.relay = d.start()
	d.db = d.owner
	d.insert(1)
	must(t, d.consumer.WaitCount(await.Context(t), 1))
	n := d.bad("7", 1)[0]
	d.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES ('11111111-1111-1111-1111-111111111111', 'order', '7', 'created')`)
	deferred := func(want int) {
		t.Helper()
		eventually(t, func() string {
			if got := ask[int](on(t, d.owner), `SELECT count(*) FROM cdc_relay.retry`); got != want {
				return fmt.Sprintf("%d events are deferred, want %d", got, want)
			}
			return ""
		})
	}
	deferred(1)
	more := d.bad("8", 1)[0]
	d.bad("9", 1)

	d.operate(n, more)
	deferred(0) // the dead letter of key 7 was replayed, so what waited behind it has gone
	must(t, d.consumer.WaitIDs(await.Context(t), []string{"11111111-1111-1111-1111-111111111111"}))

	d.as(d.relayRole)
	for _, f := range checked(t, d.ok("check", "--json")) {
		if f.Level != "ok" && f.Name != "commit times" {
			t.Errorf("check as the relay's role: %+v", f)
		}
	}
	ended(t, d.relay)
	d.watch()
	d.as(d.relayRole)
	d.relay = d.start() // not the first start
	d.db = d.owner
	d.insert(1)
	must(t, d.consumer.WaitCount(await.Context(t), 4))
	ended(t, d.relay)
	for _, sql := range []string{
		`INSERT INTO outbox VALUES (gen_random_uuid(), 'a', 'k', 't')`, `UPDATE outbox SET type = 't'`, `DELETE FROM outbox`,
		`CREATE TABLE cdc_relay.mine ()`, `ALTER TABLE cdc_relay.retry ADD COLUMN mine int`, `CREATE SCHEMA mine`,
	} {
		d.mayNot(d.relayRole, sql)
	}

	// As docs/running.md says: once as the relay's role, which may drop its slot alone, and once as
	// the owner.
	d.as(d.relayRole)
	d.released()
	d.refused(1, "teardown --yes", "drop publication", "must be owner")
	d.db = d.owner
	d.ok("teardown", "--yes")
	if left := left(d.rig); left != "publications 0, schemas 0, slots 0" {
		t.Errorf("after teardown: %s", left)
	}
}

// operate does what operators do: dead letter n can be replayed elsewhere, more is dropped.
func (d *deployed) operate(n int64, more int64) {
	t := d.t
	t.Helper()
	id := ask[string](d.rig, `SELECT convert_from(id, 'UTF8') FROM cdc_relay.dead_letter WHERE n = $1`, n)
	waits := ask[int64](d.rig, `SELECT n FROM cdc_relay.retry`)
	d.as(d.ann)
	defer func() { d.db = d.owner }()
	for _, command := range []string{
		"dead-letters list", fmt.Sprint("dead-letters show ", n), "deferred list", fmt.Sprint("deferred show ", waits), "events show " + id,
		"dead-letters replay --all --dry-run", "dead-letters list --error null_in_template --state open",
		fmt.Sprint("deferred retry ", waits, " --wait 0"),
		fmt.Sprint("dead-letters replay ", n, " --routing-key order.fixed --reason fixed"),
		fmt.Sprint("dead-letters redact ", more), fmt.Sprint("dead-letters discard ", more),
		"dead-letters discard --all --rate 1/s --wait 0", "dead-letters job 1 --cancel --reason no", "dead-letters job",
		"dead-letters purge --all --state open",
	} {
		d.ok(strings.Fields(command)...)
	}
	request := ask[int64](d.rig, `SELECT id FROM cdc_relay.request ORDER BY id LIMIT 1`)
	d.ok("dead-letters", "request", fmt.Sprint(request), "--cancel")
	for _, sql := range []string{
		`INSERT INTO outbox VALUES (gen_random_uuid(), 'a', 'k', 't')`, `DELETE FROM cdc_relay.dead_letter`, `UPDATE cdc_relay.dead_letter SET state = 'open'`,
		`UPDATE cdc_relay.request SET who = 'nobody'`, `UPDATE cdc_relay.slots SET state = 'adopt'`, `DELETE FROM cdc_relay.audit`, `UPDATE cdc_relay.audit SET who = 'nobody'`,
	} {
		d.mayNot(d.ann, sql)
	}
}

// watch looks as monitoring does, while no relay runs.
func (d *deployed) watch() {
	t := d.t
	t.Helper()
	d.as(d.exporter)
	defer func() { d.db = d.owner }()
	eventually(t, func() string { // the server takes a moment to see that the relay has gone
		res := d.command("status")
		if res.Code != 1 || !strings.Contains(res.Stdout, "nobody holds it") || strings.Contains(res.Stdout, "not known") {
			return fmt.Sprintf("status of a relay that does not run, as monitoring: exit %d: %s%s", res.Code, res.Stdout, res.Stderr)
		}
		return ""
	})
	if got := ask[int](d.rig, `SELECT count(*) FROM cdc_relay.dead_letter WHERE died_at > now() - interval '1 day' AND reason = 'null_in_template'`); got != 3 {
		t.Errorf("monitoring sees %d dead letters, want 3", got)
	}
	d.seesNone(d.exporter, "secret")
	for _, column := range []string{"payload", "key", "id", "headers", "raw", "destination", "routing_key"} {
		d.mayNot(d.exporter, "SELECT "+column+" FROM cdc_relay.dead_letter")
		d.mayNot(d.exporter, "SELECT "+column+" FROM cdc_relay.retry")
	}
	for _, sql := range []string{`SELECT FROM outbox`, `SELECT error FROM cdc_relay.dead_letter`, `INSERT INTO cdc_relay.request DEFAULT VALUES`, `SELECT who FROM cdc_relay.audit`} {
		d.mayNot(d.exporter, sql)
	}
}

// seesNone looks for a text of payloads in all that a role may read, while a service has just
// written one as a literal.
func (d *deployed) seesNone(role, text string) {
	t := d.t
	t.Helper()
	ctx := await.Context(t)
	connect := func(db string) *pgx.Conn {
		conn, err := pgx.Connect(ctx, db)
		must(t, err)
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
		return conn
	}
	service, conn := connect(d.owner), connect(as(d.owner, role, ""))
	_, err := service.Exec(ctx, `BEGIN; INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'a', 'k', 't', '{"`+text+`": true}')`)
	must(t, err)
	search := func(conn *pgx.Conn) (found []string) {
		rows, err := conn.Query(ctx, `SELECT c.oid::regclass::text, string_agg(quote_ident(attname), ', ' ORDER BY attnum)
			FROM pg_class c JOIN pg_attribute ON attrelid = c.oid AND attnum > 0 AND NOT attisdropped
			WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND has_schema_privilege(relnamespace, 'USAGE') AND has_column_privilege(c.oid, attnum, 'SELECT') GROUP BY 1`)
		must(t, err)
		type relation struct{ Name, Columns string }
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[relation])
		must(t, err)
		for _, r := range list {
			var there bool
			err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM (SELECT `+r.Columns+` FROM `+r.Name+`) t WHERE t::text LIKE '%' || $1 || '%')`, text+`"": true`).Scan(&there)
			if err != nil && !strings.Contains(err.Error(), "42501") { // behind a view
				t.Errorf("%s: %v", r.Name, err)
			}
			if there {
				found = append(found, r.Name)
			}
		}
		if len(list) < 100 {
			t.Errorf("it may read %d relations alone", len(list))
		}
		return found
	}
	if found := search(conn); len(found) > 0 {
		t.Errorf("%s sees payloads in %v", role, found)
	}
	if found := search(connect(d.owner)); !slices.Contains(found, "pg_stat_activity") || !slices.Contains(found, "outbox") {
		t.Errorf("the owner sees payloads in %v alone: the test finds none", found)
	}
	_, err = service.Exec(ctx, "ROLLBACK")
	must(t, err)
}
