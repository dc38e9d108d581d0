package retention

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// TestPartitions: each is looked at, new ones too, and one that is gone is no failure.
func TestPartitions(t *testing.T) {
	r := newRig(t, 0, partitioned)
	r.put("a", "b")
	r.settle(r.slot)
	r.want(r.left())
	r.exec(`DROP TABLE public.new; CREATE TABLE public.newer PARTITION OF public.outbox FOR VALUES FROM ('b') TO (MAXVALUE)`)
	r.put("a", "c")
	r.settle(r.slot)
	// the server's counters may be late
	await.Until(t, "what is written since the pass before to be deleted", func() bool {
		r.must(r.pass(r.ctx))
		return len(r.ids()) == 0
	})
	if len(r.leaves) != 2 {
		t.Errorf("%d partitions are known, want 2", len(r.leaves))
	}
	r.exec(`DROP TABLE public.outbox`)
	r.must(r.pass(r.ctx))
}

// TestLockedRowsAreLeftOut: what somebody works with is deleted once he is done.
func TestLockedRowsAreLeftOut(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.put("gone", "locked", "updated")
	r.settle(r.slot)
	tx, err := r.pool.Begin(r.ctx)
	r.must(err)
	defer tx.Rollback(r.ctx)
	_, err = tx.Conn().PgConn().Exec(r.ctx, `SELECT FROM public.outbox WHERE id = 'locked' FOR KEY SHARE; UPDATE public.outbox SET at = now() WHERE id = 'updated'`).ReadAll()
	r.must(err)
	r.want(r.left(), "locked", "updated")
	if z := r.onlyZone(); z.above != 0 || !z.due.Before(time.Now().Add(time.Hour)) {
		t.Errorf("rows that are locked are looked at again at %s, above %d", z.due, z.above)
	}
	r.must(tx.Commit(r.ctx))
	r.want(r.left(), "updated") // by a transaction that is not settled
}

// TestLockedTableIsLeftOut: nobody waits behind the relay, which would wait behind him.
func TestLockedTableIsLeftOut(t *testing.T) {
	r := newRig(t, 0, partitioned)
	r.put("a", "b")
	r.settle(r.slot)
	tx, err := r.pool.Begin(r.ctx)
	r.must(err)
	defer tx.Rollback(r.ctx)
	// as CREATE TRIGGER does
	_, err = tx.Exec(r.ctx, `LOCK TABLE public."Old" IN SHARE ROW EXCLUSIVE MODE`)
	r.must(err)
	if err := r.runPass(); !sqlClass(err, "55P03") {
		t.Errorf("the pass ends with %v", err)
	}
	r.want(r.ids(), "a")
	if r.logs.Len() > 0 {
		t.Errorf("it is logged: %v", r.logs.All())
	}
	r.must(tx.Rollback(r.ctx))
	r.want(r.left())
}

// TestBatches: a transaction deletes a thousand rows at most.
func TestBatches(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	most, all := 0, 0
	r.cfg.Deleted = func(rows int) { most, all = max(most, rows), all+rows }
	r.exec(`INSERT INTO public.outbox SELECT i::text FROM generate_series(1, 3500) i`)
	r.settle(r.slot)
	r.want(r.left())
	if most > batchRows || all != 3500 {
		t.Errorf("%d rows are deleted, %d at once", all, most)
	}
}

// as gives the Retention a pool of a role that has the rights of the statements.
func (r *rig) as(statements string) {
	r.t.Helper()
	role := "role_" + r.slot
	r.exec(`CREATE ROLE ` + role + ` LOGIN; GRANT USAGE ON SCHEMA cdc_relay TO ` + role + `; GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA cdc_relay TO ` + role + `;` +
		strings.ReplaceAll(statements, "$", role))
	r.t.Cleanup(func() {
		_, _ = r.pool.Exec(context.Background(), `DROP OWNED BY `+role)
		_, _ = r.pool.Exec(context.Background(), `DROP ROLE `+role)
	})
	cfg := r.pool.Config()
	before := cfg.BeforeConnect
	cfg.BeforeConnect = func(ctx context.Context, cc *pgx.ConnConfig) error {
		err := before(ctx, cc)
		cc.User = role
		return err
	}
	pool, err := pgxpool.NewWithConfig(r.ctx, cfg)
	r.must(err)
	r.t.Cleanup(pool.Close)
	r.cfg.Pool = pool
}

// TestRights: of a table that may not be deleted from nothing is deleted, others are, and check
// says what is missing.
func TestRights(t *testing.T) {
	const needed = `GRANT SELECT, DELETE, UPDATE (id) ON public."Old", public.new TO $; GRANT SELECT ON public.outbox TO $`
	r := newRig(t, 0, partitioned)
	r.as(needed)
	r.put("a", "b")
	r.settle(r.slot)
	r.exec(`REVOKE DELETE ON public."Old" FROM role_` + r.slot)
	for range 2 {
		if err := r.runPass(); !sqlClass(err, "42501") {
			t.Errorf("the pass ends with %v", err)
		}
	}
	r.want(r.ids(), "a")
	if r.logs.Len() != 1 || r.logs.All()[0].ContextMap()["fix"] == nil {
		t.Errorf("it is logged %d times, want once: %v", r.logs.Len(), r.logs.All())
	}
	if z := r.Snapshot(); z.Error == "" || z.Overdue.IsZero() {
		t.Errorf("the status is %+v", z)
	}
	r.problem("lacks DELETE", `DELETE, UPDATE (id) ON public."Old"`)
	r.exec(`GRANT DELETE ON public."Old" TO role_` + r.slot)
	r.want(r.left())
	r.problem("")
}

// TestForeignCodeDoesNotRun: what a DELETE would run of the table's owner is refused.
func TestForeignCodeDoesNotRun(t *testing.T) {
	for name, tc := range map[string]struct{ sql, said string }{
		"trigger": {`CREATE TRIGGER t BEFORE DELETE ON public.outbox FOR EACH ROW EXECUTE FUNCTION public.bad()`, `trigger t for DELETE`},
		"trigger of a parent": {`CREATE TABLE public.parent (LIKE public.outbox) PARTITION BY RANGE (id); ALTER TABLE public.parent ATTACH PARTITION public.outbox DEFAULT;
			CREATE TRIGGER t AFTER DELETE ON public.parent FOR EACH ROW EXECUTE FUNCTION public.bad()`, `trigger t for DELETE`},
		"rule":    {`CREATE RULE r AS ON DELETE TO public.outbox DO ALSO SELECT public.loud()`, `rule r for DELETE`},
		"cascade": {`ALTER TABLE public.outbox ADD PRIMARY KEY (id); CREATE TABLE public.details (id text REFERENCES public.outbox ON DELETE CASCADE)`, `whose rows a DELETE would change`},
		"index":   {`CREATE INDEX ON public.outbox (public.loud())`, `function public.loud()`},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			r := newRig(t, 0, outboxTable)
			r.exec(`SET search_path = public; CREATE FUNCTION loud() RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RAISE 'loud'; END $$;
				CREATE FUNCTION bad() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'bad'; END $$`)
			if name == "index" {
				r.exec(`CREATE OR REPLACE FUNCTION public.loud() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'`)
			}
			r.exec(tc.sql)
			r.as(`GRANT USAGE ON SCHEMA public TO $; GRANT SELECT, DELETE, UPDATE (id) ON public.outbox TO $; CREATE ROLE owner_$; ALTER FUNCTION public.bad OWNER TO owner_$; ALTER FUNCTION public.loud OWNER TO owner_$`)
			t.Cleanup(func() {
				_, _ = r.pool.Exec(context.Background(), `ALTER FUNCTION public.bad OWNER TO CURRENT_USER; ALTER FUNCTION public.loud OWNER TO CURRENT_USER`)
				_, _ = r.pool.Exec(context.Background(), `DROP ROLE owner_role_`+r.slot)
			})
			r.put("kept")
			r.settle(r.slot)
			if err := r.runPass(); err == nil || !strings.Contains(err.Error(), tc.said) {
				t.Errorf("the pass ends with %v, want %q", err, tc.said)
			}
			r.want(r.ids(), "kept")
			r.problem(tc.said)
		})
	}
}

// problem wants problems that each have one of the texts, or none if the first is empty.
func (r *rig) problem(texts ...string) {
	r.t.Helper()
	list, err := Examine(r.ctx, r.cfg.Pool, r.slot, "p", r.cfg.Tables, r.cfg.Keep)
	r.must(err)
	said := ""
	for _, p := range list {
		if !p.Warn || slices.Contains(texts, "warn") {
			said += p.What + "; " + p.Fix + "\n"
		}
	}
	for _, text := range texts {
		if text != "warn" && !strings.Contains(said, text) || text == "" && said != "" {
			r.t.Errorf("check says %q, want %q", said, text)
		}
	}
}

// TestExamine: what check says beside rights.
func TestExamine(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.problem("")
	r.exec(`CREATE PUBLICATION other FOR TABLE public.outbox`)
	r.problem("publication other publishes deletes of outbox, which has no replica identity", "REPLICA IDENTITY FULL")
	r.exec(`ALTER TABLE public.outbox REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE public.outbox`)
	r.problem("")
	r.problem("warn", "publication p publishes deletes")
	r.addSlot("second")
	r.problem("warn", "until these slots, which send the same tables, have settled it: second")
	r.exec(`ALTER TABLE public.outbox ADD PRIMARY KEY (id); CREATE TABLE public.details (id text REFERENCES public.outbox)`)
	r.problem("warn", "rows that it refers to cannot be deleted")
}

// TestAgeIsKnown: without a column of a time and commit timestamps there is no age.
func TestAgeIsKnown(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	for keep, columns := range map[time.Duration][]string{0: nil, time.Hour: {"none", "at"}} {
		r.cfg.Tables[0].Time = columns
		r.must(CheckTime(r.ctx, r.pool, r.cfg.Tables, keep))
	}
	for said, columns := range map[string][]string{"outbox.timestamp is not mapped": nil, "column id of outbox.timestamp is not there, or has no type of a time": {"id"}} {
		r.cfg.Tables[0].Time = columns
		var stop *event.Stop
		if err := CheckTime(r.ctx, r.pool, r.cfg.Tables, time.Hour); !errors.As(err, &stop) || stop.Code != event.ExitUsage || !strings.Contains(stop.What, said) {
			t.Errorf("with the columns %q: %v", columns, err)
		}
	}
}

func (r *rig) onlyZone() zone {
	r.t.Helper()
	for _, l := range r.leaves {
		if len(l.zones) == 1 {
			return l.zones[0]
		}
	}
	r.t.Fatal("there is not one zone")
	return zone{}
}
