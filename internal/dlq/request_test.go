package dlq

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/event"
	replicationsetup "github.com/cdc-relay/cdc-relay/internal/replication/setup"
)

// carryOut does what the leader's store does of a request, for tests that begin where it ended.
func (r *rig) carryOut(id int64, state, result string) {
	r.t.Helper()
	r.exec(`UPDATE cdc_relay.request SET state = $2, result = $3, done_at = now() WHERE id = $1`, id, state, result)
}

func (r *rig) request(k Kind, n int64) Request {
	r.t.Helper()
	q, err := r.admin.Request(r.ctx, Action{Kind: k, N: n, By: by})
	r.must(err)
	return q
}

func TestRequests(t *testing.T) {
	r := setup(t)
	deadLetter, waits := r.put(sample{}), r.put(sample{of: Deferred})
	q, err := r.admin.Request(r.ctx, Action{Kind: Replay, N: deadLetter, Route: event.Route{Name: []byte("other"), RoutingKey: []byte{}}, By: by})
	r.must(err)
	if q.Kind != Replay || q.N != deadLetter || q.Who != "ann" || q.Why != "a test" || q.State != RequestWaits || q.Again || *q.RouteName != "other" || *q.RoutingKey != "" {
		t.Errorf("the request is %+v", q)
	}
	if got := r.request(Retry, waits); got.State != RequestWaits {
		t.Errorf("the retry is %+v", got)
	}
	if got := value[string](r, `SELECT system_id FROM cdc_relay.request WHERE id = $1`, q.ID); got != r.system() {
		t.Errorf("it is of system %s", got)
	}
	r.carryOut(q.ID, RequestDone, "confirmed")
	list, err := r.admin.Requests(r.ctx, []int64{q.ID + 1, q.ID, 99})
	r.must(err)
	if len(list) != 2 || list[0].ID != q.ID+1 || list[1].State != RequestDone || list[1].Result != "confirmed" || list[1].DoneAt == nil {
		t.Errorf("the requests are %+v", list)
	}
}

// Requests are apart by slot: one that somebody wrote for another slot, or for another system,
// about a row of this one keeps no request about the row away, nor a job, and the row is not shown
// as one that is replayed.
func TestRequestForAnotherSlotHoldsUpNone(t *testing.T) {
	squat := func(r *rig, slot, system string, n int64) {
		r.exec(`INSERT INTO cdc_relay.request (slot, system_id, kind, n) VALUES ($1, $2, 'replay', $3)`, slot, system, n)
	}
	r := setup(t)
	a, b, c, waits := r.put(sample{}), r.put(sample{}), r.put(sample{}), r.put(sample{of: Deferred})
	squat(r, "another", r.system(), a)
	squat(r, r.slot, "another", b)
	squat(r, "another", r.system(), c)
	squat(r, "another", r.system(), waits)
	list, err := r.admin.List(r.ctx, DeadLetters, Filter{State: Replaying}, "", 10)
	r.must(err)
	detail, err := r.admin.Show(r.ctx, DeadLetters, a, false)
	r.must(err)
	if len(list.Rows) != 0 || detail.State != Open {
		t.Errorf("replayed are %+v, and %+v", list.Rows, detail)
	}
	r.must(r.admin.CheckRequest(r.ctx, Action{Kind: Discard, N: a, By: by}))
	for n, k := range map[int64]Kind{a: Discard, b: Replay, waits: Retry} {
		if q := r.request(k, n); q.State != RequestWaits || q.Again || q.Kind != k {
			t.Errorf("the request about %d is %+v", n, q)
		}
	}
	j := r.start(Bulk{Kind: Redact, Filter: Filter{State: Open}})
	r.expand()
	if got, want := r.asked(j.ID), fmt.Sprintf("redact %d", c); got != want {
		t.Errorf("the job asks for %s, want %s", got, want)
	}
	if got := value[int](r, `SELECT count(*) FROM cdc_relay.request WHERE state = 'waiting' AND (slot = 'another' OR system_id = 'another')`); got != 4 {
		t.Errorf("%d of the others wait, want 4", got)
	}
}

// Many operators ask for one dead letter at once: one request is stored, all of them get it.
func TestTwoOperatorsOnOneDeadLetter(t *testing.T) {
	r := setup(t)
	n := r.put(sample{})
	const operators = 8
	got := make([]Request, operators)
	errs := make([]error, operators)
	var all sync.WaitGroup
	for i := range operators {
		all.Go(func() {
			got[i], errs[i] = r.admin.Request(r.ctx, Action{Kind: Replay, N: n, By: Requester{Who: string(rune('a' + i))}})
		})
	}
	all.Wait()
	first := 0
	for i, q := range got {
		r.must(errs[i])
		if q.ID != got[0].ID || q.Who != got[0].Who {
			t.Errorf("operator %d is told of %+v, the first one of %+v", i, q, got[0])
		}
		if !q.Again {
			first++
		}
	}
	if first != 1 || value[int](r, `SELECT count(*) FROM cdc_relay.request`) != 1 {
		t.Errorf("%d requests are new", first)
	}
	_, err := r.admin.Request(r.ctx, Action{Kind: Discard, N: n, By: by})
	var not *NotNow
	if !errors.As(err, &not) || !strings.Contains(err.Error(), "a replay of it waits already") {
		t.Errorf("a discard beside the replay: %v", err)
	}
	if _, err = r.admin.Request(r.ctx, Action{Kind: Replay, N: n, Route: event.Route{Name: []byte("x")}, By: by}); !errors.As(err, &not) {
		t.Errorf("a replay to another place beside it: %v", err)
	}
	r.carryOut(got[0].ID, RequestFailed, "unroutable")
	if again := r.request(Replay, n); again.Again || again.ID == got[0].ID {
		t.Errorf("after it failed: %+v", again)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	r := setup(t)
	open, waits := r.put(sample{}), r.put(sample{of: Deferred})
	sealed, replayed := r.put(sample{sealed: true}), r.put(sample{state: Replayed})
	discarded, purged := r.put(sample{state: Discarded}), r.put(sample{state: Purged})
	copied := r.put(sample{})
	r.exec(`UPDATE cdc_relay.dead_letter SET system_id = 'of the original' WHERE n = $1`, copied)
	for _, c := range []struct {
		kind Kind
		n    int64
		want string // "" is allowed
	}{
		{Replay, 99, "there is no dead letter 99 of slot"},
		{Retry, 99, "there is no deferred row 99 of slot"},
		{Replay, waits, "it is deferred: cdc-relay deferred show 2"},
		{Purge, waits, "it is deferred: cdc-relay deferred show 2"},
		{ToDeadLetter, open, "it is a dead letter: cdc-relay dead-letters show 1"},
		{Replay, replayed, "dead letter 4 was replayed already, at 2026-11-20T12:00:04Z"},
		{Discard, discarded, "dead letter 5 was discarded already"},
		{Purge, purged, "dead letter 6 was purged already"},
		{Redact, sealed, "dead letter 3 was redacted already"},
		{Replay, discarded, "replay 5: it is discarded"},
		{Discard, replayed, "discard 4: it is replayed"},
		{Redact, purged, "redact 6: it is purged"},
		{Replay, sealed, "there is nothing left to publish"},
		{Replay, copied, "it is of another system"},
		{Purge, copied, "it is of another system"},
		{Discard, open, ""},
		{Discard, sealed, ""},
		{Redact, replayed, ""},
		{Purge, discarded, ""},
	} {
		before := r.contents()
		_, err := r.admin.Request(r.ctx, Action{Kind: c.kind, N: c.n, By: by})
		switch {
		case c.want == "":
			r.must(err)
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s %d: %v, want %s", c.kind, c.n, err, c.want)
		case r.contents() != before:
			t.Errorf("%s %d is refused and changes something", c.kind, c.n)
		}
	}
	page, err := r.admin.List(r.ctx, DeadLetters, Filter{}, "", 100)
	r.must(err)
	if !page.Rows[0].Copied || page.Rows[1].Copied {
		t.Errorf("the copied row is not marked: %+v", page.Rows[:2])
	}
}

// What waits can be taken back; what was done, or was taken back already, stays as it is.
func TestWithdraw(t *testing.T) {
	r := setup(t)
	n := r.put(sample{})
	q := r.request(Replay, n)
	for range 2 {
		got, err := r.admin.Withdraw(r.ctx, q.ID, Requester{Who: "eve", Why: "the wrong one"})
		r.must(err)
		if got.ID != q.ID || got.State != RequestCancelled || got.DoneAt == nil {
			t.Errorf("the request is %+v", got)
		}
	}
	if got := value[string](r, `SELECT string_agg(who || ' ' || action || ' ' || n || ' ' || why || ' ' || result || ' ' || request, ', ') FROM cdc_relay.audit`); got != fmt.Sprintf("eve cancel %d the wrong one replay is not done %d", n, q.ID) {
		t.Errorf("the audit says %s", got)
	}
	again := r.request(Discard, n)
	r.carryOut(again.ID, RequestDone, "discarded")
	got, err := r.admin.Withdraw(r.ctx, again.ID, by)
	r.must(err)
	if got.State != RequestDone || value[int](r, `SELECT count(*) FROM cdc_relay.audit`) != 1 {
		t.Errorf("a request that was done is %+v", got)
	}
	other := New(r.pool, "another")
	var missing *NotFound
	if _, err := other.Withdraw(r.ctx, again.ID, by); !errors.As(err, &missing) || !strings.Contains(err.Error(), "there is no request") {
		t.Errorf("a request of another slot: %v", err)
	}
}

// Attacks on the audit, by an operator with the rights of deploy/sql/03-operator.sql and by the
// relay's role.

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
