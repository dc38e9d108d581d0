// Attacks on the audit, by an operator with the rights of deploy/sql/03-operator.sql and by the
// relay's role.

package dlq

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	replicationsetup "github.com/cdc-relay/cdc-relay/internal/replication/setup"
)

// role makes a role of the shared server; what it was given goes with it.
func (r *rig) role(name string) string {
	r.t.Helper()
	name = r.slot + "_" + name
	r.exec("CREATE ROLE " + name + " LOGIN")
	r.t.Cleanup(func() { r.exec("DROP OWNED BY " + name + " CASCADE"); r.exec("DROP ROLE " + name) })
	return name
}

// as connects as another role.
func (r *rig) as(role string) *pgx.Conn {
	r.t.Helper()
	c := r.pool.Config().ConnConfig.Copy()
	c.User = role
	conn, err := pgx.ConnectConfig(r.ctx, c)
	r.must(err)
	r.t.Cleanup(func() { _ = conn.Close(r.ctx) })
	return conn
}

// mayNot wants each statement refused for want of a right, and nothing changed by all of them.
func (r *rig) mayNot(conn *pgx.Conn, list ...string) {
	r.t.Helper()
	before := r.contents()
	for _, sql := range list {
		_, err := conn.Exec(r.ctx, sql)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "42501" {
			r.t.Errorf("%s may %s: %v", conn.Config().User, sql, err)
		}
	}
	if after := r.contents(); after != before {
		r.t.Errorf("the tables have changed:\n%s%s", before, after)
	}
}

func (r *rig) wantAudit(want string) {
	r.t.Helper()
	got := value[string](r, `SELECT coalesce(string_agg(concat_ws(' ', who, action, why, result, at > now() - interval '1 hour' AND at <= now()), ', ' ORDER BY seq), '') FROM cdc_relay.audit`)
	if got != want {
		r.t.Errorf("the audit says\n%s, want\n%s", got, want)
	}
}

// operators makes the role relay_operator by the file that is shipped, after what an earlier file
// had granted it, and ann, who is a member.
func (r *rig) operators() (group, ann string) {
	r.t.Helper()
	group, ann = r.role("operator"), r.role("ann")
	r.exec(`GRANT INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA cdc_relay TO ` + group)
	r.exec(`GRANT UPDATE (state, done_at, who) ON cdc_relay.request TO ` + group)
	sql, err := os.ReadFile("../../deploy/sql/03-operator.sql")
	r.must(err)
	r.exec(strings.ReplaceAll(string(sql), "relay_operator", group))
	r.exec("GRANT " + group + " TO " + ann)
	return group, ann
}

func TestOperatorCannotForge(t *testing.T) {
	r := setup(t)
	group, ann := r.operators()
	other, closed := r.put(sample{of: DeadLetters}), r.put(sample{of: DeadLetters})
	ask := func(n int64) int64 {
		q, err := r.admin.Request(r.ctx, Action{Kind: Replay, N: n, By: by})
		r.must(err)
		return q.ID
	}
	waiting, done := ask(other), ask(closed)
	r.exec(`UPDATE cdc_relay.request SET state = 'done', done_at = now() WHERE id = $1`, done)
	r.exec(`INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result) VALUES ($1, '', 'eve', 'purge', 1, '', 'purged')`, r.slot)
	r.exec(`DELETE FROM cdc_relay.audit`)

	conn := r.as(ann)
	row := fmt.Sprintf(`'%s', '%s', 'purge', %d, ''`, r.slot, r.system(), closed)
	r.mayNot(conn,
		`INSERT INTO cdc_relay.request (slot, system_id, kind, n, reason, who) VALUES (`+row+`, 'bob')`,
		`INSERT INTO cdc_relay.request (slot, system_id, kind, n, reason, state) VALUES (`+row+`, 'done')`,
		`INSERT INTO cdc_relay.request (slot, system_id, kind, n, reason, result) VALUES (`+row+`, 'purged')`,
		`INSERT INTO cdc_relay.request (slot, system_id, kind, n, reason, created_at) VALUES (`+row+`, '2020-01-01')`,
		`INSERT INTO cdc_relay.request (slot, system_id, kind, n, reason, job) VALUES (`+row+`, 1)`,
		`INSERT INTO cdc_relay.request (slot, system_id, kind, n, reason, id) OVERRIDING SYSTEM VALUE VALUES (`+row+`, 1)`,
		`INSERT INTO cdc_relay.bulk (slot, system_id, kind, reason, matched, in_dead_letters, who) VALUES ('s', '', 'purge', '', 1, true, 'bob')`,
		`INSERT INTO cdc_relay.bulk (slot, system_id, kind, reason, matched, in_dead_letters, state) VALUES ('s', '', 'purge', '', 1, true, 'done')`,
		`INSERT INTO cdc_relay.bulk (slot, system_id, kind, reason, matched, in_dead_letters, job) VALUES ('s', '', 'purge', '', 1, true, 1)`,
		`INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result) VALUES ('s', '', 'bob', 'purge', 1, '', '')`,
		`INSERT INTO cdc_relay.audit (slot, system_id, action, n, why, result) VALUES ('s', '', 'purge', 1, '', '')`,
		`UPDATE cdc_relay.request SET state = 'done' WHERE state = 'waiting'`,
		`UPDATE cdc_relay.request SET state = 'waiting' WHERE state = 'done'`,
		`UPDATE cdc_relay.request SET who = 'bob'`,
		`UPDATE cdc_relay.bulk SET filter = NULL`,
		`UPDATE cdc_relay.audit SET who = 'bob'`,
		`DELETE FROM cdc_relay.audit`, `DELETE FROM cdc_relay.request`, `DELETE FROM cdc_relay.bulk`, `TRUNCATE cdc_relay.audit`,
		`SELECT FROM cdc_relay.request FOR UPDATE`,
		`SELECT cdc_relay.prune_audit('400 days')`,
		`CREATE TRIGGER forge BEFORE INSERT ON cdc_relay.audit FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`,
		`CREATE FUNCTION cdc_relay.now() RETURNS timestamptz LANGUAGE sql RETURN '-infinity'`,
		`SET SESSION AUTHORIZATION `+r.pool.Config().ConnConfig.User,
		`SET ROLE `+r.pool.Config().ConnConfig.User,
	)
	for _, call := range []string{
		// another slot's
		fmt.Sprintf(`SELECT cdc_relay.cancel_request(%d, 'another', '')`, waiting),
		fmt.Sprintf(`SELECT cdc_relay.cancel_request(%d, '%s', '')`, done, r.slot),
		`SELECT cdc_relay.cancel_job(99, '` + r.slot + `', '')`,
	} {
		var did bool
		r.must(conn.QueryRow(r.ctx, call).Scan(&did))
		if did {
			t.Errorf("%s has cancelled something", call)
		}
	}
	r.wantAudit("")

	// A schema and temporary objects in which everything that the functions call is somebody
	// else's, and would be run as the owner.
	r.exec("CREATE SCHEMA " + ann + " AUTHORIZATION " + ann)
	r.exec("GRANT TEMPORARY ON DATABASE " + pgx.Identifier{r.pool.Config().ConnConfig.Database}.Sanitize() + " TO " + ann)
	for _, sql := range []string{
		`CREATE TEMP TABLE request (LIKE cdc_relay.request)`, `CREATE TEMP TABLE audit (LIKE cdc_relay.audit)`,
		`CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (value = 'forged')`, `CREATE DOMAIN pg_temp.timestamptz AS pg_catalog.timestamptz CHECK (value IS NULL)`,
		`CREATE FUNCTION now() RETURNS pg_catalog.timestamptz LANGUAGE sql AS $$SELECT pg_catalog.timestamptz '-infinity'$$`,
		`CREATE FUNCTION forged(pg_catalog.text, pg_catalog.text) RETURNS pg_catalog.text LANGUAGE sql AS $$SELECT 'forged'::pg_catalog.text$$`,
		`CREATE OPERATOR || (LEFTARG = pg_catalog.text, RIGHTARG = pg_catalog.text, FUNCTION = forged)`,
		`CREATE FUNCTION forged(bigint, bigint) RETURNS boolean LANGUAGE sql AS $$SELECT true$$`,
		`CREATE OPERATOR = (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = forged)`,
	} {
		if _, err := conn.Exec(r.ctx, `SET search_path = `+ann+`, pg_temp, pg_catalog; `+sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	// Who asks is who logged in, whatever role is set.
	if _, err := conn.Exec(r.ctx, "SET ROLE "+group); err != nil {
		t.Fatal(err)
	}
	call := fmt.Sprintf(`SELECT cdc_relay.cancel_request(%d, '%s', 'the wrong one')`, waiting, r.slot)
	var did bool
	r.must(conn.QueryRow(r.ctx, call).Scan(&did))
	if !did || value[int](r, `SELECT count(*) FROM cdc_relay.request WHERE state = 'cancelled'`) != 1 {
		t.Error("the request is not cancelled, or another one is")
	}
	r.wantAudit(ann + " cancel the wrong one replay is not done t")
	r.exec(`INSERT INTO cdc_relay.bulk (slot, system_id, kind, reason, matched, in_dead_letters) VALUES ($1, '', 'purge', '', 1, true)`, r.slot)
	r.must(conn.QueryRow(r.ctx, `SELECT cdc_relay.cancel_job(1, '`+r.slot+`', NULL)`).Scan(&did))
	r.wantAudit(ann + " cancel the wrong one replay is not done t, " + ann + " cancel  job 1 t")
}

// What operators may do works with these rights, and carries the name of their role.
func TestOperatorsAreNamedByTheDatabase(t *testing.T) {
	r := setup(t)
	_, ann := r.operators()
	a := New(r.as(ann), r.slot)
	one := r.put(sample{of: DeadLetters})
	r.put(sample{of: DeadLetters})
	q, err := a.Request(r.ctx, Action{Kind: Replay, N: one, Route: event.Route{Name: []byte("x")}, By: Requester{Why: "fixed"}})
	r.must(err)
	if q.Who != ann {
		t.Errorf("asked by %q", q.Who)
	}
	q, err = a.Withdraw(r.ctx, q.ID, Requester{Why: "no"})
	r.must(err)
	j, err := a.Start(r.ctx, Bulk{Kind: Discard, By: Requester{Why: "all"}})
	r.must(err)
	r.expand() // as the relay
	if who := value[string](r, `SELECT string_agg(DISTINCT who, ' ') FROM cdc_relay.request WHERE job = $1`, j.ID); who != ann || j.Who != ann || q.State != RequestCancelled {
		t.Errorf("job by %q, its requests by %q; the request before is %s", j.Who, who, q.State)
	}
	j, err = a.Cancel(r.ctx, j.ID, Requester{Why: "stop"})
	r.must(err)
	if j.State != JobCancelled || j.Cancelled != 2 {
		t.Errorf("the job is %+v", j)
	}
	r.wantAudit(ann + " cancel no replay is not done t, " + ann + " cancel stop job 1 t")
}

// The relay names who its API has seen, appends, and can neither change nor remove what it wrote.
func TestRelayOnlyAppends(t *testing.T) {
	r := setup(t)
	relay := r.role("relay")
	// as an earlier version did, and more
	r.exec(`GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA cdc_relay TO ` + relay)
	r.must(replicationsetup.Init(r.ctx, r.cfg, replicationsetup.InitOptions{NoSlot: true, Role: relay}))
	conn := r.as(relay)
	a, api := New(conn, r.slot), Requester{Who: "token ci", Why: "why"}
	one, two := r.put(sample{of: DeadLetters}), r.put(sample{of: DeadLetters})
	q, err := a.Request(r.ctx, Action{Kind: Discard, N: one, By: api})
	r.must(err)
	_, err = a.Withdraw(r.ctx, q.ID, api)
	r.must(err)
	j, err := a.Start(r.ctx, Bulk{Kind: Discard, By: api})
	r.must(err)
	_, err = a.Cancel(r.ctx, j.ID, api)
	r.must(err)
	own, err := a.Request(r.ctx, Action{Kind: Discard, N: two}) // a command under the relay's role
	r.must(err)
	_, err = a.Withdraw(r.ctx, own.ID, Requester{})
	r.must(err)
	if q.Who != "token ci" || j.Who != "token ci" || own.Who != relay {
		t.Errorf("asked by %q, %q and %q", q.Who, j.Who, own.Who)
	}
	r.wantAudit("token ci cancel why discard is not done t, token ci cancel why job 1 t, " + relay + " cancel  discard is not done t")
	r.mayNot(conn,
		`INSERT INTO cdc_relay.audit (slot, system_id, at, action, n, why, result) VALUES ('s', '', '2020-01-01', 'purge', 1, '', '')`,
		`INSERT INTO cdc_relay.audit (slot, system_id, seq, action, n, why, result) OVERRIDING SYSTEM VALUE VALUES ('s', '', 1, 'purge', 1, '', '')`,
		`UPDATE cdc_relay.audit SET who = 'bob'`, `DELETE FROM cdc_relay.audit`, `TRUNCATE cdc_relay.audit`, `SELECT cdc_relay.prune_audit('400 days')`,
		`CREATE OR REPLACE FUNCTION cdc_relay.prune_audit(older_than interval) RETURNS bigint LANGUAGE sql RETURN 0`,
		`ALTER TABLE cdc_relay.audit ALTER COLUMN who SET DEFAULT 'bob'`, `DROP TABLE cdc_relay.audit`,
		`CREATE TRIGGER forge BEFORE INSERT ON cdc_relay.audit FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`,
		`INSERT INTO cdc_relay.migration (version) VALUES (1000)`, `DELETE FROM cdc_relay.migration`,
	)
}

// The owner prunes by age, no less than 30 days, however the interval is written; it is recorded.
func TestAuditIsPrunedByAge(t *testing.T) {
	r := setup(t)
	for _, age := range []string{"29 days 23 hours", "31 days", "400 days"} {
		r.exec(`INSERT INTO cdc_relay.audit (slot, system_id, at, action, n, why, result) VALUES ($1, '', now() - $2::text::interval, 'replay', 1, '', $2)`, r.slot, age)
	}
	for _, young := range []string{`'29 days'`, `'0'`, `'-1 day'`, `NULL`, `'-1200 months 36030 days'`} {
		_, err := r.pool.Exec(r.ctx, `SELECT cdc_relay.prune_audit(`+young+`)`)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "22023" {
			t.Errorf("prune_audit(%s): %v", young, err)
		}
	}
	if n := value[int](r, `SELECT cdc_relay.prune_audit('30 days')`); n != 2 {
		t.Errorf("%d entries were pruned, want 2", n)
	}
	who := value[string](r, `SELECT session_user::text`)
	if got := value[string](r, `SELECT string_agg(who || ' ' || action || ' ' || why || ' ' || split_part(result, ' before', 1), ', ' ORDER BY seq) FROM cdc_relay.audit`); got !=
		fmt.Sprintf("%s replay  29 days 23 hours, %[1]s prune older than 30 days 2 entries", who) {
		t.Errorf("the audit says %s", got)
	}
}

// A job is cancelled while the leader makes requests for it: those are cancelled with it, whoever
// cancels, since the second statement sees what the first one has waited for.
func TestCancelSeesWhatTheLeaderMadeMeanwhile(t *testing.T) {
	for _, who := range []string{"", "token ci"} {
		t.Run("by "+who, func(t *testing.T) {
			r := setup(t)
			n := r.put(sample{})
			j := r.start(Bulk{Kind: Discard})
			tx, err := r.pool.Begin(r.ctx)
			r.must(err)
			_, err = tx.Exec(r.ctx, `UPDATE cdc_relay.bulk SET asked = 1`)
			r.must(err)
			_, err = tx.Exec(r.ctx, `INSERT INTO cdc_relay.request (slot, system_id, kind, n, job) SELECT slot, system_id, kind, $1, job FROM cdc_relay.bulk`, n)
			r.must(err)
			cancelled := make(chan error, 1)
			go func() {
				var err error
				j, err = r.admin.Cancel(r.ctx, j.ID, Requester{Who: who})
				cancelled <- err
			}()
			await.Until(t, "the cancel to wait for the leader's transaction", func() bool {
				return value[bool](r, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
			})
			r.must(tx.Commit(r.ctx))
			r.must(<-cancelled)
			if j.State != JobCancelled || j.Cancelled != 1 {
				t.Errorf("the job is %+v", j)
			}
		})
	}
}
