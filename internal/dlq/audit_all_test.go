//go:build testall

package dlq

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
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
