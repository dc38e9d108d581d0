package retention

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// as gives the Retention a pool of a role that has the rights of the statements.
func (r *rig) as(statements string) {
	r.t.Helper()
	role := "role_" + r.slot
	r.exec(`CREATE ROLE ` + role + ` LOGIN; GRANT USAGE ON SCHEMA cdc_relay TO ` + role + `; GRANT SELECT, UPDATE, DELETE ON ALL TABLES IN SCHEMA cdc_relay TO ` + role + `;` +
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
	r.deliver(r.slot, "a", "b")
	r.exec(`REVOKE DELETE ON public."Old" FROM role_` + r.slot)
	for range 2 {
		r.want(r.left(), "a")
	}
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
			r.deliver(r.slot, "kept")
			r.want(r.left(), "kept")
			if s := r.Snapshot(); !strings.Contains(s.Error, tc.said) {
				t.Errorf("the status is %+v, want %q", s, tc.said)
			}
			r.problem(tc.said)
		})
	}
}

// problem wants problems that each have one of the texts, or none if the first is empty.
func (r *rig) problem(texts ...string) {
	r.t.Helper()
	list, err := Examine(r.ctx, r.cfg.Pool, "p", r.cfg.Tables)
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
	r.problem("warn", "no trigger zz_cdc_relay_tx", "BEFORE INSERT")
	triggerSQL := (sent.Column{Schema: "public", Table: "outbox", Name: "tx"}).TriggerSQL()
	const alters = `CREATE OR REPLACE TRIGGER zz_cdc_relay_tx BEFORE INSERT ON public.outbox FOR EACH ROW `
	for _, other := range []string{
		``,
		alters + `WHEN (false) EXECUTE FUNCTION public.cdc_relay_outbox_set_tx()`,
		`CREATE FUNCTION public.other() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$; ` + alters + `EXECUTE FUNCTION public.other()`,
	} {
		for _, sql := range triggerSQL {
			r.exec(sql)
		}
		r.exec(other)
		if other != "" {
			r.problem("warn", "no trigger zz_cdc_relay_tx that is ENABLE ALWAYS and sets column tx")
		}
	}
	for _, sql := range triggerSQL {
		r.exec(sql)
	}
	r.problem("")
	r.exec(`ALTER TABLE public.outbox ALTER tx DROP DEFAULT`)
	r.problem("warn", "has no default pg_current_xact_id()", "SET DEFAULT")
	r.exec(`DROP INDEX public.outbox_tx`)
	r.exec(`CREATE INDEX ON public.outbox USING hash (tx)`)
	r.problem(`no valid btree index begins with column tx of public.outbox`, "CREATE INDEX CONCURRENTLY")
	r.exec(`CREATE INDEX ON public.outbox (tx, id)`)
	r.exec(`CREATE PUBLICATION p FOR TABLE public.outbox`)
	var lists bool // of PostgreSQL 15 and later
	r.must(r.pool.QueryRow(r.ctx, `SELECT current_setting('server_version_num')::int >= 150000`).Scan(&lists))
	if lists {
		r.exec(`ALTER PUBLICATION p SET (publish = 'insert'); ALTER PUBLICATION p SET TABLE public.outbox (id)`)
		const fix = `ALTER PUBLICATION p DROP TABLE ONLY outbox; ALTER PUBLICATION p ADD TABLE ONLY outbox (id, tx)`
		r.problem("publication p has a column list of outbox without tx", fix)
		list, err := ExamineColumns(r.ctx, r.pool, "p", r.cfg.Tables)
		if r.must(err); len(list) != 2 || !list[1].Warn || !strings.Contains(list[1].Fix, fix) {
			t.Errorf("without retention check says %+v", list)
		}
		r.exec(`SET search_path = public; BEGIN; ` + fix + `; COMMIT`)
	}
	r.problem("")
}

// TestColumn: the relay ends at its start if retention has nothing to go by.
func TestColumn(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.must(CheckTables(r.ctx, r.pool, r.cfg.Tables))
	for _, tc := range []struct{ sql, said string }{
		{`ALTER TABLE public.outbox ALTER tx DROP DEFAULT, ALTER tx TYPE text USING tx::text`, "column tx of type text, wanted xid8"},
		{`ALTER TABLE public.outbox DROP tx`, "no column tx of type xid8"},
	} {
		r.exec(tc.sql)
		var stop *event.Stop
		if err := CheckTables(r.ctx, r.pool, r.cfg.Tables); !errors.As(err, &stop) || stop.Code != event.ExitUsage || !strings.Contains(stop.What, tc.said) {
			t.Errorf("after %s: %v", tc.sql, err)
		}
	}
}
