package retention

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// TestPlan: the rows of a part are found by the index on their transaction.
func TestPlan(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.exec(`INSERT INTO public.outbox SELECT i::text, now() FROM generate_series(1, 20000) i`)
	d, err := sent.Describe(r.ctx, r.pool, r.cfg.Tables[0])
	r.must(err)
	tx, err := r.pool.Begin(r.ctx)
	r.must(err)
	defer tx.Rollback(r.ctx)
	_, err = tx.Conn().PgConn().Exec(r.ctx, plan).ReadAll()
	r.must(err)
	for name, explained := range map[string]struct {
		sql  string
		args []any
		want []string
	}{
		"find": {
			findSQL(d.Leaves[0], &d),
			[]any{r.slot, 1, d.OID, 0, []int64{1}, d.Family, d.Names},
			[]string{"Index Scan using outbox_tx on outbox t", "Hash", "using dead_letter_tx on dead_letter", "hashed SubPlan"},
		},
		"remove": {
			removeSQL(d.Leaves[0], &d),
			[]any{r.slot, 1, []pgtype.TID{}, []int64{}},
			[]string{"Tid Scan on outbox t", "Tid Scan on outbox d"},
		},
	} {
		rows, err := tx.Query(r.ctx, "EXPLAIN "+explained.sql, explained.args...)
		r.must(err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		r.must(err)
		text := strings.Join(lines, "\n")
		for _, want := range explained.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the plan has no %q:\n%s", name, want, text)
			}
		}
	}
}
