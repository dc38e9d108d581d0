//go:build testall

package retention

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// TestIDs: they are compared as they were sent, whatever their type.
func TestIDs(t *testing.T) {
	r := newRig(t, 0, `CREATE TYPE kind AS ENUM ('Ä', 'b'); CREATE DOMAIN short AS text CHECK (length(value) < 9);
		CREATE TABLE outbox (a int, b char(5), c bytea, d kind, e short, f uuid, g bool, h timestamptz)`)
	r.addSlot("second")
	for column, id := range map[string][2]string{
		"a": {"42", "42"}, "b": {"'x'", "x    "}, "c": {`'\x00ff'`, `\x00ff`}, "d": {"'Ä'", "Ä"}, "e": {"'ö'", "ö"},
		"f": {"'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}, "g": {"true", "t"}, "h": {"'2026-01-02 03:04:05+01'", "2026-01-02 02:04:05+00"},
	} {
		r.exec(`DELETE FROM cdc_relay.retry; INSERT INTO public.outbox (` + column + `) VALUES (` + id[0] + `)`)
		r.settle(r.slot)
		r.settle("second")
		r.hold("retry", r.slot, id[1], "")
		r.cfg.Tables[0].ID = []string{"none", column}
		for _, left := range []int{1, 0} {
			r.must(r.runPass())
			var rows int
			r.must(r.pool.QueryRow(r.ctx, `SELECT count(*) FROM public.outbox`).Scan(&rows))
			if rows != left {
				t.Errorf("id %s of column %s: %d rows are left, want %d", id[1], column, rows, left)
			}
			r.exec(`DELETE FROM cdc_relay.retry`)
		}
	}
}

// TestFailingZone: what fails in a part of a table keeps no other part, and is not forgotten.
func TestFailingZone(t *testing.T) {
	r := newRig(t, 0, `CREATE TABLE outbox (id text, at timestamptz, filler text DEFAULT repeat('x', 7000)); ALTER TABLE outbox ALTER filler SET STORAGE PLAIN`)
	const insert = `INSERT INTO public.outbox SELECT i::text FROM generate_series(1, 1026) i`
	r.exec(insert) // a block each
	r.settle(r.slot)
	r.must(r.pass(r.ctx))
	r.want(r.ids())
	r.exec(`TRUNCATE public.outbox`) // the blocks begin at 0 again
	r.exec(insert)
	r.exec(`CREATE FUNCTION public.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF old.id = '7' THEN RAISE division_by_zero; END IF; RETURN old; END $$;
		CREATE TRIGGER poison BEFORE DELETE ON public.outbox FOR EACH ROW EXECUTE FUNCTION public.poison()`)
	r.settle(r.slot)
	r.leaves = map[uint32]*leaf{}
	var overdue time.Time
	for i := range 2 {
		if err := r.pass(r.ctx); !sqlClass(err, "22012") {
			t.Fatalf("the pass ends with %v", err)
		}
		s := r.Snapshot()
		if s.Error == "" || s.Overdue.IsZero() || i > 0 && !s.Overdue.Equal(overdue) {
			t.Errorf("the status is %+v", s)
		}
		overdue = s.Overdue
		var others int
		r.must(r.pool.QueryRow(r.ctx, `SELECT count(*) FROM public.outbox WHERE ctid >= '(1024,0)'`).Scan(&others))
		if others != 0 {
			t.Errorf("%d rows of the other zone are left", others)
		}
	}
	r.exec(`DROP TRIGGER poison ON public.outbox`)
	r.must(r.pass(r.ctx))
	r.want(r.ids())
	if s := r.Snapshot(); s.Error != "" || !s.Overdue.IsZero() {
		t.Errorf("the status is %+v", s)
	}
}

// TestReferredRowsAreKept: a row that another table refers to keeps no others.
func TestReferredRowsAreKept(t *testing.T) {
	r := newRig(t, 0, `CREATE TABLE outbox (id text PRIMARY KEY, at timestamptz, filler text DEFAULT repeat('x', 5000));
		ALTER TABLE outbox ALTER filler SET STORAGE PLAIN; CREATE TABLE details (id text REFERENCES outbox)`)
	r.put("a", "b", "c", "d") // a block each
	r.exec(`INSERT INTO public.details VALUES ('b')`)
	r.settle(r.slot)
	r.want(r.left(), "b")
	r.want(r.left(), "b")
	if r.logs.Len() != 1 {
		t.Errorf("it is logged %d times, want once: %v", r.logs.Len(), r.logs.All())
	}
}

// TestIDThatIsNotUTF8: while anything is deferred, a row whose id has no equivalent in UTF-8 stays,
// and keeps no others.
func TestIDThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	r := rigIn(t, servers.SharedPostgres(t).DatabaseOf(t, "SQL_ASCII"), 0, `CREATE TABLE outbox (id text, at timestamptz, n int)`)
	r.exec(`INSERT INTO public.outbox VALUES ('gone', now(), 1), (convert_from('\xff', 'SQL_ASCII'), now(), 2)`)
	r.settle(r.slot)
	r.hold("retry", r.slot, "deferred", "")
	r.must(r.runPass())
	var left string
	r.must(r.pool.QueryRow(r.ctx, `SELECT string_agg(n::text, ' ') FROM public.outbox`).Scan(&left))
	if left != "2" {
		t.Errorf("rows %s are left, want 2", left)
	}
}

// TestSchemaThatMayNotBeUsed: check names the right, and the columns of the table are known.
func TestSchemaThatMayNotBeUsed(t *testing.T) {
	r := newRig(t, time.Hour, outboxTable)
	r.exec(`CREATE SCHEMA "Shop"; CREATE TABLE "Shop"."Outbox" (id text, at timestamptz)`)
	r.cfg.Tables[0].Schema, r.cfg.Tables[0].Name = "Shop", "Outbox"
	r.as("")
	role := "role_" + r.slot
	must := `GRANT USAGE ON SCHEMA "Shop" TO ` + role + `; GRANT SELECT, DELETE, UPDATE (id) ON "Shop"."Outbox" TO ` + role
	r.problem("USAGE of the schema, SELECT, DELETE, UPDATE of a column", must)
	r.must(CheckTime(r.ctx, r.cfg.Pool, r.cfg.Tables, r.cfg.Keep))
	r.exec(must)
	r.problem("")
	r.must(r.runPass())
}
