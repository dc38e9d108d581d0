// The rows of a gap, copied into the retry table.

package replication

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/repair"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/retry/postgres"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// nowhere is where all events go.
type nowhere struct{}

func (nowhere) Place(*event.Event) (sink.Place, bool) {
	return sink.Place{ExchangeOrTopic: 7, Dest: 9}, true
}
func (nowhere) Route(*event.Event) event.Route { return event.Route{Name: []byte("events")} }

// deferring is a line that defers everything, as the retry writer would.
type deferring struct {
	*replicationtest.Recorder
	store       *postgres.Store
	incarnation int64
	n           int64
}

func (b *bench) deferAll() {
	newLine := b.cfg.NewLine
	b.cfg.NewLine = func(ctx context.Context, at source.Term) (source.Line, error) {
		if _, err := newLine(ctx, at); err != nil {
			return nil, err
		}
		s := postgres.New(at.Pool, source.BackendPID, store.Config{
			Slot: b.cfg.Slot, SystemID: at.SystemID, Incarnation: at.Incarnation, Epoch: at.Epoch, Columns: b.cfg.Columns,
		})
		n, err := s.LeaseNumbers(ctx)
		return &deferring{b.current(), s, at.Incarnation, n}, err
	}
}

// Event defers the event before it is recorded.
func (d *deferring) Event(ctx context.Context, ev *event.Event) error {
	place, _ := nowhere{}.Place(ev)
	group, ordered := event.PerKey.Group(ev, place.ExchangeOrTopic)
	row := store.Row{N: d.n, Incarnation: d.incarnation, Event: *ev, Group: group, Ordered: ordered, ExchangeOrTopic: place.ExchangeOrTopic, Dest: place.Dest}
	route := nowhere{}.Route(ev)
	row.Event.Route = &route
	d.n++
	if err := d.store.Defer(ctx, []*store.Row{&row}); err != nil {
		return err
	}
	waits := *ev // it is not sent
	waits.Origin = event.Origin{}
	return d.Recorder.Event(ctx, &waits)
}

// recover runs recover with options that change may change.
func (b *bench) recover(change ...func(*repair.RecoverOptions)) (repair.Report, error) {
	b.t.Helper()
	opt := repair.RecoverOptions{Sink: nowhere{}, Reason: "test"}
	for _, c := range change {
		c(&opt)
	}
	return repair.Recover(await.Context(b.t), b.cfg, opt)
}

func anyOrder(o *repair.RecoverOptions) { o.Unordered = true }

// allRows chooses rows that do not say which transaction wrote them.
func allRows(o *repair.RecoverOptions) { o.Where = "true" }

func by(column string) func(*repair.RecoverOptions) {
	return func(o *repair.RecoverOptions) { o.OrderBy = column }
}

// waiting are the ids in the retry table, in the order in which they are sent.
func (b *bench) waiting() []string {
	b.t.Helper()
	var ids []string
	b.scan(&ids, `SELECT coalesce(array_agg(convert_from(id, 'UTF8') ORDER BY incarnation, commit_lsn, idx), '{}') FROM cdc_relay.retry WHERE slot = $1`, b.cfg.Slot)
	return ids
}

func (b *bench) wantWaiting(ids ...string) {
	b.t.Helper()
	if got := b.waiting(); !slices.Equal(got, ids) {
		b.t.Errorf("in the retry table are %q, want %q", got, ids)
	}
}

// lost is a bench whose slot was dropped after one event, which is in the retry table.
func lost(t *testing.T) *bench {
	t.Helper()
	b := shared(t)
	b.losesItsSlot()
	return b
}

func (b *bench) losesItsSlot() {
	b.t.Helper()
	b.deferAll()
	b.settledRun("before").endClean()
	b.dropSlot()
}

// A row that is read from the table is the event that the stream has made of it: the same row of
// the retry table, but for its position and the time of its commit.
func TestRecoveredAsStreamed(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"UTF8", "LATIN1"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, servers.OwnPostgres(t).DatabaseOf(t, encoding))
			for _, sql := range []string{
				`SET client_encoding = 'UTF8'`, `DROP TABLE outbox`, `CREATE TYPE mood AS ENUM ('gut', 'grün')`, `CREATE DOMAIN name AS varchar(20)`, `CREATE TYPE pair AS (a int, b text)`,
				`CREATE TABLE outbox (id text, gone int, agg text, "kéy" name, typ varchar(10), payload bytea, body jsonb, at timestamptz, trace text, heads jsonb,
					num numeric(10,2), f float8, b bool, d date, i interval, ts timestamp, tz timetz, arr text[], m mood, p pair, r int4range, u uuid, j json, bits bit(3), doubled int GENERATED ALWAYS AS (length(id) * 2) STORED)`,
				`ALTER TABLE outbox DROP COLUMN gone`,
			} {
				b.exec(sql)
			}
			one := func(n ...string) decode.Names { return decode.Names{Any: n} }
			b.cfg.Tables[0].Mapping = decode.Mapping{
				ID: one("id"), Aggregate: one("agg"), Key: one("kéy"), Type: one("typ"), Payload: one("payload", "body"), Timestamp: one("at"), Traceparent: one("trace"), Headers: one("heads"),
			}
			b.cfg.Columns = []string{"num", "f", "b", "d", "i", "ts", "tz", "arr", "m", "p", "r", "u", "j", "bits"}
			b.cfg.Shapes = true
			b.deferAll()
			r := b.streaming()
			r.endClean()
			b.exec(`INSERT INTO outbox VALUES
				('1', 'a', 'k', 't', '\x00ff', NULL, '2026-01-02 03:04:05.678901+02', 'tp', '{"h": "é"}', 1.5, 0.1, true, '2026-01-02', '1 day 2:03', '2026-01-02 03:04', '03:04+02', '{a,NULL,"b c"}', 'grün', '(1,"x y")', '[1,5)', '6f1b0c0e-1111-2222-3333-444455556666', '{"a":  1}', '101'),
				('2', 'ä', 'k', NULL, NULL, '{"b": 1, "a": [1, 2]}', '2026-01-02', NULL, NULL, NULL, 'NaN', NULL, 'infinity', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
				('3', '', 'k', '', '', NULL, '1999-12-31 23:59:59', '', NULL, 100000, 1e300, false, NULL, '-1 mon', NULL, NULL, '{}', 'gut', '(,)', 'empty', NULL, 'null', NULL)`)
			b.exec(`INSERT INTO outbox VALUES (NULL, 'a', 'k', 't', '\x01', NULL, '2026-01-01'), ('5', 'a', NULL, 't', '\xe9', NULL, '2026-01-01'), ('6', 'a', 'k', 't', '\x01', NULL, 'infinity')`)
			const rows, faults = 6, 2
			r = b.streaming()
			await.Until(t, "the rows to be deferred", func() bool { return b.text(`SELECT count(*)::text FROM cdc_relay.retry`) == fmt.Sprint(rows) })
			r.endClean()
			b.exec(`CREATE TABLE streamed AS SELECT * FROM cdc_relay.retry`)
			b.exec(`DELETE FROM cdc_relay.retry`)
			b.dropSlot()
			report, err := b.recover(by("id"), func(o *repair.RecoverOptions) { o.Where = "id IS NOT NULL" })
			await.Must(t, err)
			if report.Recovered != int64(rows-1) {
				t.Errorf("recovered %d rows, want %d", report.Recovered, rows-1)
			}
			b.dropSlot()
			report, err = b.recover(anyOrder, allRows)
			await.Must(t, err)
			if report.Recovered != 1 || report.Held != int64(rows-1) {
				t.Errorf("recovered %d rows, and %d were there; want 1 and %d", report.Recovered, report.Held, rows-1)
			}
			// What has no key is grouped by its position. A row whose timestamp is NULL has the
			// time of its commit, and so has one with a fault in it.
			const shown = `SELECT string_agg((to_jsonb(r) - '{incarnation,commit_lsn,idx,n,deferred_at,commit_time}'::text[]
				- CASE WHEN keyed THEN '{}' ELSE '{hash,ordering_group}'::text[] END - CASE WHEN fault IS NOT NULL THEN '{event_time}'::text[] ELSE '{}' END)::text, E'\n' ORDER BY id) FROM `
			want, got := b.text(shown+`streamed r`), b.text(shown+`cdc_relay.retry r`)
			if want != got {
				t.Errorf("recovered:\n%s\nwant, as streamed:\n%s", got, want)
			}
			if n := strings.Count(want, `"fault": "`); n != faults {
				t.Errorf("%d rows have a fault, want %d:\n%s", n, faults, want)
			}
		})
	}
}

// Events that were deferred before stay before, and are not copied; what is committed later comes
// later.
func TestRecoverBehindWhatWaits(t *testing.T) {
	b := lost(t)
	b.exec(`INSERT INTO outbox SELECT 'gap ' || i, '{}' FROM generate_series(1, 3) i`)
	report, err := b.recover(by("id"))
	await.Must(t, err)
	if report.Recovered != 3 || report.Held != 1 {
		t.Errorf("%+v", report)
	}
	b.wantWaiting("before", "gap 1", "gap 2", "gap 3")
	r := b.streaming()
	b.insert("after")
	r.waitSeen("after")
	b.wantSeen("after")
	b.wantWaiting("before", "gap 1", "gap 2", "gap 3", "after")
	r.endClean()
	if n := b.text(`SELECT count(DISTINCT (commit_lsn, idx))::text || ' of ' || count(*) FROM cdc_relay.retry`); n != "5 of 5" {
		t.Errorf("%s positions are different", n)
	}
	if got := b.text(`SELECT count(*)::text FROM cdc_relay.retry WHERE ('x' || lpad(split_part(commit_lsn::text, '/', 2), 8, '0'))::bit(32)::int % 8 <> 0`); got != "3" {
		t.Errorf("%s positions are no commit's, want the 3 recovered ones", got)
	}
}
