package dlq

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// allocated is what f allocates, in bytes, with what runs beside it.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
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
