package setup

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/outbox"
)

func TestMain(m *testing.M) { servers.Main(m) }

// rig is a database in which a table is to get its column.
type rig struct {
	t    *testing.T
	ctx  context.Context
	conn *pgx.Conn
	cfg  source.Config
}

func newRig(t *testing.T, create string) *rig {
	t.Helper()
	t.Parallel()
	r := &rig{t: t, ctx: await.Context(t)}
	r.cfg = source.Config{URL: servers.SharedPostgres(t).Database(t), Slot: "s", Publication: "ours", WALSenderTimeout: time.Minute, Log: zap.NewNop()}
	r.tables("public.outbox")
	var err error
	r.conn, err = pgx.Connect(r.ctx, r.cfg.URL)
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

// add runs the SQL that is printed, as an operator would.
func (r *rig) add() {
	r.t.Helper()
	var printed strings.Builder
	await.Must(r.t, PrintTransactionColumn(&printed, r.cfg))
	for _, sql := range strings.Split(printed.String(), ";\n") {
		r.exec(sql)
	}
}

// catalogue is what the tables and functions of the database are; what is made again is another.
func (r *rig) catalogue() string {
	r.t.Helper()
	return r.ask(`SELECT string_agg(what, E'\n' ORDER BY what) FROM (
		SELECT format('column %s.%s %s', attrelid::regclass, attname, a.xmin) FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid WHERE relnamespace::regnamespace::text !~ '^(pg_|information_schema)' AND attnum > 0
		UNION ALL SELECT format('index %s %s', indexrelid::regclass, i.xmin) FROM pg_index i WHERE indexrelid > 16383
		UNION ALL SELECT format('trigger %s %s %s', tgrelid::regclass, tgname, xmin) FROM pg_trigger
		UNION ALL SELECT format('function %s %s', oid::regproc, xmin) FROM pg_proc WHERE oid > 16383) AS list(what)`)
}

// complete wants all of it on each table of the tree, and one index.
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
}

// TestMade: each way to make the column makes all of it, also where two names are alike for 62
// bytes.
func TestMade(t *testing.T) {
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
		"init --add-transaction-column": func(r *rig, table string) {
			r.exec(`CREATE TABLE ` + table + ` (id uuid)`)
			all := r.cfg.Tables
			r.tables(table)
			r.add()
			r.cfg.Tables = all
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

// TestFunctionOfAnother: somebody who may create in the schema has made the function before.
// Whatever makes the trigger takes it from him, so he cannot change what runs as whoever inserts.
func TestFunctionOfAnother(t *testing.T) {
	for name, make := range map[string]func(r *rig) error{
		"init --add-transaction-column": func(r *rig) error { r.exec(`CREATE TABLE outbox (id uuid)`); r.add(); return nil },
		"init --outbox-table": func(r *rig) error {
			return Init(r.ctx, r.cfg, InitOptions{OutboxTable: true, NoSlot: true})
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

// TestTwoOwners: two tables of one schema have two owners, who each add the column. A column that
// exists stays as it is: the SQL stops at it.
func TestTwoOwners(t *testing.T) {
	r := newRig(t, `CREATE TABLE a (id uuid); CREATE TABLE b (id uuid)`)
	for _, table := range []string{"a", "b"} {
		role := r.role(table)
		r.exec(`GRANT CREATE ON SCHEMA public TO ` + role + `; ALTER TABLE ` + table + ` OWNER TO ` + role)
		r.tables("public." + table)
		r.exec(`SET ROLE ` + role)
		r.add()
		r.exec(`RESET ROLE`)
	}
	r.tables("public.a", "public.b")
	r.complete()
	before := r.catalogue()
	var printed strings.Builder
	await.Must(t, PrintTransactionColumn(&printed, r.cfg))
	if _, err := r.conn.Exec(r.ctx, strings.SplitAfter(printed.String(), ";\n")[2]); source.SQLState(err) != "42701" {
		t.Errorf("a column that exists gives %v", err)
	}
	if after := r.catalogue(); after != before {
		t.Errorf("it changes\n%s\nto\n%s", before, after)
	}
}
