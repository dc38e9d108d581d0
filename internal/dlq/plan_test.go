package dlq

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// explained plays each query of an Admin a second time, to learn what it has read.
type explained struct {
	Querier
	r     *rig
	plans []plan // since it was emptied
}

// plan is a node of a plan with what it has done.
type plan struct {
	Node     string  `json:"Node Type"`
	Table    string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Plans    []plan
}

func (e *explained) see(sql string, args []any) {
	e.r.t.Helper()
	var text []byte
	e.r.must(e.r.pool.QueryRow(e.r.ctx, "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) "+sql, args...).Scan(&text))
	var plans []struct{ Plan plan }
	e.r.must(json.Unmarshal(text, &plans))
	e.plans = append(e.plans, plans[0].Plan)
}

func (e *explained) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	e.see(sql, args)
	return e.Querier.Query(ctx, sql, args...)
}

func (e *explained) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	e.see(sql, args)
	return e.Querier.QueryRow(ctx, sql, args...)
}

// read adds up the rows that plans have read of the tables that grow, and names those that they
// have read from one end to the other.
func read(plans []plan) (rows float64, whole []string) {
	for _, p := range plans {
		switch p.Table {
		case "retry", "dead_letter", "audit", "sent":
			rows += (p.Rows + p.Filtered) * p.Loops
			if p.Node == "Seq Scan" {
				whole = append(whole, p.Table)
			}
		}
		more, others := read(p.Plans)
		rows, whole = rows+more, append(whole, others...)
	}
	return rows, whole
}

// readsFew looks at all lists of the console beside so many dead letters, and logs how long the
// slowest page and the slowest count of groups have taken.
func readsFew(t *testing.T, deadLetters int) {
	r := setup(t)
	const many, limit, most = 5_000, 50, 500
	r.put(sample{id: "rare", key: "rare", kind: "rare", aggregate: "rare", name: "rare", class: "transient", reason: "nacked", words: "rare words", state: Replayed})
	fill := func(of *Table, rows int, also string) {
		r.put(sample{of: of, name: "a", routingKey: "b"})
		n := r.next
		r.exec(fmt.Sprintf(`SET statement_timeout = 0; CREATE TABLE public.many AS SELECT t.*, i FROM %[1]s t, generate_series(1, %[2]d) i WHERE n = %[3]d - 1;
			UPDATE public.many SET n = %[3]d + i, idx = i, id = convert_to('id' || i, 'UTF8'), key = convert_to('key' || i, 'UTF8'), %[4]s;
			ALTER TABLE public.many DROP COLUMN i; INSERT INTO %[1]s SELECT * FROM public.many; DROP TABLE public.many; ANALYZE %[1]s; RESET statement_timeout`, of.name, rows, n, also))
		r.next += int64(rows) + 1
	}
	fill(DeadLetters, deadLetters, "died_at = died_at + i * interval '1 second', type = CASE i % 20 WHEN 0 THEN type ELSE convert_to('type' || i % 20, 'UTF8') END")
	deferred := max(many, deadLetters/5)
	fill(Deferred, deferred, "ordering_group = i, next_attempt = now() + i * interval '1 second'")
	r.exec(`INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result) SELECT $1, '', 'ann', 'purge', i, '', '' FROM generate_series(1, $2::int) i`, r.slot, many)
	r.exec(`INSERT INTO cdc_relay.sent (slot, relation, chunk, first_tx, last_tx, digests) SELECT $1, i % 3, i, 1, 2, '{}' FROM generate_series(1, $2::int) i`, r.slot, many)
	r.exec(`ANALYZE cdc_relay.audit, cdc_relay.sent`)
	db := &explained{Querier: r.pool, r: r}
	admin := New(db, r.slot)
	check := func(what string, most float64) {
		t.Helper()
		if rows, whole := read(db.plans); len(db.plans) == 0 || rows > most || whole != nil {
			t.Errorf("%s has %d queries, which read %.0f rows, and all of %v", what, len(db.plans), rows, whole)
		}
		db.plans = nil
	}
	var slowest, slowestCount time.Duration
	timed := func(longest *time.Duration, do func(*Admin) error) {
		t.Helper()
		began := time.Now()
		r.must(do(r.admin))
		*longest = max(*longest, time.Since(began))
		r.must(do(admin))
	}
	for name, f := range map[string]Filter{
		"all": {}, "a state": {State: Open}, "a rare state": {State: Replayed}, "a class": {Class: "permanent"}, "a rare class": {Class: "transient"},
		"a reason": {Error: "too_large"}, "a rare reason": {Error: "nacked"}, "words": {Error: "body of"}, "rare words": {Error: "RARE"}, "no words": {Error: "nobody said"},
		"an id": {ID: []byte("id7")}, "a key": {Key: []byte("key7")}, "no key": {Key: []byte("none")}, "an aggregate": {Aggregate: []byte("order")}, "a rare aggregate": {Aggregate: []byte("rare")},
		"a type": {Type: []byte("created")}, "a rare type": {Type: []byte("rare")}, "an exchange": {Destination: []byte("a")}, "a destination": {Destination: []byte("a/b")}, "a rare one": {Destination: []byte("rare")},
		"a time": {From: r.at.Add(many / 2 * time.Second)},
	} {
		var page Page
		timed(&slowest, func(a *Admin) (err error) {
			page, err = a.List(r.ctx, DeadLetters, f, "", limit)
			return err
		})
		check("a page of "+name, most)
		if page.Next != "" {
			timed(&slowest, func(a *Admin) error {
				_, err := a.List(r.ctx, DeadLetters, f, page.Next, limit)
				return err
			})
			check("the second page of "+name, most)
		}
	}
	counted := func(of *Table, by, state string) {
		t.Helper()
		timed(&slowestCount, func(a *Admin) error {
			_, err := a.Groups(r.ctx, of, by, state)
			return err
		})
		if rows, _ := read(db.plans); rows > maxLooked+most { // also of a table that is smaller
			t.Errorf("%s: a count by %s of what is %q reads %.0f rows", of.name, by, state, rows)
		}
		db.plans = nil
	}
	for _, by := range GroupNames {
		counted(DeadLetters, by, Open)
		counted(DeadLetters, by, Replayed)
		counted(Deferred, by, "")
	}
	list, err := r.admin.Groups(r.ctx, Deferred, "type", "")
	r.must(err)
	if g := list.Items[0]; g.Count != int64(min(deferred+1, maxLooked)) || g.OrMore != (deferred >= maxLooked) || list.More != g.OrMore {
		t.Errorf("of %d deferred rows a type has %+v, more types: %t", deferred+1, g, list.More)
	}
	t.Logf("beside %d dead letters a page takes at most %s, a count of groups %s", deadLetters, slowest, slowestCount)
	page, err := admin.List(r.ctx, Deferred, Filter{}, "", limit)
	r.must(err)
	check("a page of deferred rows", most)
	_, err = admin.List(r.ctx, Deferred, Filter{}, page.Next, limit)
	r.must(err)
	check("the second page of deferred rows", most)
	_, _, err = admin.Holding(r.ctx)
	r.must(err)
	check("what holds up others", most)
	audit, err := admin.Audit(r.ctx, AuditFilter{}, "", limit)
	r.must(err)
	check("a page of the audit", many+most) // and where the next one begins
	_, err = admin.Audit(r.ctx, AuditFilter{N: new(int64(7))}, audit.Next, limit)
	r.must(err)
	check("the audit of a row", most)
	_, err = admin.SentTables(r.ctx)
	r.must(err)
	check("the sent set", 3*(sentLooked+10))
}
