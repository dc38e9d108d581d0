package retention

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestPlan: a look reads the blocks that it is about, and finds ids by the indexes.
func TestPlan(t *testing.T) {
	r := newRig(t, time.Hour, outboxTable)
	r.exec(`INSERT INTO public.outbox SELECT i::text, now() FROM generate_series(1, 20000) i`)
	r.must(r.runPass())
	p := &pass{Retention: r.Retention}
	r.must(p.prepare(r.ctx))
	l := slices.Collect(maps.Values(r.leaves))[0]
	sql, args := p.rows(l)
	tx, err := r.pool.Begin(r.ctx)
	r.must(err)
	defer tx.Rollback(r.ctx)
	_, err = tx.Conn().PgConn().Exec(r.ctx, plan).ReadAll()
	r.must(err)
	for name, explained := range map[string]struct {
		sql  string
		args []any
	}{
		"look":   {sql.look(), p.withAge(append(slices.Clone(args), tid(0), tid(10)))},
		"remove": {sql.remove(), append(p.withAge(append(slices.Clone(args), tid(0), tid(10))), batchRows)},
	} {
		rows, err := tx.Query(r.ctx, "EXPLAIN "+explained.sql, explained.args...)
		r.must(err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		r.must(err)
		text := strings.Join(lines, "\n")
		for _, want := range []string{"Tid Range Scan on outbox t", "Index Scan using retry_id", "Index Scan using dead_letter_id"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the plan has no %q:\n%s", name, want, text)
			}
		}
		if name == "remove" && !strings.Contains(text, "Tid Scan on outbox d") {
			t.Errorf("remove: the plan does not delete by ctid:\n%s", text)
		}
	}
}
