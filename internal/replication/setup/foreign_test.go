package setup

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// init --outbox-table does not go on with a table by which somebody else could run code as whoever
// inserts, whatever he has made it with and whoever owns the table by now. It changes nothing then.
func TestTableOfSomebodyElse(t *testing.T) {
	const table = `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb`
	// f is a stranger's function, of a trigger f_trigger; what follows is done by a superuser
	for name, make := range map[string]struct{ stranger, owner, says string }{
		"his own":             {stranger: table + `)`, says: "table public.outbox belongs to role"},
		"his own, and handed": {stranger: table + `); CREATE TRIGGER t BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION f_trigger()`, owner: `ALTER TABLE outbox OWNER TO CURRENT_USER`, says: "function public.f_trigger() belongs to role"},
		"disabled trigger":    {owner: table + `); CREATE TRIGGER t AFTER INSERT ON outbox EXECUTE FUNCTION f_trigger(); ALTER TABLE outbox DISABLE TRIGGER t`, says: "function public.f_trigger()"},
		"condition":           {owner: `CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; ` + table + `); CREATE TRIGGER t BEFORE INSERT ON outbox FOR EACH ROW WHEN (f(NEW.type) = '') EXECUTE FUNCTION mine()`, says: "function public.f(text)"},
		"rule":                {owner: table + `); CREATE RULE r AS ON INSERT TO outbox DO ALSO SELECT f('x')`, says: "function public.f(text)"},
		"rule to his table":   {stranger: `CREATE TABLE loot (LIKE pg_class)`, owner: table + `); CREATE RULE r AS ON INSERT TO outbox DO ALSO DELETE FROM loot`, says: "table public.loot"},
		"trigger behind a rule": {
			owner: `CREATE TABLE log (a text); CREATE TRIGGER t BEFORE INSERT ON log FOR EACH ROW EXECUTE FUNCTION f_trigger(); ` + table + `); CREATE RULE r AS ON INSERT TO outbox DO ALSO INSERT INTO log VALUES (NEW.type)`,
			says:  "function public.f_trigger()",
		},
		"policy":            {owner: table + `); ALTER TABLE outbox ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON outbox WITH CHECK (f(type) = '')`, says: "function public.f(text)"},
		"default":           {owner: table + `, more text DEFAULT f('x'))`, says: "function public.f(text)"},
		"generated column":  {owner: table + `, more text GENERATED ALWAYS AS (f(type)) STORED)`, says: "function public.f(text)"},
		"check":             {owner: table + `, CHECK (f(type) <> ''))`, says: "function public.f(text)"},
		"index":             {owner: table + `); CREATE INDEX ON outbox (f(type))`, says: "function public.f(text)"},
		"part of an index":  {owner: table + `); CREATE INDEX ON outbox (id) WHERE f(type) = ''`, says: "function public.f(text)"},
		"statistics":        {owner: table + `); CREATE STATISTICS s ON (f(type)), (f(aggregateid)) FROM outbox`, says: "function public.f(text)"},
		"domain":            {owner: `CREATE DOMAIN word AS text CHECK (f(VALUE) <> ''); ` + table + `, more word)`, says: "function public.f(text)"},
		"domain of his":     {stranger: `CREATE DOMAIN word AS text`, owner: table + `, more word)`, says: "type public.word"},
		"field of a type":   {owner: `CREATE DOMAIN word AS text CHECK (f(VALUE) <> ''); CREATE TYPE pair AS (a text, b word); ` + table + `, more pair[])`, says: "function public.f(text)"},
		"operator":          {stranger: `CREATE FUNCTION g(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true'; CREATE OPERATOR === (FUNCTION = g, LEFTARG = text, RIGHTARG = text)`, owner: table + `, CHECK (type === 'x'))`, says: "belongs to"},
		"partition":         {owner: table[:strings.Index(table, " PRIMARY KEY")] + `, type text) PARTITION BY LIST (type); CREATE TABLE leaf PARTITION OF outbox DEFAULT; CREATE TRIGGER t BEFORE INSERT ON leaf FOR EACH ROW EXECUTE FUNCTION f_trigger()`, says: "function public.f_trigger()"},
		"key of partitions": {owner: `CREATE TABLE outbox (id uuid, type text) PARTITION BY LIST (f(type))`, says: "function public.f(text)"},
		"table above":       {stranger: `CREATE TABLE above (type text)`, owner: `CREATE TABLE outbox (id uuid) INHERITS (above)`, says: "table public.above"},
		"table below":       {owner: table + `); CREATE TABLE below () INHERITS (outbox); ALTER TABLE below OWNER TO {role}`, says: "table public.below"},
		"view":              {owner: `CREATE TABLE o (id uuid, type text); CREATE VIEW outbox AS SELECT id, f(type) FROM o`, says: "function public.f(text)"},
		"event trigger":     {stranger: `CREATE FUNCTION e() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'`, owner: `CREATE EVENT TRIGGER e_{role} ON ddl_command_start EXECUTE FUNCTION e()`, says: "function public.e()"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, `GRANT CREATE ON SCHEMA public TO PUBLIC`)
			eve := r.role("eve")
			as := strings.NewReplacer("{role}", eve)
			r.exec(`SET ROLE ` + eve + `; CREATE FUNCTION f_trigger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
				CREATE FUNCTION f(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1; END'; ` + as.Replace(make.stranger) + `; RESET ROLE; ` + as.Replace(make.owner))
			before := r.objects()
			err := Init(r.ctx, r.cfg, InitOptions{OutboxTable: true, NoSlot: true})
			if stop, ok := errors.AsType[*event.Stop](err); !ok || stop.Code != event.ExitOperator || stop.Reason != "table_foreign" ||
				!strings.Contains(stop.What, make.says) || !strings.Contains(stop.What, fmt.Sprintf("role %q", eve)) {
				t.Errorf("init says %v, want %q of %s", err, make.says, eve)
			}
			if after := r.objects(); after != before {
				t.Errorf("it has made %s of %s", after, before)
			}
			var printed strings.Builder
			await.Must(t, PrintInit(&printed, r.cfg, InitOptions{OutboxTable: true, NoSlot: true}))
			if _, err := r.conn.Exec(r.ctx, printed.String()); err == nil || !strings.Contains(err.Error(), make.says) {
				t.Errorf("what init --print prints says %v", err)
			}
		})
	}
}

// objects is what init could have changed.
func (r *rig) objects() string {
	r.t.Helper()
	return r.ask(`SELECT string_agg(o, ', ' ORDER BY o) FROM (
		SELECT oid::regclass || ' ' || relowner || ' ' || relhastriggers AS o FROM pg_class WHERE relnamespace = 'public'::regnamespace
		UNION ALL SELECT nspname FROM pg_namespace UNION ALL SELECT pubname FROM pg_publication) o`)
}

// A table of ours, with what applications have, is in order, and so is the relay's own with --role.
func TestTableOfOurs(t *testing.T) {
	r := newRig(t, `CREATE TYPE kind AS ENUM ('created'); CREATE DOMAIN word AS text CHECK (VALUE <> ''); CREATE TABLE other (id bigint PRIMARY KEY);
		CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
		CREATE TABLE outbox (id uuid DEFAULT gen_random_uuid(), aggregatetype word, aggregateid text, type kind, payload jsonb, n bigint GENERATED ALWAYS AS IDENTITY,
			at timestamptz DEFAULT now(), of bigint REFERENCES other, lower text GENERATED ALWAYS AS (lower(aggregateid)) STORED, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
		CREATE TABLE leaf PARTITION OF outbox DEFAULT; CREATE TRIGGER t AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION mine();
		CREATE TRIGGER u BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
		CREATE INDEX ON outbox (lower(aggregateid)); CREATE RULE r AS ON DELETE TO outbox DO ALSO NOTIFY gone`)
	relay := r.role("relay")
	r.exec(`ALTER TABLE other OWNER TO ` + relay)
	r.cfg.Create = false
	pool, err := source.ConnectPool(&r.cfg)
	await.Must(t, err)
	defer pool.Close()
	for _, made := range []string{"", `ALTER TABLE outbox OWNER TO ` + relay} {
		r.exec(made)
		await.Must(t, CreateObjects(r.ctx, pool, &r.cfg, InitOptions{OutboxTable: true, Role: relay}))
	}
}
