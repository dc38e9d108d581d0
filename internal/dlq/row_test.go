package dlq

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

func TestShow(t *testing.T) {
	r := setup(t)
	n := r.put(sample{payload: []byte(`{"a": "б"}`), routingKey: "eu"})
	q := r.request(Replay, n)
	r.carryOut(q.ID, RequestFailed, "unroutable: NO_ROUTE")
	r.exec(`INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result) VALUES ($1, '', 'ann', 'replay', $2, 'a test', 'failed')`, r.slot, n)
	q = r.request(Replay, n)
	d, err := r.admin.Show(r.ctx, DeadLetters, n, true)
	r.must(err)
	if d.State != Replaying || *d.ID != "e-1" || d.Destination != "orders/eu" || d.Error != "body of # bytes" || d.ContentType != "application/json" {
		t.Errorf("it is shown as %+v", d)
	}
	if *d.Payload.Text != `{"a": "б"}` || *d.Headers.Text != `{"h": 1}` || *d.Traceparent != "00-trace" {
		t.Errorf("its contents are shown as %+v", d)
	}
	if len(d.Columns) != 2 || d.Columns[0].Name != "a" || *d.Columns[0].Value.Text != "bc" || d.Columns[1].Name != "d" || d.Columns[1].Value != nil {
		t.Errorf("its columns are %+v", d.Columns)
	}
	if len(d.Requests) != 2 || d.Requests[0].ID != q.ID || d.Requests[1].Result != "unroutable: NO_ROUTE" || len(d.Audit) != 1 || d.Audit[0].Result != "failed" {
		t.Errorf("its history is %+v and %+v", d.Requests, d.Audit)
	}

	hidden, err := r.admin.Show(r.ctx, DeadLetters, n, false)
	r.must(err)
	if out, err := json.Marshal(hidden); err != nil || strings.Contains(string(out), "б") || strings.Contains(string(out), `\"h\"`) || !hidden.Payload.Hidden || hidden.Columns != nil {
		t.Errorf("payloads are not to be shown: %s, %v", out, err)
	}
	waits := r.put(sample{of: Deferred})
	for want, look := range map[string]struct {
		of *Table
		n  int64
	}{
		"there is no dead letter 99 of slot":            {DeadLetters, 99},
		"there is no deferred row 99 of slot":           {Deferred, 99},
		"it is deferred: cdc-relay deferred show 2":     {DeadLetters, waits},
		"it is a dead letter: cdc-relay dead-letters s": {Deferred, n},
	} {
		if _, err := r.admin.Show(r.ctx, look.of, look.n, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %s", look.n, err, want)
		}
	}
}

// A row is shown with the broker's own words, where they are kept.
func TestErrorText(t *testing.T) {
	r := setup(t)
	n := r.put(sample{words: "no queue # of #"})
	const words = "no queue 12 of 0a1b2c3d-0000-4000-8000-0123456789ab"
	r.exec(`UPDATE cdc_relay.dead_letter SET error_text = $1`, words)
	d, err := r.admin.Show(r.ctx, DeadLetters, n, true)
	r.must(err)
	if d.ErrorText != words || d.Error != "no queue # of #" {
		t.Errorf("it is shown as %q and %q", d.ErrorText, d.Error)
	}
	r.exec(`UPDATE cdc_relay.dead_letter SET error_text = NULL`)
	if page, err := r.admin.List(r.ctx, DeadLetters, Filter{}, "", 1); err != nil || page.Rows[0].ErrorText != "no queue # of #" {
		t.Errorf("without the words it is %+v, %v", page.Rows, err)
	}
}

func TestContents(t *testing.T) {
	for in, want := range map[string]string{
		"":              `{"text":""}`,
		"{\n\t\"a\":1}": `{"text":"{\n\t\"a\":1}"}`,
		"\x00":          `{"base64":"AA=="}`,
		"\xff":          `{"base64":"/w=="}`,
		"\x1b[2J":       `{"base64":"G1sySg=="}`,
	} {
		out, err := json.Marshal(content([]byte(in), true))
		if err != nil || string(out) != want {
			t.Errorf("%q is %s, want %s", in, out, want)
		}
	}
	if content(nil, true) != nil || content(nil, false) != nil {
		t.Error("NULL has contents")
	}
}

// allocated is what f allocates, in bytes: the least of three times, because goroutines beside it
// allocate, too.
func allocated(f func()) uint64 {
	least := uint64(math.MaxUint64)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// grow makes a column of all dead letters n bytes long.
func (r *rig) grow(column string, n int) {
	r.t.Helper()
	r.exec(fmt.Sprintf(`UPDATE cdc_relay.dead_letter SET %s = convert_to(repeat('é', %d), 'UTF8')`, column, n/2))
}

// TestLongKeys: a list of rows whose keys are as long as rows may be takes little memory, says what
// is cut, and a key is found by its row.
func TestLongKeys(t *testing.T) {
	r := setup(t)
	const rows, size = 60, 900_000
	for range rows {
		r.put(sample{})
	}
	r.grow("key", size)
	var page Page
	var out []byte
	took := allocated(func() {
		var err error
		page, err = r.admin.List(r.ctx, DeadLetters, Filter{}, "", MaxLimit)
		r.must(err)
		out, err = json.Marshal(page)
		r.must(err)
	})
	if len(page.Rows) != rows || page.Next != "" || took > 16<<20 || len(out) > rows*2*listText {
		t.Errorf("%d rows, next %q, %d bytes of JSON, %d allocated", len(page.Rows), page.Next, len(out), took)
	}
	if first := page.Rows[0]; len(*first.Key) != listText || fmt.Sprint(first.Cut) != "[key]" {
		t.Errorf("the key has %d bytes, cut is %v", len(*first.Key), first.Cut)
	}
	d, err := r.admin.Show(r.ctx, DeadLetters, 1, true)
	if r.must(err); len(*d.Key) != showText || fmt.Sprint(d.Cut) != "[key]" {
		t.Errorf("the row itself shows %d bytes of its key, cut is %v", len(*d.Key), d.Cut)
	}
	var f Filter
	if r.must(r.admin.SameKey(r.ctx, 1, &f)); len(f.Key) != size {
		t.Errorf("the key of the row has %d bytes", len(f.Key))
	}
	job, err := r.admin.Start(r.ctx, Bulk{Kind: Discard, Filter: f, By: by})
	if r.must(err); job.Matched != rows {
		t.Errorf("%d rows have that key", job.Matched)
	}
	r.grow("key", 2<<20)
	var bad *BadInput
	if r.must(r.admin.SameKey(r.ctx, 1, &f)); !errors.As(f.Check(DeadLetters), &bad) {
		t.Errorf("a filter of %d bytes: %v", len(f.Key), f.Check(DeadLetters))
	}
}

// TestPagesOfBytes: when many values of many rows are long, a page ends before its limit, and the
// next goes on.
func TestPagesOfBytes(t *testing.T) {
	r := setup(t)
	var want []int64
	for range 400 {
		want = append([]int64{r.put(sample{})}, want...)
	}
	for _, column := range []string{"id", "aggregate", "key", "type", "route_name"} {
		r.grow(column, 4000)
	}
	page, err := r.admin.List(r.ctx, DeadLetters, Filter{}, "", MaxLimit)
	if r.must(err); len(page.Rows) < 100 || len(page.Rows) > 300 || page.Next == "" {
		t.Errorf("the first page has %d rows, next %q", len(page.Rows), page.Next)
	}
	if got := r.list(DeadLetters, Filter{}, MaxLimit); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the pages have %d rows: %v", len(got), got)
	}
}

// TestLongContents: of a large payload the beginning is shown, up to a whole character.
func TestLongContents(t *testing.T) {
	r := setup(t)
	n := r.put(sample{})
	r.grow("payload", 10<<20)
	r.exec(`UPDATE cdc_relay.dead_letter SET payload = 'a' || payload, headers = payload, raw = payload, traceparent = payload, fault = payload`)
	var d *Detail
	took := allocated(func() {
		var err error
		d, err = r.admin.Show(r.ctx, DeadLetters, n, true)
		r.must(err)
	})
	if len(*d.Payload.Text) != showBytes-1 || !d.Payload.Cut || !utf8.ValidString(*d.Payload.Text) || *d.PayloadBytes != 10<<20+1 || took > 36<<20 {
		t.Errorf("%d bytes of %d are shown, cut %v, %d allocated", len(*d.Payload.Text), *d.PayloadBytes, d.Payload.Cut, took)
	}
}

// TestLongWords: what operators write has a length, which the database keeps where they write by
// SQL.
func TestLongWords(t *testing.T) {
	r := setup(t)
	n := r.put(sample{})
	long := Requester{Who: "ann", Why: strings.Repeat("é", MaxReason+1)}
	fits := Requester{Who: "ann", Why: strings.Repeat("é", MaxReason)}
	large := Filter{Key: bytes.Repeat([]byte{'k'}, maxFilter+1)}
	var bad *BadInput
	for name, err := range map[string]error{
		"request": func() error { _, err := r.admin.Request(r.ctx, Action{Kind: Discard, N: n, By: long}); return err }(),
		"job":     func() error { _, err := r.admin.Start(r.ctx, Bulk{Kind: Discard, By: long}); return err }(),
		"resend":  func() error { _, err := r.admin.StartResend(r.ctx, Resend{By: long}); return err }(),
		"ids": func() error {
			_, err := r.admin.StartResend(r.ctx, Resend{Choice: Choice{IDs: [][]byte{make([]byte, maxStored)}}, By: by})
			return err
		}(),
		"cancel":   func() error { _, err := r.admin.Cancel(r.ctx, 1, long); return err }(),
		"withdraw": func() error { _, err := r.admin.Withdraw(r.ctx, 1, long); return err }(),
		"gap":      r.admin.CloseGap(r.ctx, 1, long),
		"filter":   func() error { _, err := r.admin.List(r.ctx, DeadLetters, large, "", 1); return err }(),
		"route": func() error {
			_, err := r.admin.Request(r.ctx, Action{Kind: Replay, N: n, Route: route(maxRoute + 1), By: by})
			return err
		}(),
	} {
		if !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	q, err := r.admin.Request(r.ctx, Action{Kind: Replay, N: n, Route: route(maxRoute), By: fits})
	if r.must(err); q.Why != fits.Why || len(*q.RouteName) != maxRoute {
		t.Errorf("got %+v", q)
	}
	for _, sql := range []string{
		`INSERT INTO cdc_relay.request (slot, system_id, kind, n, who, reason) VALUES ($1, '', 'discard', 99, 'eve', repeat('x', 1001))`,
		`INSERT INTO cdc_relay.request (slot, system_id, kind, n, who, route_name) VALUES ($1, '', 'replay', 99, 'eve', repeat('x', 1025)::bytea)`,
		`INSERT INTO cdc_relay.bulk (slot, system_id, kind, who, matched, in_dead_letters, reason) VALUES ($1, '', 'discard', 'eve', 1, true, repeat('x', 1001))`,
		`INSERT INTO cdc_relay.bulk (slot, system_id, kind, who, matched, in_dead_letters, reason, filter) VALUES ($1, '', 'discard', 'eve', 1, true, '', repeat('x', 2097153)::bytea)`,
	} {
		if _, err := r.pool.Exec(r.ctx, sql, r.slot); !sqlClass(err, "23514") {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// TestLongFilters: a leader reads the filters of its jobs in parts, and does all of them.
func TestLongFilters(t *testing.T) {
	r := setup(t)
	const jobs = 12
	n := r.put(sample{})
	r.grow("key", maxFilter-100)
	var f Filter
	r.must(r.admin.SameKey(r.ctx, n, &f))
	for range jobs {
		_, err := r.admin.Start(r.ctx, Bulk{Kind: Discard, Filter: f, By: by})
		r.must(err)
	}
	l := r.leader()
	list, err := l.jobs(r.ctx)
	if r.must(err); len(list) == 0 || len(list) > leaderFilters/maxFilter || len(list) == jobs {
		t.Errorf("%d jobs are read at once", len(list))
	}
	await.Until(t, "all jobs to have made their requests", func() bool {
		r.expand()
		return value[int](r, `SELECT count(*) FROM cdc_relay.bulk WHERE state = 'asking'`) == 0
	})
}

func route(n int) event.Route { return event.Route{Name: bytes.Repeat([]byte{'x'}, n)} }
