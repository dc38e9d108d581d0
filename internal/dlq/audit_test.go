package dlq

import (
	"fmt"
	"testing"
	"time"
)

// audited is the results of all pages of the audit, of at most limit entries each.
func (r *rig) audited(f AuditFilter, limit int) (results []string) {
	r.t.Helper()
	for cursor := ""; ; {
		page, err := r.admin.Audit(r.ctx, f, cursor, limit)
		r.must(err)
		for _, e := range page.Items {
			results = append(results, e.Result)
		}
		if cursor = page.Next; cursor == "" {
			return results
		}
	}
}

// The audit is read page by page, the newest first, of the own slot alone.
func TestAudit(t *testing.T) {
	r := setup(t)
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i, e := range []struct {
		slot, who, action string
		n                 int64
	}{{r.slot, "ann", "replay", 7}, {"other", "ann", "replay", 7}, {r.slot, "bob", "replay", 7}, {r.slot, "ann", "cancel", 0}, {r.slot, "ann", "replay", 8}} {
		r.exec(`INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result, at, request) VALUES ($1, '', $2, $3, $4, 'a test', $5, $6, 3)`,
			e.slot, e.who, e.action, e.n, fmt.Sprint(i), noon.Add(time.Duration(i)*time.Hour))
	}
	for _, c := range []struct {
		f    AuditFilter
		want string
	}{
		{AuditFilter{}, "[4 3 2 0]"},
		{AuditFilter{Who: "ann"}, "[4 3 0]"},
		{AuditFilter{Action: "replay"}, "[4 2 0]"},
		{AuditFilter{N: new(int64(7))}, "[2 0]"},
		{AuditFilter{N: new(int64(7)), Who: "bob"}, "[2]"},
		{AuditFilter{N: new(int64(0))}, "[3]"},
		{AuditFilter{From: noon.Add(2 * time.Hour), To: noon.Add(4 * time.Hour)}, "[3 2]"},
		{AuditFilter{Who: "nobody"}, "[]"},
	} {
		for _, limit := range []int{1, 2, MaxLimit} {
			if got := fmt.Sprint(r.audited(c.f, limit)); got != c.want {
				t.Errorf("%+v in pages of %d gives %s, want %s", c.f, limit, got, c.want)
			}
		}
	}
	page, err := r.admin.Audit(r.ctx, AuditFilter{}, "", 1)
	r.must(err)
	if e := page.Items[0]; e.Who != "ann" || e.Action != "replay" || e.N != 8 || *e.Request != 3 || e.Why != "a test" || !e.At.Equal(noon.Add(4*time.Hour)) || e.Seq == 0 {
		t.Errorf("it is %+v", e)
	}
}

// A page looks at a bounded number of entries, and the next one goes on behind them.
func TestAuditOfMany(t *testing.T) {
	r := setup(t)
	put := func(who string, n int) {
		r.exec(`INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result) SELECT $1, '', $2, 'purge', 0, '', $2 FROM generate_series(1, $3::int) i`, r.slot, who, n)
	}
	put("ann", 2)
	put("bob", auditLooked)
	for _, f := range []AuditFilter{{Who: "ann"}, {Who: "ann", N: new(int64)}} {
		page, err := r.admin.Audit(r.ctx, f, "", 10)
		r.must(err)
		if len(page.Items) != 0 || page.Next == "" {
			t.Errorf("a page has %d entries, and next %q", len(page.Items), page.Next)
		}
		if got := fmt.Sprint(r.audited(f, 10)); got != "[ann ann]" {
			t.Errorf("all pages have %s", got)
		}
	}
}

// Open gaps and the sent set are shown as far as they are the slot's own.
func TestGapsAndSentTables(t *testing.T) {
	r := setup(t)
	r.exec(`INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason, from_lsn, until_lsn, recovered_at)
		SELECT s, $2, 1, f, 'a drill', '0/10', NULL, CASE f WHEN 'closed' THEN now() END FROM (VALUES ($1::text, 'open'), ($1, 'closed'), ('other', 'open')) v (s, f)`, r.slot, r.system())
	gaps, err := r.admin.Gaps(r.ctx)
	r.must(err)
	if len(gaps) != 1 || gaps[0].Finding != "open" || gaps[0].Reason != "a drill" || *gaps[0].FromLSN != "0/10" || gaps[0].UntilLSN != nil || gaps[0].Command != fmt.Sprintf("cdc-relay resend --gap %d --dry-run", gaps[0].Gap) {
		t.Errorf("the gaps are %+v", gaps)
	}
	by := Requester{Who: "token ann", Why: "sent by hand"}
	r.must(r.admin.CloseGap(r.ctx, gaps[0].Gap, by))
	if got := value[string](r, `SELECT who || ': ' || why || ': ' || result FROM cdc_relay.audit`); got != fmt.Sprintf("token ann: sent by hand: gap %d: closed, nothing is sent", gaps[0].Gap) {
		t.Errorf("the audit says %q", got)
	}
	if gaps, err = r.admin.Gaps(r.ctx); err != nil || len(gaps) != 0 {
		t.Errorf("a closed gap is shown: %+v, %v", gaps, err)
	}

	outbox := value[uint32](r, `SELECT 'public.outbox'::regclass::oid`)
	r.exec(`INSERT INTO cdc_relay.sent (slot, relation, chunk, first_tx, last_tx, digests, at) SELECT s, o::oid, c, 1, 2, '{}', a::timestamptz FROM (VALUES
		($1::text, $2::bigint, 1, '2026-11-20T12:00:00Z'), ($1, $2, 2, '2026-11-20T13:00:00Z'), ($1, $2, 3, 'infinity'), ($1, 1, 1, 'infinity'), ('other', $2, 1, '2026-11-21T12:00:00Z')) v (s, o, c, a)`, r.slot, int64(outbox))
	tables, err := r.admin.SentTables(r.ctx)
	r.must(err)
	if len(tables) != 2 || tables[0] != (SentTable{Relation: 1, Records: 1}) || tables[1].Table != "public.outbox" || tables[1].Relation != outbox || tables[1].Records != 3 ||
		tables[1].Last.Format(time.RFC3339) != "2026-11-20T13:00:00Z" {
		t.Errorf("the sent set is %+v", tables)
	}
	r.exec(`INSERT INTO cdc_relay.sent (slot, relation, chunk, first_tx, last_tx, digests) SELECT $1, 1, c, 1, 2, '{}' FROM generate_series(2, $2::int) c`, r.slot, sentLooked+1)
	tables, err = r.admin.SentTables(r.ctx)
	r.must(err)
	if len(tables) != 2 || tables[0].Records != sentLooked || !tables[0].OrMore || tables[1].Records != 3 || tables[1].OrMore {
		t.Errorf("beside many records the sent set is %+v", tables)
	}
}

// An event that waits for a time of its own is shown with how many of its key wait behind it.
func TestHolding(t *testing.T) {
	r := setup(t)
	if list, more, err := r.admin.Holding(r.ctx); err != nil || list == nil || len(list) != 0 || more {
		t.Errorf("of an empty table: %v, %t, %v", list, more, err)
	}
	first := r.put(sample{of: Deferred, key: "1", backoff: true})
	r.put(sample{of: Deferred, key: "1"})
	r.put(sample{of: Deferred, key: "1"})
	other := r.put(sample{of: Deferred, key: "2", backoff: true})
	free := r.put(sample{of: Deferred, key: "3", backoff: true})
	r.put(sample{of: Deferred, key: "3"})
	many := r.put(sample{of: Deferred, key: "4", backoff: true})
	r.exec(`UPDATE cdc_relay.retry SET ordering_group = convert_from(key, 'UTF8')::int, next_attempt = next_attempt + n * interval '1 minute', ordered = n <> $1`, free)
	for range maxBehind + 5 {
		r.put(sample{of: Deferred, key: "4"})
	}
	r.exec(`UPDATE cdc_relay.retry SET ordering_group = 4 WHERE key = '4'::bytea`)
	list, more, err := r.admin.Holding(r.ctx)
	r.must(err)
	got := ""
	for _, h := range list {
		got += fmt.Sprintf("%d %s: %d %t; ", h.N, *h.Key, h.Behind, h.OrMore)
	}
	if want := fmt.Sprintf("%d 1: 2 false; %d 2: 0 false; %d 3: 0 false; %d 4: %d true; ", first, other, free, many, maxBehind); got != want || more {
		t.Errorf("got  %s\nwant %s, %t", got, want, more)
	}
	for range maxHolding {
		r.put(sample{of: Deferred, key: "5", backoff: true})
	}
	if list, more, err := r.admin.Holding(r.ctx); err != nil || len(list) != maxHolding || !more {
		t.Errorf("of many there are %d, %t, %v", len(list), more, err)
	}
}
