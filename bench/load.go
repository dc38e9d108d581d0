// The events of a run: how they come into the table, and what has arrived of them.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// load is what the events of a run are like, and where they go.
type load struct {
	events  int // that wait; 0 where rows come live
	perTx   int // rows of a transaction
	keys    int // that take turns
	payload int // bytes of each, as text

	ordering   string // delivery.ordering; "" is the default
	far        bool   // the broker is 2 ms away
	partitions int    // of a topic
	rate       int    // live rows a second; 0: liveRate
	proxied    bool   // the broker is reached through the way of its place
	heard      bool   // a consumer reads from the beginning; else all is read in the end
	compat     bool   // the messages are those that Debezium makes
	inbox      bool   // what arrives is an effect of the inbox
}

// fillSQL makes what fill uses. The payload is size bytes in the form in which jsonb is written
// out.
const fillSQL = `
CREATE PROCEDURE fill(first bigint, n bigint, per_tx bigint, size int, keys bigint) LANGUAGE plpgsql AS $$
DECLARE done bigint := 0;
BEGIN
	WHILE done < n LOOP
		INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT lpad(to_hex(first + i), 32, '0')::uuid, 'order', 'customer-' || i % keys, 'created',
			('{"n": ' || i || ', "pad": "' || repeat('x', size - 18 - length(i::text)) || '"}')::jsonb
		FROM generate_series(done, least(done + per_tx, n) - 1) i;
		COMMIT;
		done := done + per_tx;
	END LOOP;
END $$`

// appendPayload is the payload of event i as fill writes it.
func appendPayload(b []byte, i, size int) []byte {
	end := len(b) + size
	b = append(b, `{"n": `...)
	b = strconv.AppendInt(b, int64(i), 10)
	b = append(b, `, "pad": "`...)
	for len(b) < end-2 {
		b = append(b, 'x')
	}
	return append(b, `"}`...)
}

const keyPrefix = "customer-"

// uuid is n as fill writes it.
func uuid(n int64) string {
	var hex [16]byte
	for i := range hex {
		hex[15-i] = "0123456789abcdef"[n>>(4*i)&15]
	}
	return "00000000-0000-0000-" + string(hex[:4]) + "-" + string(hex[4:])
}

// number is n of a uuid; below 0: it is none.
func number(id string) int64 {
	const digits = len("00000000-0000-0000-0000-000000000000")
	if len(id) != digits {
		return -1
	}
	n, err := strconv.ParseInt(id[19:23]+id[24:], 16, 64) // the last 64 bits
	if err != nil {
		return -1
	}
	return n
}

// nextRun numbers a run: the first of the ids that its events have.
func (s *stand) nextRun() (first int64) {
	s.runs++
	return s.runs << 32
}

// fill empties the table and commits the events of l; first is the id of the first one. No
// checkpoint comes afterwards.
func (s *stand) fill(ctx context.Context, l load) (first int64, err error) {
	first = s.nextRun()
	return first, s.exec(ctx, "TRUNCATE outbox", fmt.Sprintf("CALL fill(%d, %d, %d, %d, %d)", first, l.events, l.perTx, l.payload, l.keys), "CHECKPOINT")
}

// exec runs statements on a connection of its own.
func (s *stand) exec(ctx context.Context, statements ...string) error {
	return pgserver.OnConn(ctx, s.db, func(conn *pgx.Conn) error {
		for _, sql := range statements {
			// a procedure that commits must stand alone
			if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
}

const (
	liveRate    = 1000 // rows a second, in most rows
	liveWriters = 4
)

// perSecond is how many live rows there are in a second.
func (l load) perSecond() int { return cmp.Or(l.rate, liveRate) }

// phase commits rows one by one at a steady rate, each with the time just before its COMMIT.
type phase struct {
	db     string
	load   load
	first  int64 // id of the first row
	length time.Duration
	at     []atomic.Int64 // of each row, Unix nanoseconds
}

func (s *stand) phase(l load, length time.Duration) *phase {
	return &phase{db: s.db, load: l, first: s.nextRun(), length: length, at: make([]atomic.Int64, int(length.Seconds()*float64(l.perSecond())))}
}

// run writes until all rows are committed or stop is closed.
func (p *phase) run(ctx context.Context, stop <-chan struct{}) error {
	start := time.Now().Add(20 * time.Millisecond)
	errs := make([]error, liveWriters)
	var all sync.WaitGroup
	for w := range liveWriters {
		all.Go(func() { errs[w] = p.write(ctx, stop, start, w) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// write is one writer, with every liveWriters-th row.
func (p *phase) write(ctx context.Context, stop <-chan struct{}, start time.Time, w int) error {
	conn, err := pgconn.Connect(ctx, p.db)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var sql []byte
	for i := w; i < len(p.at); i += liveWriters {
		select {
		case <-stop:
			return nil
		case <-time.After(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(p.load.perSecond())))):
		case <-ctx.Done():
			return ctx.Err()
		}
		sql = append(sql[:0], "BEGIN; INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('"...)
		sql = append(sql, uuid(p.first+int64(i))...)
		sql = append(sql, "', 'order', '"+keyPrefix...)
		sql = strconv.AppendInt(sql, int64(i%p.load.keys), 10)
		sql = append(sql, "', 'created', '"...)
		sql = appendPayload(sql, i, p.load.payload)
		sql = append(sql, "')"...)
		if _, err := conn.Exec(ctx, string(sql)).ReadAll(); err != nil {
			return fmt.Errorf("insert: %w", err)
		}
		p.at[i].Store(time.Now().UnixNano())
		if _, err := conn.Exec(ctx, "COMMIT").ReadAll(); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	return nil
}

// committed is below which number each row is committed, or is about to be.
func (p *phase) committed() (n int) {
	for n < len(p.at) && p.at[n].Load() != 0 {
		n++
	}
	return n
}

// latencies are the times from COMMIT to arrival of the rows after the first few, in seconds.
func (p *phase) latencies(arrived []arrival, after time.Duration) (took []float64) {
	from := p.first + int64(after.Seconds()*float64(p.load.perSecond()))
	for _, a := range arrived {
		if a.n >= from {
			took = append(took, float64(a.at-p.at[a.n-p.first].Load())/1e9)
		}
	}
	return took
}

// arrival is a message that has come.
type arrival struct {
	n   int64 // the number of its row (uuid)
	at  int64 // Unix nanoseconds
	odd bool  // it is not the message that the row makes
}

// arrivals are the messages of a place, in the order of its queue or of each partition.
type arrivals struct {
	mu   sync.Mutex
	load load
	got  []arrival
	err  error  // why no more come
	want []byte // scratch space
}

// add notes a message; shape says whether its headers are as they should be.
func (a *arrivals) add(id, key string, body []byte, shape bool) {
	m := arrival{n: number(id), at: time.Now().UnixNano()}
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.n >= 0 {
		i := int(m.n & (1<<32 - 1))
		a.want = appendPayload(a.want[:0], i, a.load.payload)
		k, err := strconv.Atoi(strings.TrimPrefix(key, keyPrefix))
		shape = shape && err == nil && k == i%a.load.keys && bytes.Equal(body, a.want)
	}
	m.odd = !shape
	a.got = append(a.got, m)
}

// fail notes that no more will come.
func (a *arrivals) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

// arrived are the messages after the first n.
func (a *arrivals) arrived(n int) ([]arrival, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.got[n:len(a.got):len(a.got)], a.err
}

// history compares messages with the rows of the table.
type history struct {
	repeats  bool // may come: a relay has died
	anyShape bool // another version made the messages: they may look otherwise

	keys                                        map[int64]string // of the rows
	lost, twice, unordered, foreign, odd, count int
}

// compareWithTable reads the rows of a run and compares.
func (s *stand) compareWithTable(ctx context.Context, h *history, arrived []arrival) error {
	h.keys = map[int64]string{}
	err := pgserver.OnConn(ctx, s.db, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, "SELECT id::text, aggregateid FROM outbox")
		if err != nil {
			return err
		}
		var id, key string
		_, err = pgx.ForEachRow(rows, []any{&id, &key}, func() error {
			h.keys[number(id)] = key
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("read table: %w", err)
	}
	h.compare(arrived)
	return h.verdict()
}

// compare counts what differs.
func (h *history) compare(arrived []arrival) {
	seen, last := make(map[int64]bool, len(h.keys)), map[string]int64{}
	for _, a := range arrived {
		key, known := h.keys[a.n]
		switch {
		case !known:
			h.foreign++
			continue
		case seen[a.n]:
			h.twice++
			continue
		case last[key] > a.n:
			h.unordered++
		}
		seen[a.n], last[key] = true, a.n
		if a.odd {
			h.odd++
		}
	}
	h.count, h.lost = len(h.keys), len(h.keys)-len(seen)
}

// verdict is an error unless the history is the table's: each row once, as it should be, and those
// of a key in order.
func (h *history) verdict() error {
	wrong := h.lost + h.unordered + h.foreign
	if !h.repeats {
		wrong += h.twice
	}
	if !h.anyShape {
		wrong += h.odd
	}
	if wrong == 0 && h.count > 0 {
		return nil
	}
	return fmt.Errorf("history of %d rows: lost %d, delivered twice %d, out of order %d, of no row %d, not what the row makes %d",
		h.count, h.lost, h.twice, h.unordered, h.foreign, h.odd)
}
