// Attacks on the audit, by an operator with the rights of deploy/sql/03-operator.sql and by the
// relay's role.

package dlq

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
