//go:build testall

package retention

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// TestPartitionsWithoutIndex: some are named, and how all get one.
func TestPartitionsWithoutIndex(t *testing.T) {
	r := newRig(t, 0, `CREATE TABLE outbox (id text, tx xid8) PARTITION BY LIST (id); DO $$ BEGIN
		FOR i IN 1..5 LOOP EXECUTE format('CREATE TABLE part%s PARTITION OF outbox FOR VALUES IN (%1$s)', i); END LOOP; END $$`)
	r.problem("column tx of public.part1, public.part2, public.part3 and 2 more", "without CONCURRENTLY on the table", `CREATE INDEX CONCURRENTLY ON public.part3 ("tx")`)
	r.exec(`CREATE INDEX ON public.outbox (tx)`)
	r.problem("")
}

// TestIDs: they are compared as they were sent, whatever their type. The digests are the relay's.
func TestIDs(t *testing.T) {
	r := newRig(t, 0, `CREATE TYPE kind AS ENUM ('Ä', 'b'); CREATE DOMAIN short AS text CHECK (length(value) < 9);
		CREATE TABLE outbox (a int, b char(5), c bytea, d kind, e short, f uuid, g bool, h timestamptz, tx bigint DEFAULT pg_current_xact_id()::text::bigint); CREATE INDEX ON outbox (tx)`)
	for column, id := range map[string][2]string{
		"a": {"42", "42"}, "b": {"'x'", "x"}, "c": {`'\x00ff'`, `\x00ff`}, "d": {"'Ä'", "Ä"}, "e": {"'ö'", "ö"},
		"f": {"'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}, "g": {"true", "t"}, "h": {"'2026-01-02 03:04:05+01'", "2026-01-02 02:04:05+00"},
	} {
		r.exec(`INSERT INTO public.outbox (` + column + `) VALUES (` + id[0] + `)`)
		r.cfg.Tables[0].ID = []string{"none", column}
		var tx uint64
		r.must(r.pool.QueryRow(r.ctx, `SELECT tx FROM public.outbox`).Scan(&tx))
		for left, of := range []string{id[1], id[1] + "?"} {
			digest := sent.Digest(tx, []byte(of))
			for _, p := range sent.Parts([]sent.Entry{{Relation: r.oid("outbox"), Tx: tx, Digest: digest}}) {
				r.exec(sent.InsertSQL, r.slot, 1, p.Relation, p.Chunk, int64(p.First), int64(p.Last), p.Digests)
			}
			if left == 1 {
				r.exec(`INSERT INTO public.outbox (`+column+`, tx) VALUES (`+id[0]+`, $1)`, tx)
			}
			r.must(r.lookAtEnd(r.ctx))
			r.must(r.runPass(r.ctx))
			var rows int
			r.must(r.pool.QueryRow(r.ctx, `SELECT count(*) FROM public.outbox`).Scan(&rows))
			if rows != left {
				t.Errorf("id %s of column %s: %d rows are left, want %d", of, column, rows, left)
			}
		}
		r.exec(`DELETE FROM public.outbox`)
	}
}

// TestSchemaThatMayNotBeUsed: check names the right, and the columns of the table are known.
func TestSchemaThatMayNotBeUsed(t *testing.T) {
	r := newRig(t, time.Hour, outboxTable)
	r.exec(`CREATE SCHEMA "Shop"; CREATE TABLE "Shop"."Outbox" (LIKE public.outbox INCLUDING ALL)`)
	r.cfg.Tables[0].Schema, r.cfg.Tables[0].Name = "Shop", "Outbox"
	r.as("")
	role := "role_" + r.slot
	must := `GRANT USAGE ON SCHEMA "Shop" TO ` + role + `; GRANT SELECT, DELETE, UPDATE (id) ON "Shop"."Outbox" TO ` + role
	r.problem("USAGE of the schema, SELECT, DELETE, UPDATE of a column", must)
	r.must(CheckTables(r.ctx, r.cfg.Pool, r.cfg.Tables))
	r.exec(must)
	r.problem("")
	r.must(r.runPass(r.ctx))
}
