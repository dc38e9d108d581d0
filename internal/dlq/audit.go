// Lists for the console: the audit, the open gaps, the sent set, and the deferred events that hold
// up their key.

package dlq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// AuditFilter chooses entries of the audit. A field that is zero, or nil, matches everything.
type AuditFilter struct {
	Who, Action string
	N           *int64 // the number of a row; 0 chooses entries about no single row
	From, To    time.Time
}

// AuditEntry is an entry of the audit with its number.
type AuditEntry struct {
	Seq int64 `json:"seq"`
	Entry
	N       int64  `json:"n"` // the number of the row; 0 when the entry is about no single row
	Request *int64 `json:"request"`
}

// AuditPage is a page of the audit, the newest first.
type AuditPage struct {
	Items []AuditEntry `json:"items"`
	Next  string       `json:"next"` // the cursor of the next page; "" when there is none
}

// auditLooked is how many entries, of all slots, are looked at for one page. The audit may be long,
// because nothing purges it.
const auditLooked = 100_000

// Audit returns a page of the audit. cursor is the Next of the page before, or "". A page that is
// empty may have a Next, because of auditLooked.
func (a *Admin) Audit(ctx context.Context, f AuditFilter, cursor string, limit int) (page AuditPage, err error) {
	before := int64(math.MaxInt64)
	if cursor != "" {
		if before, err = strconv.ParseInt(cursor, 10, 64); err != nil {
			return page, &BadInput{"cursor", fmt.Sprintf("is %q, which no list has returned", cursor)}
		}
	}
	if limit < 1 || limit > MaxLimit {
		return page, &BadInput{"limit", fmt.Sprintf("is %d, want 1 to %d", limit, MaxLimit)}
	}
	w := where{args: []any{before}}
	from := fmt.Sprintf("(SELECT * FROM cdc_relay.audit WHERE seq < $1 ORDER BY seq DESC LIMIT %d) t", auditLooked)
	ofRow := f.N != nil && *f.N != 0 // an index has them, and there are few
	if ofRow {
		from = "cdc_relay.audit t"
		w.and("t.seq < $1")
	}
	if f.N != nil {
		w.and("t.n = ?", *f.N)
	}
	w.and("t.slot = ?", a.slot)
	for _, same := range []struct{ column, value string }{{"who", f.Who}, {"action", f.Action}} {
		if same.value != "" {
			w.and("t."+same.column+" = ?", same.value)
		}
	}
	if !f.From.IsZero() {
		w.and("t.at >= ?", f.From)
	}
	if !f.To.IsZero() {
		w.and("t.at < ?", f.To)
	}
	page.Items, err = all(ctx, a, "read cdc_relay.audit", `SELECT t.seq, t.at, left(t.who, 1000), left(t.action, 1000), left(t.why, 1000), left(t.result, 1000), t.n, t.request FROM `+from+
		` WHERE `+w.sql.String()+fmt.Sprintf(` ORDER BY t.seq DESC LIMIT %d`, limit+1), append([]any{again}, w.args...), func(row pgx.CollectableRow) (e AuditEntry, err error) {
		err = row.Scan(&e.Seq, &e.At, &e.Who, &e.Action, &e.Why, &e.Result, &e.N, &e.Request)
		e.At = e.At.UTC()
		return e, err
	})
	switch {
	case err != nil:
		return page, err
	case len(page.Items) > limit:
		page.Items = page.Items[:limit]
		page.Next = strconv.FormatInt(page.Items[limit-1].Seq, 10)
		return page, nil
	case ofRow:
		return page, nil
	}
	var last int64
	err = a.one(ctx, "read cdc_relay.audit", fmt.Sprintf(`SELECT seq FROM cdc_relay.audit WHERE seq < $1 ORDER BY seq DESC OFFSET %d LIMIT 1`, auditLooked-1), []any{before}, &last)
	if errors.Is(err, pgx.ErrNoRows) {
		return page, nil
	}
	page.Next = strconv.FormatInt(last, 10)
	return page, err
}

// Gap is an interval that an operator has accepted as missing, and whose rows may still never have
// been sent.
type Gap struct {
	Gap        int64     `json:"gap"`
	Finding    string    `json:"finding"` // the ID of the finding that was accepted
	Reason     string    `json:"reason"`
	FromLSN    *string   `json:"from_lsn"`  // null when it is not known
	UntilLSN   *string   `json:"until_lsn"` // null while it has not ended
	AcceptedAt time.Time `json:"accepted_at"`
	Command    string    `json:"command"`
}

// maxShown is how many gaps, or tables of the sent set, are shown.
const maxShown = 100

// Gaps returns the open gaps, the oldest first.
func (a *Admin) Gaps(ctx context.Context) ([]Gap, error) {
	return all(ctx, a, "read cdc_relay.gap", `SELECT id, left(finding, 100), left(reason, 1000), from_lsn::text, until_lsn::text, accepted_at FROM cdc_relay.gap t
		WHERE `+mine+` AND recovered_at IS NULL ORDER BY id LIMIT $2`, []any{a.slot, maxShown}, func(row pgx.CollectableRow) (g Gap, err error) {
		err = row.Scan(&g.Gap, &g.Finding, &g.Reason, &g.FromLSN, &g.UntilLSN, &g.AcceptedAt)
		g.AcceptedAt, g.Command = g.AcceptedAt.UTC(), fmt.Sprintf("cdc-relay resend --gap %d --dry-run", g.Gap)
		return g, err
	})
}

// SentTable is what the sent set has of a table, or of one partition.
type SentTable struct {
	Table    string     `json:"table"` // "" when the table no longer exists
	Relation uint32     `json:"relation"`
	Last     *time.Time `json:"last_recorded_at"`
	Records  int64      `json:"records"`
	OrMore   bool       `json:"or_more"` // Last, too, is of the records that were counted
}

// sentLooked is how many records of a table, its newest, are looked at.
const sentLooked = maxLooked / maxShown

// SentTables returns the tables of the slot's sent set, by name.
func (a *Admin) SentTables(ctx context.Context) ([]SentTable, error) {
	return all(ctx, a, "read cdc_relay.sent", `WITH RECURSIVE g AS (SELECT (SELECT min(relation) FROM cdc_relay.sent WHERE slot = $1::text) AS relation
			UNION ALL SELECT (SELECT min(t.relation) FROM cdc_relay.sent t WHERE t.slot = $1::text AND t.relation > g.relation) FROM g WHERE g.relation IS NOT NULL)
		SELECT coalesce(n.nspname || '.' || c.relname, ''), s.relation, s.last, s.records, s.or_more
		FROM (SELECT g.relation, c.* FROM (SELECT relation FROM g WHERE relation IS NOT NULL LIMIT $3) g CROSS JOIN LATERAL (
			SELECT max(at) FILTER (WHERE at < 'infinity') AS last, least(count(*), $2) AS records, count(*) > $2 AS or_more
			FROM (SELECT at FROM cdc_relay.sent t WHERE t.slot = $1::text AND t.relation = g.relation ORDER BY t.chunk DESC, t.n DESC LIMIT $2::bigint + 1) t) c) s
		LEFT JOIN pg_class c ON c.oid = s.relation LEFT JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY 1, 2`,
		[]any{a.slot, sentLooked, maxShown}, func(row pgx.CollectableRow) (t SentTable, err error) {
			err = row.Scan(&t.Table, &t.Relation, &t.Last, &t.Records, &t.OrMore)
			t.Last = utc(t.Last)
			return t, err
		})
}

// Holding is a deferred event that waits for its own next attempt, and holds up later events of its
// key.
type Holding struct {
	Row
	// deferred events of its key behind it; with OrMore there may be more
	Behind int64 `json:"behind"`
	OrMore bool  `json:"behind_or_more"`
}

// The bounds of Holding.
const (
	maxHolding = 50
	maxBehind  = 200 // for each of them
)

// Holding returns the events that are tried again first, and whether there are more.
func (a *Admin) Holding(ctx context.Context) (list []Holding, more bool, err error) {
	rows, more, err := a.rows(ctx, "SELECT "+columnList(Deferred, listText)+" FROM cdc_relay.retry t WHERE "+mine+
		fmt.Sprintf(" AND t.next_attempt IS NOT NULL ORDER BY t.next_attempt, t.n LIMIT %d", maxHolding+1), []any{a.slot}, listText, maxHolding)
	if err != nil || len(rows) == 0 {
		return []Holding{}, false, err
	}
	list = make([]Holding, len(rows))
	ns, at := make([]int64, len(rows)), make(map[int64]*Holding, len(rows))
	for i := range rows {
		list[i].Row, ns[i], at[rows[i].N] = rows[i], rows[i].N, &list[i]
	}
	counted, err := a.db.Query(ctx, fmt.Sprintf(`SELECT t.n, (SELECT count(*) FROM (SELECT FROM cdc_relay.retry b WHERE b.slot = t.slot AND b.ordering_group = t.ordering_group
			AND (b.incarnation, b.commit_lsn, b.idx) > (t.incarnation, t.commit_lsn, t.idx) LIMIT %d) b) FROM cdc_relay.retry t WHERE t.n = ANY ($2) AND t.slot = $1 AND t.ordered`, maxBehind+1),
		again, a.slot, ns)
	if err == nil {
		var n, behind int64
		_, err = pgx.ForEachRow(counted, []any{&n, &behind}, func() error {
			at[n].Behind, at[n].OrMore = min(behind, maxBehind), behind > maxBehind
			return nil
		})
	}
	return list, more, explain("count what waits behind", err)
}
