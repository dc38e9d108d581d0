package setup

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/outbox"
)

func TestMain(m *testing.M) { servers.Main(m) }

// rig is a database in which a table is to get its column.
type rig struct {
	t    *testing.T
	ctx  context.Context
	url  string // of its owner, or of another role
	conn *pgx.Conn
	cfg  source.Config
	logs *observer.ObservedLogs
}

func newRig(t *testing.T, create string) *rig {
	t.Helper()
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	r := &rig{t: t, ctx: await.Context(t), url: servers.SharedPostgres(t).Database(t), logs: logs}
	r.cfg = source.Config{URL: r.url, Slot: "s", Publication: "ours", WALSenderTimeout: time.Minute, Log: zap.New(core)}
	r.tables("public.outbox")
	var err error
	r.conn, err = pgx.Connect(r.ctx, r.url)
	await.Must(t, err)
	t.Cleanup(func() { _ = r.conn.Close(context.Background()) })
	r.exec(create)
	return r
}

func (r *rig) tables(names ...string) {
	r.cfg.Tables = nil
	for _, name := range names {
		schema, table, _ := strings.Cut(name, ".")
		r.cfg.Tables = append(r.cfg.Tables, decode.Table{Schema: schema, Name: table, Mapping: decode.Mapping{Transaction: decode.Names{Any: []string{"tx"}}}})
	}
}

func (r *rig) exec(sql string) {
	r.t.Helper()
	if _, err := r.conn.Exec(r.ctx, sql); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

func (r *rig) ask(sql string, args ...any) (answer string) {
	r.t.Helper()
	if err := r.conn.QueryRow(r.ctx, sql, args...).Scan(&answer); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

// role makes one that may log in, and goes with its rights and tables.
func (r *rig) role(name string) string {
	r.t.Helper()
	name += "_" + r.ask(`SELECT current_database()`)
	r.exec(`CREATE ROLE ` + name + ` LOGIN`)
	r.t.Cleanup(func() { r.exec(`DROP OWNED BY ` + name + ` CASCADE; DROP ROLE ` + name) })
	return name
}

// as adds the column as a role.
func (r *rig) as(role string) error {
	u, err := url.Parse(r.url)
	await.Must(r.t, err)
	u.User = url.User(role)
	return AddTransactionColumn(r.ctx, r.cfg, u.String(), false)
}

func (r *rig) add() error { return AddTransactionColumn(r.ctx, r.cfg, "", false) }

// catalogue is what the tables and functions of the database are; what is made again is another.
func (r *rig) catalogue() string {
	r.t.Helper()
	return r.ask(`SELECT string_agg(what, E'\n' ORDER BY what) FROM (
		SELECT format('column %s.%s %s', attrelid::regclass, attname, a.xmin) FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid WHERE relnamespace::regnamespace::text !~ '^(pg_|information_schema)' AND attnum > 0
		UNION ALL SELECT format('index %s %s', indexrelid::regclass, i.xmin) FROM pg_index i WHERE indexrelid > 16383
		UNION ALL SELECT format('trigger %s %s %s', tgrelid::regclass, tgname, xmin) FROM pg_trigger
		UNION ALL SELECT format('function %s %s', oid::regproc, xmin) FROM pg_proc WHERE oid > 16383) AS list(what)`)
}

// complete wants all of it on each table of the tree, one index, and nothing to do for a second
// run.
func (r *rig) complete() {
	r.t.Helper()
	for _, t := range r.cfg.Tables {
		said := r.ask(`
			SELECT coalesce(string_agg(format('%s has %s indexes and triggers "%s"', c.oid::regclass, indexes, triggers), '; '), '')
			FROM pg_class c,
				LATERAL (SELECT count(*) + count(*) FILTER (WHERE NOT indisvalid) AS indexes FROM pg_index JOIN pg_attribute a ON attrelid = indrelid AND attnum = indkey[0] JOIN pg_class i ON i.oid = indexrelid
					WHERE indrelid = c.oid AND attname = 'tx' AND indpred IS NULL AND relam = (SELECT oid FROM pg_am WHERE amname = 'btree')) i,
				LATERAL (SELECT string_agg(tgenabled::text, '') AS triggers FROM pg_trigger WHERE tgrelid = c.oid AND tgname = 'zz_cdc_relay_tx') t
			WHERE c.oid IN (SELECT $1::regclass UNION SELECT relid FROM pg_partition_tree($1::regclass)) AND (indexes <> 1 OR triggers IS DISTINCT FROM 'A')`, source.QuoteTable(t))
		if said != "" {
			r.t.Error(said)
		}
	}
	before := r.catalogue()
	await.Must(r.t, r.add())
	if after := r.catalogue(); after != before {
		r.t.Errorf("a second run changes\n%s\nto\n%s", before, after)
	}
}

// refused wants a Stop with the code and the texts, and nothing changed. It returns the fix.
func (r *rig) refused(err error, before string, code int, texts ...string) string {
	r.t.Helper()
	var stop *event.Stop
	if !errors.As(err, &stop) || stop.Code != code {
		r.t.Fatalf("it ends with %v, want code %d", err, code)
	}
	for _, text := range texts {
		if !strings.Contains(stop.Error(), text) {
			r.t.Errorf("it does not say %q: %s", text, stop.Error())
		}
	}
	if after := r.catalogue(); after != before {
		r.t.Errorf("it was refused, and changes\n%s\nto\n%s", before, after)
	}
	return stop.Fix
}

// runFix runs the SQL with which a fix ends.
func (r *rig) runFix(fix string) {
	r.t.Helper()
	if i := strings.LastIndex(fix, ": "); i >= 0 {
		fix = fix[i+2:]
	}
	r.exec(fix)
}

const (
	plain       = `CREATE TABLE outbox (id uuid);`
	withTx      = `CREATE TABLE outbox (id uuid, tx xid8 DEFAULT pg_current_xact_id());`
	partitioned = `CREATE TABLE outbox (id uuid, n int) PARTITION BY LIST (n);
		CREATE TABLE one PARTITION OF outbox FOR VALUES IN (1); CREATE TABLE "Two" PARTITION OF outbox FOR VALUES IN (2) PARTITION BY LIST (n);
		CREATE TABLE below PARTITION OF "Two" DEFAULT;`
	addTx   = `ALTER TABLE outbox ADD COLUMN tx xid8 DEFAULT pg_current_xact_id();`
	invalid = `UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'left'::regclass`
)

// TestAdded: whatever of it is there, the rest is added.
func TestAdded(t *testing.T) {
	long := strings.Repeat("p", 61)
	for name, create := range map[string]string{
		"nothing":                     plain,
		"bigint":                      `CREATE TABLE outbox (id uuid, tx bigint DEFAULT pg_current_xact_id()::text::bigint)`,
		"partitions":                  partitioned,
		"index of another name":       withTx + `CREATE INDEX other ON outbox (tx, id)`,
		"hash index":                  withTx + `CREATE INDEX other ON outbox USING hash (tx)`,
		"index name taken":            withTx + `CREATE INDEX outbox_tx_idx ON outbox (id)`,
		"index not valid":             withTx + `CREATE INDEX "left" ON outbox (tx); ` + invalid,
		"partitions, index":           partitioned + addTx + `CREATE INDEX other ON outbox (tx)`,
		"partitions, wider index":     partitioned + addTx + `CREATE INDEX other ON outbox (tx, id)`,
		"partitions, their indexes":   partitioned + addTx + `CREATE INDEX other ON one (tx); CREATE INDEX another ON below (tx)`,
		"partitions, ON ONLY":         partitioned + addTx + `CREATE INDEX other ON ONLY outbox (tx)`,
		"partitions, one attached":    partitioned + addTx + `CREATE INDEX other ON ONLY outbox (tx); CREATE INDEX i ON one (tx); ALTER INDEX other ATTACH PARTITION i`,
		"partition's index not valid": partitioned + addTx + `CREATE INDEX "left" ON one (tx); ` + invalid,
		"long names": fmt.Sprintf(`CREATE TABLE outbox (id uuid, n int) PARTITION BY LIST (n);
			CREATE TABLE %[1]s_1 PARTITION OF outbox FOR VALUES IN (1); CREATE TABLE %[1]s_2 PARTITION OF outbox FOR VALUES IN (2)`, long),
		"trigger not ALWAYS": withTx + `CREATE FUNCTION cdc_relay_outbox_set_tx() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
			CREATE TRIGGER zz_cdc_relay_tx BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION cdc_relay_outbox_set_tx()`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, create)
			await.Must(t, r.add())
			r.complete()
		})
	}
}

// TestMadeOtherwise: the other ways to make the table leave nothing to add, also where two names
// are alike for 62 bytes.
func TestMadeOtherwise(t *testing.T) {
	long := strings.Repeat("o", 62)
	for name, make := range map[string]func(r *rig, table string){
		"outbox.Schema": func(r *rig, table string) {
			w, err := outbox.New(outbox.Config{Table: table})
			await.Must(t, err)
			r.exec(w.Schema() + w.Schema())
		},
		"init --outbox-table": func(r *rig, _ string) {
			await.Must(t, Init(r.ctx, r.cfg, InitOptions{OutboxTable: true, NoSlot: true}))
			r.exec(`DROP SCHEMA cdc_relay CASCADE`)
		},
		"init --print": func(r *rig, table string) {
			r.exec(`CREATE TABLE ` + table + ` (id uuid)`)
			var printed strings.Builder
			cfg := r.cfg
			cfg.Tables = []decode.Table{{Schema: "public", Name: strings.TrimPrefix(table, "public."), Mapping: r.cfg.Tables[0].Mapping}}
			await.Must(t, PrintTransactionColumn(&printed, cfg))
			for _, sql := range strings.Split(printed.String(), ";\n") {
				r.exec(sql)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "")
			list := []string{"public." + long + "a", "public." + long + "b"}
			r.tables(list...)
			for _, table := range list {
				make(r, table)
			}
			r.complete()
		})
	}
}

// TestUnfit: a table that cannot have the column, and a column that is somebody else's, are refused
// with a sentence, and nothing is changed, also of the tables before. With the SQL it is added.
func TestUnfit(t *testing.T) {
	for name, tc := range map[string]struct{ create, said string }{
		"column of the application": {`CREATE TABLE outbox (id uuid, tx bigint NOT NULL DEFAULT 7)`, "without the default pg_current_xact_id()"},
		"text":                      {`CREATE TABLE outbox (id uuid, tx text)`, "has type text, wanted xid8 or bigint"},
		"generated":                 {`CREATE TABLE outbox (id uuid, tx bigint GENERATED ALWAYS AS (5) STORED)`, "tx of public.outbox is a generated column"},
		"identity":                  {`CREATE TABLE outbox (id uuid, tx bigint GENERATED ALWAYS AS IDENTITY)`, "tx of public.outbox is an identity column"},
		"unlogged":                  {`CREATE UNLOGGED TABLE outbox (id uuid)`, "table public.outbox is not logged"},
		"partition":                 {`CREATE TABLE whole (id uuid, n int) PARTITION BY LIST (n); CREATE TABLE outbox PARTITION OF whole DEFAULT`, "is a partition of public.whole"},
		"view":                      {`CREATE VIEW outbox AS SELECT 1 AS id`, "no ordinary or partitioned table"},
		"materialized view":         {`CREATE MATERIALIZED VIEW outbox AS SELECT 1 AS id`, "no ordinary or partitioned table"},
		"foreign table":             {`CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE outbox (id uuid) SERVER s`, "no ordinary or partitioned table"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tc.create+`; CREATE TABLE before (id uuid)`)
			r.tables("public.before", "public.outbox")
			fix := r.refused(r.add(), r.catalogue(), event.ExitUsage, tc.said)
			if strings.Contains(fix, "ALTER TABLE") {
				r.runFix(fix)
				await.Must(t, r.add())
				r.complete()
			}
		})
	}
}

// TestColumnOfTheApplicationStays: SQL for a new table changes nothing of one that has another
// column of the name.
func TestColumnOfTheApplicationStays(t *testing.T) {
	r := newRig(t, `CREATE TABLE outbox (id uuid, tx bigint NOT NULL DEFAULT 7)`)
	before := r.catalogue()
	r.exec(outbox.Schema() + strings.Join(outboxTableSQL(r.cfg.Tables[0]), ";"))
	if after := r.catalogue(); after != before {
		t.Errorf("it changes\n%s\nto\n%s", before, after)
	}
}

// TestMissingRights: the right that is missing is named before anything is changed; with it all is
// added.
func TestMissingRights(t *testing.T) {
	r := newRig(t, `CREATE SCHEMA s; CREATE TABLE s.outbox (id uuid)`)
	r.tables("s.outbox")
	owner, other := r.role("owner"), r.role("other")
	r.exec(`ALTER TABLE s.outbox OWNER TO ` + owner)
	r.exec(`GRANT USAGE ON SCHEMA s TO ` + owner)
	before := r.catalogue()
	r.refused(r.as(other), before, event.ExitFailure, "which belongs to role", fmt.Sprintf("GRANT %q TO %q", owner, other))
	r.runFix(r.refused(r.as(owner), before, event.ExitFailure, fmt.Sprintf(`GRANT USAGE, CREATE ON SCHEMA "s" TO %q`, owner)))
	r.exec(`GRANT CREATE, USAGE ON SCHEMA s TO ` + other + `; SET ROLE ` + other + `;
		CREATE FUNCTION s.cdc_relay_outbox_set_tx() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$; RESET ROLE`)
	before = r.catalogue()
	r.runFix(r.refused(r.as(owner), before, event.ExitFailure, `function "s"."cdc_relay_outbox_set_tx"() belongs to role`, fmt.Sprintf(`ALTER FUNCTION "s"."cdc_relay_outbox_set_tx"() OWNER TO %q`, owner)))
	await.Must(t, r.as(owner))
	r.complete()
	r.exec(`REVOKE CREATE ON SCHEMA s FROM ` + owner)
	await.Must(t, r.as(owner)) // nothing is missing, so no right is
}

// TestFunctionOfAnother: somebody who may create in the schema has made the function before.
// Whatever makes the trigger takes it from him, so he cannot change what runs as whoever inserts.
func TestFunctionOfAnother(t *testing.T) {
	for name, make := range map[string]func(r *rig) error{
		"init --add-transaction-column": func(r *rig) error { r.exec(plain); return r.add() },
		"init --outbox-table": func(r *rig) error {
			return Init(r.ctx, r.cfg, InitOptions{OutboxTable: true, NoSlot: true})
		},
		"init --print": func(r *rig) error {
			r.exec(plain)
			var printed strings.Builder
			await.Must(r.t, PrintTransactionColumn(&printed, r.cfg))
			for _, sql := range strings.Split(printed.String(), ";\n") {
				r.exec(sql)
			}
			return nil
		},
		"outbox.Schema": func(r *rig) error { r.exec(outbox.Schema()); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "")
			role := r.role("somebody")
			r.exec(`GRANT CREATE ON SCHEMA public TO ` + role + `; SET ROLE ` + role + `;
				CREATE FUNCTION cdc_relay_outbox_set_tx() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$; RESET ROLE`)
			await.Must(t, make(r))
			got := r.ask(`SELECT format('%s %s %s', proowner = (SELECT relowner FROM pg_class WHERE oid = 'outbox'::regclass), prosecdef, prosrc) FROM pg_proc WHERE oid = 'cdc_relay_outbox_set_tx'::regproc`)
			if !strings.HasPrefix(got, "t f") || !strings.Contains(got, "pg_current_xact_id()") {
				t.Errorf("the function is %s", got)
			}
		})
	}
}

// TestTwoOwners: two tables of one schema have two owners, who each add the column.
func TestTwoOwners(t *testing.T) {
	r := newRig(t, `CREATE TABLE a (id uuid); CREATE TABLE b (id uuid)`)
	for _, table := range []string{"a", "b"} {
		role := r.role(table)
		r.exec(`GRANT CREATE ON SCHEMA public TO ` + role + `; ALTER TABLE ` + table + ` OWNER TO ` + role)
		r.tables("public." + table)
		await.Must(t, r.as(role))
	}
	r.tables("public.a", "public.b")
	r.complete()
}

// TestWritersGoFirst: while a transaction is open that has read the table, the command waits and
// says for whom, and writers do not wait for it. It goes on when that has ended, and says what to
// do if it never does.
func TestWritersGoFirst(t *testing.T) {
	r := newRig(t, plain+`CREATE FUNCTION patient() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
			IF current_setting('lock_timeout') NOT IN ('200ms', '1ms') THEN RAISE 'it waits for %', current_setting('lock_timeout'); END IF; END $$;
		CREATE EVENT TRIGGER patient ON ddl_command_start WHEN TAG IN ('ALTER TABLE', 'CREATE TRIGGER') EXECUTE FUNCTION patient()`)
	reader, err := pgx.Connect(r.ctx, r.url)
	await.Must(t, err)
	t.Cleanup(func() { _ = reader.Close(context.Background()) })
	_, err = reader.Exec(r.ctx, `BEGIN; SELECT count(*) FROM outbox`)
	await.Must(t, err)
	holder := fmt.Sprintf("process %d", reader.PgConn().PID())

	done := make(chan error, 1)
	go func() { done <- r.add() }()
	await.Until(t, "the command to say for whom it waits", func() bool {
		waits := r.logs.FilterMessage("waiting for a lock").All()
		return len(waits) == 1 && strings.Contains(fmt.Sprint(waits[0].ContextMap()["held_by"]), holder)
	})
	r.exec(`INSERT INTO outbox VALUES (gen_random_uuid())`)

	pool, err := source.ConnectPool(&r.cfg)
	await.Must(t, err)
	defer pool.Close()
	once := adding{pool: pool, log: zap.NewNop(), table: r.cfg.Tables[0], column: transactionColumn(r.cfg.Tables[0]), locks: patience{each: time.Millisecond}}
	await.Must(t, once.examine(r.ctx, "", false))
	r.refused(once.add(r.ctx), r.catalogue(), event.ExitFailure, "table public.outbox could not be locked", holder, "pg_terminate_backend")

	_, err = reader.Exec(r.ctx, `COMMIT`)
	await.Must(t, err)
	await.Must(t, <-done)
	r.complete()
}
