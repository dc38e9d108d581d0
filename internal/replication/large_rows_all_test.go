//go:build testall

// Rows over source.max_event_bytes: as they come from the stream, from a copy of the table, and
// whole for a replay.

package replication

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/repair"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// A large row is the same row of the retry table whether the stream or recover has read it: with
// its id and its size, and without its large values. A replay has what a stream without the limit
// has.
func TestRecoverLargeRow(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"UTF8", "LATIN1"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, servers.OwnPostgres(t).DatabaseOf(t, encoding))
			for _, sql := range []string{
				`SET client_encoding = 'UTF8'`, `DROP TABLE outbox`, `CREATE TYPE pair AS (a int, b text)`,
				// a cast to text is the owner's function
				`CREATE FUNCTION never(pair) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$`, `CREATE CAST (pair AS text) WITH FUNCTION never(pair)`,
				`CREATE TABLE outbox (id text, agg text, "kéy" text, typ text, payload bytea, body jsonb, heads jsonb, p pair, other text)`,
			} {
				b.exec(sql)
			}
			one := func(n ...string) decode.Names { return decode.Names{Any: n} }
			b.cfg.Tables[0].Mapping = decode.Mapping{ID: one("id"), Aggregate: one("agg"), Key: one("kéy"), Type: one("typ"), Payload: one("payload", "body"), Headers: one("heads")}
			b.cfg.Columns, b.cfg.MaxEventBytes = []string{"p"}, 64<<10
			b.deferAll()
			r := b.streaming()
			r.endClean()
			const large = `repeat('é1234567', 9000)`
			b.exec(`INSERT INTO outbox VALUES
				('payload', 'a', 'k', 't', convert_to(` + large + `, 'UTF8'), NULL, '{}', NULL, NULL),
				('body', 'a', 'ké', 't', NULL, to_jsonb(` + large + `), NULL, '(1,x)', NULL),
				('heads', 'a', 'k', 't', '\x01', NULL, jsonb_build_object('h', ` + large + `), NULL, 'small'),
				('pair', 'a', 'k', 't', '\x01', NULL, NULL, row(NULL, ` + large + `)::pair, NULL),
				('key', 'a', ` + large + `, 't', '\x01', NULL, NULL, NULL, NULL),
				('small', 'a', 'k', 't', convert_to(repeat('x', 30000), 'UTF8'), NULL, NULL, NULL, NULL),
				(` + large + `, 'a', 'k', 't', '\x01', NULL, NULL, NULL, NULL),
				('other', 'a', 'k', 't', '\x01', NULL, NULL, NULL, ` + large + `),
				('twice', 'a', 'k', 't', convert_to(` + large + `, 'UTF8'), NULL, NULL, NULL, NULL),
				('twice', 'a', 'k', 't', '\x01', NULL, NULL, NULL, NULL),
				('payload and a pair of NULLs', 'a', 'k', 't', convert_to(` + large + `, 'UTF8'), NULL, NULL, row(NULL, NULL)::pair, NULL)`)
			r = b.streaming()
			await.Until(t, "the rows to be deferred", func() bool { return b.text(`SELECT count(*)::text FROM cdc_relay.retry`) == "11" })
			r.endClean()
			b.exec(`CREATE TABLE streamed AS SELECT * FROM cdc_relay.retry`)
			b.exec(`DELETE FROM cdc_relay.retry`)
			b.dropSlot()
			report, err := b.recover(anyOrder, allRows)
			await.Must(t, err)
			if report.Recovered != 11 {
				t.Errorf("recovered %d rows, want 11", report.Recovered)
			}
			const shown = `SELECT string_agg((to_jsonb(r) - '{incarnation,commit_lsn,idx,n,deferred_at,commit_time,event_time}'::text[]
				- CASE WHEN keyed THEN '{}' ELSE '{hash,ordering_group}'::text[] END)::text, E'\n' ORDER BY id, payload) FROM `
			want, got := b.text(shown+`streamed r`), b.text(shown+`cdc_relay.retry r`)
			if want != got {
				t.Errorf("recovered:\n%s\nwant, as streamed:\n%s", got, want)
			}
			lacking := b.text(`SELECT string_agg(coalesce(convert_from(id, 'UTF8'), '-'), ', ' ORDER BY idx) FROM streamed WHERE left_out = 'public.outbox' AND bytes > 65536 AND payload IS NULL OR id IS NULL`)
			if lacking != "payload, body, -, twice, payload and a pair of NULLs" {
				t.Errorf("these lack their payload or id: %s", lacking)
			}
			if longest := b.text(`SELECT max(greatest(octet_length(id), octet_length(key), octet_length(payload), octet_length(headers), octet_length(columns)))::text FROM streamed`); longest != "30000" {
				t.Errorf("a value of %s bytes was kept", longest)
			}
			b.readWhole()
		})
	}
}

// lacking are the events of table streamed that lack values.
func (b *bench) lacking() (events []*event.Event) {
	b.t.Helper()
	rows, err := b.conn.Query(await.Context(b.t), `SELECT id, commit_lsn, idx, commit_time, left_out, bytes FROM streamed WHERE left_out IS NOT NULL ORDER BY idx`)
	await.Must(b.t, err)
	var id []byte
	var pos event.Position
	var at time.Time
	var left event.LeftOut
	_, err = pgx.ForEachRow(rows, []any{&id, &pos.Commit, &pos.Index, &at, &left.Table, &left.Bytes}, func() error {
		of := left
		events = append(events, &event.Event{ID: id, Position: pos, CommitTime: at, LeftOut: &of})
		id = nil
		return nil
	})
	await.Must(b.t, err)
	return events
}

// readWhole reads the rows of events that lack values.
func (b *bench) readWhole() {
	b.t.Helper()
	pool, err := source.Connect(await.Context(b.t), b.cfg)
	await.Must(b.t, err)
	defer pool.Close()
	whole, events := map[string]string{}, b.lacking()
	for _, of := range events {
		ev, why, err := repair.ReadRow(await.Context(b.t), pool, b.cfg, of)
		switch {
		case err != nil:
			b.t.Errorf("%s: %v", of.ID, err)
		case why != "":
			whole[string(of.ID)] = why
		default:
			whole[string(of.ID)] = fmt.Sprint(len(ev.Payload), len(ev.Headers), len(ev.Key), len(ev.Columns[0]), ev.Ordered)
			if ev.LeftOut != nil || ev.Position != of.Position || !ev.CommitTime.Equal(of.CommitTime) {
				b.t.Errorf("%s: read as %s of %s, lacks %v", of.ID, ev.Position, ev.CommitTime, ev.LeftOut)
			}
		}
	}
	want := map[string]string{
		"payload": "81000 2 1 0 true", "body": "81002 0 3 5 true", "heads": "1 81009 1 0 true", "pair": "1 0 1 81003 true", "key": "1 0 81000 0 true",
		"payload and a pair of NULLs": "81000 0 1 3 true",
		"twice":                       "several rows of public.outbox have this id: it cannot be told which one it is",
		"":                            "its id is not known (NULL, or itself too large): insert the row again, and discard this dead letter",
	}
	if !reflect.DeepEqual(whole, want) {
		b.t.Errorf("read as a whole:\n%v\nwant\n%v", whole, want)
	}
	gone := *events[0]
	b.exec(`DELETE FROM outbox WHERE id = 'payload'`)
	b.wantNotRead(pool, &gone, "no longer in public.outbox")
	b.exec(`ALTER TABLE outbox RENAME TO moved`)
	b.wantNotRead(pool, &gone, "public.outbox")
	b.cfg.Tables = nil
	b.wantNotRead(pool, &gone, "not in source.tables")
	gone.LeftOut = &event.LeftOut{Bytes: 1 << 20}
	b.wantNotRead(pool, &gone, "in no table")
}

func (b *bench) wantNotRead(pool *pgxpool.Pool, of *event.Event, words string) {
	b.t.Helper()
	if _, why, err := repair.ReadRow(await.Context(b.t), pool, b.cfg, of); err != nil || !strings.Contains(why, words) {
		b.t.Errorf("%q, %v; want %q", why, err, words)
	}
}
