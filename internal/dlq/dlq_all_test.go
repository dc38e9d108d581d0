//go:build testall

package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

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

// A row of another system says nothing of an event here: nobody sends it.
func TestEventOfACopy(t *testing.T) {
	r := withSlot(t)
	id, _ := r.insert()
	foreign := []int64{r.put(sample{id: "copied", of: Deferred}), r.put(sample{id: "both"}), r.put(sample{id: id, of: Deferred})}
	r.exec(`UPDATE cdc_relay.retry SET system_id = '7'`)
	r.exec(`UPDATE cdc_relay.dead_letter SET system_id = '7'`)
	own := r.put(sample{id: "both"})
	for _, w := range []struct{ id, state, why string }{
		{"copied", EventNotThere, fmt.Sprintf("row %d of it is of another system", foreign[0])},
		{"both", EventDeadLetter, fmt.Sprintf("dead letter %d: open", own)},
		{id, EventNotSeen, fmt.Sprintf("row %d of it is of another system", foreign[2])},
	} {
		if e := r.wantEvent(w.id, nil, w.state, w.why); len(e.Rows) == 0 {
			t.Errorf("%s is %+v, without its row", w.id, e)
		}
	}
}

// The slot's own position tells that it is past a row: at the end of the WAL at once, and otherwise
// once the server has moved catalog_xmin.
func TestEventBehindTheSlot(t *testing.T) {
	r := withSlot(t)
	id, _ := r.insert()
	r.advance(id)
	await.Until(t, "catalog_xmin to pass the row, behind which the WAL goes on", func() bool {
		r.exec(`CHECKPOINT`)
		r.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.slot)
		r.insert()
		return r.event(id, nil).State == EventUnknown
	}, func() any { return r.event(id, nil) })
	later, _ := r.insert()
	r.wantEvent(later, nil, EventNotSeen, "")
}

// silent is a pool of one connection whose server was there and does not answer any more.
func (r *rig) silent() *pgxpool.Pool {
	r.t.Helper()
	c := r.pool.Config()
	u, err := url.Parse(c.ConnString())
	r.must(err)
	proxy, err := netproxy.Start(u.Host)
	r.must(err)
	u.Host = proxy.Addr()
	c, err = pgxpool.ParseConfig(u.String())
	r.must(err)
	c.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(r.ctx, c)
	r.must(err)
	r.t.Cleanup(pool.Close)
	r.t.Cleanup(proxy.Close) // before the pool, which would wait
	r.must(pool.Ping(r.ctx))
	proxy.Hold(netproxy.Down)
	return pool
}

// A server that went silent keeps neither the leader nor the mirror: each statement ends by itself.
func TestSilentServer(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	j := r.start(Bulk{Kind: Discard})
	l := r.leader()
	jobs, err := l.jobs(r.ctx)
	r.must(err)
	if len(jobs) != 1 || jobs[0].id != j.ID {
		t.Fatalf("the jobs are %+v", jobs)
	}
	m := Term{Slot: r.slot, SystemID: r.system(), Epoch: r.epoch()}
	for name, ask := range map[string]func(ctx context.Context) error{
		"jobs":          func(ctx context.Context) error { _, err := l.jobs(ctx); return err },
		"advance":       func(ctx context.Context) error { return l.advance(ctx, &jobs[0], 1) },
		"forgetOldJobs": l.forgetOldJobs,
		"dead_letters":  func(ctx context.Context) error { _, err := m.Unmirrored(ctx, 0, 1, 1); return err },
		"note":          func(ctx context.Context) error { return m.NoteMirrored(ctx, []int64{1}) },
	} {
		pool := r.silent()
		l.cfg.DB, l.cfg.patience = pool, 200*time.Millisecond
		m.DB, m.patience = pool, 200*time.Millisecond
		if err := ask(r.ctx); err == nil || r.ctx.Err() != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBulkThatMatchesNothing(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	before := r.contents()
	for _, f := range []Filter{{Key: []byte("nobody's")}, {Error: "never said"}, {State: Replaying}} {
		if j := r.start(Bulk{Kind: Replay, Filter: f}); j.ID != 0 || j.Matched != 0 || j.State != JobDone {
			t.Errorf("%+v makes a job: %+v", f, j)
		}
	}
	if r.contents() != before {
		t.Error("something was written")
	}
}

func TestOldJobsAreForgotten(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	j, young := r.start(Bulk{Kind: Discard}), r.start(Bulk{Kind: Discard})
	r.exec(`UPDATE cdc_relay.bulk SET state = 'done', closed_at = now() - CASE job WHEN $1 THEN interval '61 minutes' ELSE interval '59 minutes' END`, j.ID)
	calls := 0
	l := r.leader()
	l.cfg.Expire = func(context.Context) (int, error) { calls++; return 2 - calls, nil }
	for range 3 {
		_, err := l.once(r.ctx, time.Now())
		r.must(err)
	}
	jobs, err := r.admin.Jobs(r.ctx, 10)
	r.must(err)
	if len(jobs) != 1 || jobs[0].ID != young.ID || calls != 2 {
		t.Errorf("%d calls, left are %+v", calls, jobs)
	}
}

// A dead letter's replay is refused after a job was asked for. It is the same dead letter, and was
// there; but not one whose last refusal said that.
func TestBulkAndAReplayRefusedSince(t *testing.T) {
	r := setup(t)
	replay := r.request(Replay, r.put(sample{class: "transient", reason: "nacked", words: "no"}))
	var jobs []Job
	for _, f := range []Filter{{Error: "too_large"}, {Error: "body of 5 bytes"}, {Class: "permanent"}} {
		r.put(sample{}) // so that there is one
		jobs = append(jobs, r.start(Bulk{Kind: Discard, Filter: f}))
	}
	r.exec(`DELETE FROM cdc_relay.dead_letter WHERE n > $1`, replay.N)
	r.exec(`UPDATE cdc_relay.dead_letter SET class = 'permanent', reason = 'too_large', error = 'body of # bytes'`)
	r.carryOut(replay.ID, RequestFailed, "too_large: body of 5 bytes")
	again := r.start(Bulk{Kind: Discard, Filter: Filter{Error: "too_large"}})
	r.expand()
	for _, j := range jobs {
		if got := r.asked(j.ID); got != "" {
			t.Errorf("job %d asks for %s", j.ID, got)
		}
	}
	if got := r.asked(again.ID); got != fmt.Sprint("discard ", replay.N) {
		t.Errorf("one that was asked for since asks for %s", got)
	}
}

// A row about which somebody asked already is left to that request.
func TestBulkBesideARequest(t *testing.T) {
	r := setup(t)
	a, b := r.put(sample{}), r.put(sample{})
	r.request(Redact, a)
	j := r.start(Bulk{Kind: Discard})
	r.expand()
	j, err := r.admin.Job(r.ctx, j.ID)
	r.must(err)
	if got := r.asked(j.ID); got != fmt.Sprint("discard ", b) || j.Asked != 1 || j.Skipped != 1 {
		t.Errorf("it asks for %s: %+v", got, j)
	}
}

func TestPagesOfABulk(t *testing.T) {
	r := setup(t)
	for range 7 {
		r.put(sample{of: Deferred, key: "1"})
		r.put(sample{key: "1"})
	}
	j := r.start(Bulk{Kind: Purge, Filter: Filter{Key: []byte("1")}})
	l := r.leader()
	for range 100 {
		jobs, err := l.jobs(r.ctx)
		r.must(err)
		if jobs[0].state != "asking" {
			break
		}
		r.must(l.advance(r.ctx, &jobs[0], 3))
	}
	if got := r.asked(j.ID); got != "purge 1, purge 3, purge 5, purge 7, purge 9, purge 11, purge 13, purge 2, purge 4, purge 6, purge 8, purge 10, purge 12, purge 14" {
		t.Errorf("it asks for %s", got)
	}
}

// The rate is that of requests that are made, whatever time passed before: no leader for an hour is
// no hour's worth at once.
func TestRate(t *testing.T) {
	l := NewLeader(LeaderConfig{})
	now := time.Now()
	j := &job{id: 1, rate: 10}
	if n := l.allowance(j, now); n != 2 {
		t.Errorf("at first %d, want a tick's worth", n)
	}
	sum := 0
	for range 50 {
		now = now.Add(100 * time.Millisecond)
		sum += max(l.allowance(j, now), 0)
	}
	if sum != 50 {
		t.Errorf("%d in five seconds, want 50", sum)
	}
	if n := l.allowance(j, now.Add(time.Hour)); n != 10 {
		t.Errorf("%d after an hour, want a second's worth", n)
	}
	j.waiting = 10
	if n := l.allowance(j, now.Add(2*time.Hour)); n > 0 {
		t.Errorf("%d while ten wait, want none", n)
	}
	slow := &job{id: 2, rate: 1}
	sum = 0
	for range 100 {
		now = now.Add(100 * time.Millisecond)
		sum += max(l.allowance(slow, now), 0)
	}
	if sum < 9 || sum > 11 {
		t.Errorf("%d in ten seconds at one per second", sum)
	}
	if n := l.allowance(&job{id: 3}, now); n != pageSize {
		t.Errorf("without a rate %d, want a page", n)
	}
	if n := l.allowance(&job{id: 3, waiting: maxAhead}, now); n > 0 {
		t.Errorf("with all waiting that may: %d, want none", n)
	}
}

// What an operator may write in the place of a filter ends that job alone. The others go on, and so
// does the purge by age.
func TestBrokenFilter(t *testing.T) {
	r := setup(t)
	n := r.put(sample{})
	for _, filter := range []string{`'{'`, `'[]'`, "NULL"} {
		r.exec(`INSERT INTO cdc_relay.bulk (slot, system_id, kind, filter, reason, matched, in_dead_letters) VALUES ($1, $2, 'purge', `+filter+`, '', 1, true)`, r.slot, r.system())
	}
	good := r.start(Bulk{Kind: Discard})
	l, expired := r.leader(), 0
	l.cfg.Expire = func(context.Context) (int, error) { expired++; return 0, nil }
	_, err := l.once(r.ctx, time.Now())
	r.must(err)
	if got := r.asked(good.ID); got != fmt.Sprint("discard ", n) || expired != 1 {
		t.Errorf("asked %q, expired %d times", got, expired)
	}
	if got := value[string](r, `SELECT string_agg(job || ' ' || state, ', ' ORDER BY job) FROM cdc_relay.bulk WHERE closed_at IS NOT NULL`); got != "1 cancelled, 2 cancelled, 3 cancelled" {
		t.Errorf("the jobs are %s", got)
	}
	const line = "(the relay) cancel its filter cannot be read job "
	r.wantAudit(line + "1 t, " + line + "2 t, " + line + "3 t")
}

// The statement of a former leader meets the next one's raise of the epoch: it waits for that, and
// then changes nothing.
func TestLeaderFencedMeanwhile(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	j := r.start(Bulk{Kind: Discard})
	const raise = `UPDATE cdc_relay.slots SET epoch = epoch + 1`
	l := r.leader()
	jobs, err := l.jobs(r.ctx)
	r.must(err)
	wantFenced(t, r.beside(raise, func() error { return l.advance(r.ctx, &jobs[0], 10) }))
	m := r.mirror(&broker{})
	wantFenced(t, r.beside(raise, func() error { return m.cfg.Store.NoteMirrored(r.ctx, []int64{1}) }))
	if got := r.asked(j.ID); got != "" || value[bool](r, `SELECT mirrored_at IS NOT NULL FROM cdc_relay.dead_letter`) {
		t.Errorf("it has asked for %q, or noted the dead letter", got)
	}
}

// A job is cancelled while a page of it is asked for: what the operator was told is cancelled has
// no request that waits.
func TestCancelledMeanwhile(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	j := r.start(Bulk{Kind: Discard})
	l := r.leader()
	jobs, err := l.jobs(r.ctx)
	r.must(err)
	r.must(r.beside(`UPDATE cdc_relay.bulk SET state = 'cancelled', closed_at = now(), filter = NULL`, func() error { return l.advance(r.ctx, &jobs[0], 10) }))
	j, err = r.admin.Job(r.ctx, j.ID)
	r.must(err)
	if got := r.asked(j.ID); got != "" || j.State != JobCancelled {
		t.Errorf("it asks for %s: %+v", got, j)
	}
}

// The answer to a page was lost, and it is asked for again when its requests have been carried out:
// they are made once.
func TestPageIsAskedForOnce(t *testing.T) {
	r := setup(t)
	for range 5 {
		r.put(sample{})
	}
	j := r.start(Bulk{Kind: Redact})
	l := r.leader()
	jobs, err := l.jobs(r.ctx)
	r.must(err)
	again := jobs[0]
	r.must(l.advance(r.ctx, &jobs[0], 3))
	r.exec(`UPDATE cdc_relay.request SET state = 'done', done_at = now()`)
	r.must(l.advance(r.ctx, &again, 3))
	r.expand()
	if got := r.asked(j.ID); got != "redact 1, redact 2, redact 3, redact 4, redact 5" {
		t.Errorf("it asks for %s", got)
	}
}

// What any event may have as its key: it is found, shown, and does not break the answer.
func TestKeysOfAnyKind(t *testing.T) {
	r := setup(t)
	for _, key := range []string{"a\x00b", strings.Repeat("k", 60<<10), "\\x00ff", "ключ", "\x1b[2J", "\xff\xfe"} {
		n := r.put(sample{key: key})
		w := r.put(sample{of: Deferred, key: key})
		r.wantList(DeadLetters, Filter{Key: []byte(key)}, n)
		r.wantList(Deferred, Filter{Key: []byte(key)}, w)
		shown, err := r.admin.Show(r.ctx, DeadLetters, n, true)
		r.must(err)
		if *shown.Key != key {
			t.Errorf("key %.20q is shown as %.20q", key, *shown.Key)
		}
		job, err := r.admin.Start(r.ctx, Bulk{Kind: Purge, Filter: Filter{Key: []byte(key)}, By: by})
		r.must(err)
		r.expand()
		if got := value[string](r, `SELECT string_agg(n::text, ' ' ORDER BY id) FROM cdc_relay.request WHERE job = $1`, job.ID); got != both(w, n) {
			t.Errorf("the purge of %.20q asks about %s, want %s", key, got, both(w, n))
		}
	}
}

func both(a, b int64) string { return fmt.Sprint(a, " ", b) }

// An index has the beginning of a long value: rows that differ behind it are distinguished.
func TestFiltersOnLongValues(t *testing.T) {
	r := setup(t)
	long := strings.Repeat("x", 300)
	a := r.put(sample{id: long + "a", key: long + "a", aggregate: long + "a", kind: long + "a", name: long, routingKey: "a"})
	b := r.put(sample{id: long + "b", key: long + "b", aggregate: long + "b", kind: long + "b", name: long, routingKey: "b", class: "transient"})
	for suffix, want := range map[string]int64{"a": a, "b": b} {
		value := long + suffix
		for _, f := range []Filter{
			{ID: []byte(value)},
			{Key: []byte(value)},
			{Aggregate: []byte(value)},
			{Type: []byte(value)},
			{Destination: []byte(long + "/" + suffix)},
			{Destination: []byte(long + "/" + suffix), State: Open},
		} {
			r.wantList(DeadLetters, f, want)
		}
	}
	r.wantList(DeadLetters, Filter{Destination: []byte(long)}, b, a)
	r.wantList(DeadLetters, Filter{Destination: []byte(long + "/c")})
}

// A page ends among dead letters of one moment, and new ones come in between: each is seen once, in
// order.
func TestPagesOverEqualTimes(t *testing.T) {
	r := setup(t)
	var want []int64
	for range 10 {
		want = append([]int64{r.put(sample{at: r.at})}, want...)
	}
	r.wantList(DeadLetters, Filter{}, want...)
	r.wantList(DeadLetters, Filter{Error: "body"}, want...)
	first, err := r.admin.List(r.ctx, DeadLetters, Filter{}, "", 4)
	r.must(err)
	r.put(sample{at: r.at})
	r.put(sample{at: r.at.Add(time.Hour)})
	second, err := r.admin.List(r.ctx, DeadLetters, Filter{}, first.Next, 4)
	r.must(err)
	if second.Rows[0].N != want[4] || second.Rows[3].N != want[7] {
		t.Errorf("the second page is %+v, want %v", second.Rows, want[4:8])
	}
}

// A dead letter may be dead because of what it is: its copy carries nothing that was too long, and
// says so where there is room.
func TestMirrorOfUnsendableEvents(t *testing.T) {
	r := setup(t)
	long := strings.Repeat("ж", 128<<10)
	r.put(sample{id: long, key: long, aggregate: long, kind: long, name: long, raw: []byte(`{"id": null}`)})
	b := &broker{}
	_, err := r.mirror(b).once(r.ctx, time.Now())
	r.must(err)
	ev := b.got[0]
	if string(ev.ID) != ev.Position.String() || ev.Key != nil || ev.Aggregate != nil || ev.Type != nil || len(ev.Headers) > 8<<10 || string(ev.Payload) != `{"id": null}` {
		t.Errorf("the message is %.300q", fmt.Sprintf("%+v", ev))
	}
	var headers map[string]any
	r.must(json.Unmarshal(ev.Headers, &headers))
	if key := headers["event_key"].(string); !strings.HasPrefix(long, strings.TrimSuffix(key, "…")) || key == "…" {
		t.Errorf("the key is %q", key)
	}
}

// Large dead letters are read a few at a time, and one that is larger than that alone.
func TestMirrorIsBoundedByBytes(t *testing.T) {
	r := setup(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		r.put(sample{id: id})
	}
	r.exec(`UPDATE cdc_relay.dead_letter SET bytes = CASE n WHEN 1 THEN 5000000 ELSE 2500000 END`)
	b := &broker{}
	m := r.mirror(b)
	for _, want := range []string{"a", "b c", "d", ""} {
		_, err := m.once(r.ctx, time.Now())
		r.must(err)
		if got := b.ids(); got != want {
			t.Errorf("mirrored at once are %q, want %q", got, want)
		}
	}
}

// Behind any number of dead letters that are refused for themselves the others are mirrored, and
// those are tried again in the next walk.
func TestMirrorThatRefusesManyDeadLetters(t *testing.T) {
	r := setup(t)
	const bad = 2*mirrorRows + 1
	for range bad {
		r.put(sample{key: "bad"})
	}
	r.put(sample{key: "good"})
	tries := map[string]int{}
	b := &broker{refuse: func(ev *event.Event) sink.Outcome {
		tries[string(ev.Key)]++
		if string(ev.Key) == "bad" {
			return sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}}
		}
		return sink.Outcome{State: sink.Confirmed}
	}}
	m := r.mirror(b)
	now := time.Now()
	for range 5 {
		_, err := m.once(r.ctx, now)
		r.must(err)
	}
	if tries["good"] != 1 || tries["bad"] != bad {
		t.Errorf("tries of the dead letters: %v, want one of each of %d", tries, bad+1)
	}
	b.refuse = nil
	for range 5 {
		_, err := m.once(r.ctx, now.Add(walkPause))
		r.must(err)
	}
	if left := value[int](r, `SELECT count(*) FROM cdc_relay.dead_letter WHERE mirrored_at IS NULL`); left > 0 {
		t.Errorf("%d dead letters are not mirrored after the fix", left)
	}
}

// One dead letter that the mirror's broker refuses for itself does not hold up the others, and is
// tried again.
func TestMirrorThatRefusesOneDeadLetter(t *testing.T) {
	r := setup(t)
	for _, id := range []string{"bad", "b", "c"} {
		r.put(sample{id: id})
	}
	failed := 0
	bk := &broker{refuse: func(ev *event.Event) sink.Outcome {
		if string(ev.ID) == "bad" {
			return sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.TooLarge}}
		}
		return sink.Outcome{State: sink.Confirmed}
	}}
	m := r.mirror(bk)
	m.cfg.Failed = func(n int) { failed += n }
	now := time.Now()
	step := func(after time.Duration, want string) {
		t.Helper()
		now = now.Add(after)
		_, err := m.once(r.ctx, now)
		r.must(err)
		if got := bk.ids(); got != want {
			t.Errorf("offered are %q, want %q", got, want)
		}
	}
	step(0, "bad b c")
	step(0, "")
	r.put(sample{id: "d"})
	step(0, "d")
	step(walkPause-time.Second, "")
	step(time.Second, "bad")
	step(0, "")
	step(walkPause, "bad")
	for _, id := range []string{"e", "f"} { // new ones each time, so this walk never sees the end
		r.put(sample{id: id})
		step(maxWalk/2-time.Second, id)
	}
	bk.refuse = nil
	r.put(sample{id: "g"})
	step(2*time.Second, "bad g")
	step(walkPause, "")
	if failed != 3 {
		t.Errorf("%d refusals are counted", failed)
	}
}

// While the mirror's exchange is missing, or the broker away, it waits longer and longer, and
// nothing is noted.
func TestMirrorWithoutItsDestination(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	for _, o := range []sink.Outcome{
		{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Destination, Reason: sink.NoExchange}}, {State: sink.Unknown}, {State: sink.Unsent},
	} {
		b := &broker{refuse: func(*event.Event) sink.Outcome { return o }}
		m := r.mirror(b)
		var waits []time.Duration
		for range 8 {
			wait, err := m.once(r.ctx, time.Now())
			r.must(err)
			waits = append(waits, wait)
		}
		if len(b.got) != 8 || waits[0] != time.Second || waits[1] != 2*time.Second || waits[7] != time.Minute {
			t.Errorf("%v: %d tries, waits %v", o.State, len(b.got), waits)
		}
		b.refuse = nil
		if _, err := m.once(r.ctx, time.Now()); err != nil || m.backoff != 0 {
			t.Errorf("after it is fixed: %v, backoff %s", err, m.backoff)
		}
		r.exec(`UPDATE cdc_relay.dead_letter SET mirrored_at = NULL`)
	}
}

func TestWithoutSchema(t *testing.T) {
	r := setup(t)
	r.exec(`DROP SCHEMA cdc_relay CASCADE`)
	_, err := r.admin.List(r.ctx, DeadLetters, Filter{}, "", 1)
	_, err2 := r.admin.Request(r.ctx, Action{Kind: Replay, N: 1, By: by})
	_, err3 := r.admin.Jobs(r.ctx, 1)
	for _, err := range []error{err, err2, err3} {
		if !errors.Is(err, ErrNoSchema) {
			t.Errorf("got %v", err)
		}
	}
}

func TestShowWhatARowWaitsFor(t *testing.T) {
	r := setup(t)
	first, second, third := r.put(sample{of: Deferred}), r.put(sample{of: Deferred}), r.put(sample{of: Deferred})
	other := r.put(sample{of: Deferred})
	r.exec(`UPDATE cdc_relay.retry SET ordering_group = 2 WHERE n = $1`, other)
	for n, want := range map[int64]int64{first: 0, second: first, third: first, other: 0} {
		d, err := r.admin.Show(r.ctx, Deferred, n, true)
		r.must(err)
		if got := d.Behind; got == nil && want != 0 || got != nil && *got != want {
			t.Errorf("row %d is behind %v, want %d", n, got, want)
		}
	}
}

// Ids of any type are looked for as that type, so that its index serves; what is no value of it is
// nobody's. A longer one is another id, and what is found has the form of its row.
func TestEventsWithIDsOfOtherTypes(t *testing.T) {
	r := setup(t)
	for kind, id := range map[string]string{"bigint": "17", "text": "a'b", "bytea": `\x00ff`, "json": `{"a":1}`, "timestamptz": "2026-11-20 12:00:00+00", "char(8)": "abc", "varchar(3)": "abc"} {
		r.exec(`DROP TABLE IF EXISTS public.other`)
		r.exec(`CREATE TABLE public.other ("The Id" ` + kind + `)`)
		r.exec(`INSERT INTO public.other VALUES ($1::text::`+kind+`)`, id)
		for wanted, state := range map[string]string{id: EventUnknown, id + "      x": EventNotThere} {
			e, err := r.admin.Event(r.ctx, wanted, []Outbox{{Schema: "public", Table: "other", ID: []string{"The Id"}, Transaction: []string{"tx"}}}, says(Relay{}))
			if err != nil || e.State != state || state == EventUnknown && e.ID != strings.TrimRight(value[string](r, `SELECT format('%s', "The Id") FROM public.other`), " ") {
				t.Errorf("%s %s is %+v, %v; want %s", kind, wanted, e, err, state)
			}
		}
	}
}

// Columns that end in the middle: whatever is there is shown, and nothing breaks.
func TestColumnsThatAreCut(t *testing.T) {
	whole := []byte("\x01a\x03bc\x01d\x00\x00\x01")
	for i := range whole {
		splitColumns(whole[:i])
	}
	if got := splitColumns(whole); len(got) != 3 || *got[2].Value.Text != "" || got[2].Name != "" {
		t.Errorf("the columns are %+v", got)
	}
	for _, odd := range []string{"\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a", "\x01a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x05abc"} {
		if got := splitColumns([]byte(odd)); len(got) != 0 {
			t.Errorf("%q is %+v", odd, got)
		}
	}
}
