package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	retrystore "github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// Large rows are those of more than 1000 bytes here.
func TestLargeRows(t *testing.T) {
	t.Parallel()
	w := newDatabase(t, servers.SharedPostgres(t), "")
	for name, test := range map[string]func(*bench, *database){
		"write": testLargeWrite, "move": testLargeMove, "read": testLargeRead, "replay": testLargeReplay,
		"too large to send": testTooLargeToSend, "run": testLargeRun,
		"not written": testLargeNotWritten, "not for its size": testLargeOrdinary,
	} {
		t.Run(name, func(t *testing.T) { w.t = t; test(newBench(t, w).limited(), w) })
	}
	for _, committed := range []bool{false, true} {
		t.Run(fmt.Sprint("no answer, committed=", committed), func(t *testing.T) {
			w.t = t
			testLargeLost(newBench(t, w).limited(), w, committed)
		})
	}
}

// limited is a bench whose store takes rows of more than 1000 bytes for large ones.
func (b *bench) limited() *bench {
	p := b.Store.(*Store)
	p.limits = limits{largeFrom: 1000, timeout: time.Minute, rate: 1 << 20, margin: time.Minute}
	return b
}

// large is a row of 2000 bytes, or as many as the test says.
func (b *bench) large(key string) *retrystore.Row {
	b.Helper()
	row := b.row(key, 1, 1)
	row.Event.Payload = bytes.Repeat([]byte("x"), 2000)
	return row
}

// brief does a statement that has little time.
func (b *bench) brief(do func() error) error {
	p := b.Store.(*Store)
	p.limits.timeout = 100 * time.Millisecond
	defer func() { p.limits.timeout = time.Minute }()
	return do()
}

// timesOut wants a statement of a large row to be refused because it takes too long.
func (b *bench) timesOut(do func() error) {
	b.Helper()
	b.wantRefused(b.brief(do), timedOut)
}

// wantRefused wants the error of a large row that is isolated.
func (b *bench) wantRefused(err error, why string) {
	b.Helper()
	var refused *retrystore.Refused
	if !errors.As(err, &refused) || !strings.Contains(refused.Err.Error(), why) || !strings.Contains(refused.Err.Error(), "less often") {
		b.Fatalf("got %v, want a refusal with %q", err, why)
	}
}

// rested lets the pause of a statement end, or (false) go on for ever.
func (b *bench) rested(what string, over bool) {
	b.Helper()
	p := b.Store.(*Store)
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.failures[what]
	if !ok {
		b.Fatalf("no failure of %q in %v", what, p.failures)
	}
	if last.until = time.Now(); !over {
		last.until = last.until.Add(time.Hour)
	}
	p.failures[what] = last
}

const timedOut = "statement timeout"

// slow has a table take a minute for each new row of more than 1000 bytes.
func (w *database) slow(table string) (end func()) {
	w.t.Helper()
	w.exec(`CREATE OR REPLACE FUNCTION cdc_relay.too_slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$`)
	w.exec(`CREATE TRIGGER too_slow BEFORE INSERT ON cdc_relay.` + table + ` FOR EACH ROW WHEN (NEW.bytes > 1000) EXECUTE FUNCTION cdc_relay.too_slow()`)
	end = func() { w.exec(`DROP TRIGGER IF EXISTS too_slow ON cdc_relay.` + table) }
	w.t.Cleanup(end)
	return end
}

// A large row that is not written in its time is refused, and not repeated before all others. Rows
// of its size are not tried for a while, smaller ones are. When the cause has passed it is written.
func testLargeWrite(b *bench, w *database) {
	huge, larger, small := b.large("huge"), b.large("larger"), b.row("small", 1, 1)
	larger.Event.Payload = bytes.Repeat([]byte("x"), 3000)
	fast := w.slow("retry")
	write := func(row *retrystore.Row) error { return b.Defer(await.Context(b.T), []*retrystore.Row{row}) }
	b.timesOut(func() error { return write(huge) })
	b.deferRow(small)
	fast()
	b.rested("defer", false)
	b.wantRefused(write(huge), timedOut)
	b.wantRefused(write(larger), timedOut)
	less := b.large("less")
	less.Event.Payload = less.Event.Payload[:1500]
	b.deferRow(less)
	b.wantWhere("", huge, larger)
	b.rested("defer", true)
	b.deferRow(huge)
	b.deferRow(larger)
	equal(b, "failures", len(b.Store.(*Store).failures), 0)
	b.wantWhere("deferred", small, less, huge, larger)
	var timeout string
	b.must(w.pool.QueryRow(await.Context(b.T), `SHOW statement_timeout`).Scan(&timeout))
	equal(b, "statement_timeout of other statements", timeout, "15s")
}

// So is the result of a large row, and the answer to a request that moves one.
func testLargeMove(b *bench, w *database) {
	one, two, other := b.large("one"), b.large("two"), b.row("other", 1, 1)
	b.deferRow(one)
	b.deferRow(two)
	b.deferRow(other)
	id := b.Ask(b.c, retrystore.DeadLetter, two.N, event.Route{})
	answers := []retrystore.Answer{{Request: b.request(id)}}
	fast := w.slow("dead_letter")
	dead := func(row *retrystore.Row) error {
		return b.ApplyResults(await.Context(b.T), []retrystore.Result{{Row: row, Kind: retrystore.Dead}})
	}
	answer := func() error { _, err := b.AnswerRequests(await.Context(b.T), answers); return err }
	b.timesOut(func() error { return dead(one) })
	b.timesOut(answer)
	b.must(dead(other))
	b.wantWhere("deferred", one, two)
	// it says nothing about an earlier try that was not answered
	b.Store.(*Store).unansweredWrites["apply results"] = true
	for _, over := range []bool{false, true} {
		b.rested("apply results", over)
		if err := b.brief(func() error { return dead(one) }); err == nil || retrystore.IsRefused(err) {
			b.Fatalf("after a try without an answer: %v", err)
		}
	}
	fast()
	b.rested("apply results", true)
	b.rested("answer requests", true)
	b.must(dead(one))
	b.must(answer())
	b.wantWhere("open", one, two, other)
	equal(b, "unknown", len(b.Store.(*Store).unansweredWrites), 0)
}

// slowReads has the payloads of more than 1000 bytes take a minute to read, as from a slow disk: to
// a statement with a time of its own, because the others read them in views although they leave
// them out.
func (w *database) slowReads(table string) (end func()) {
	w.t.Helper()
	w.exec(`CREATE OR REPLACE FUNCTION cdc_relay.read_slowly(b bytea) RETURNS bytea LANGUAGE plpgsql STABLE AS $$ BEGIN
		IF current_setting('statement_timeout') <> '15s' THEN PERFORM pg_sleep(60); END IF; RETURN b; END $$`)
	var columns string
	w.scan(`SELECT string_agg(CASE attname WHEN 'payload' THEN 'CASE WHEN octet_length(payload) > 1000 THEN cdc_relay.read_slowly(payload) ELSE payload END AS payload' ELSE attname::text END, ', ')
		FROM pg_attribute WHERE attrelid = ('cdc_relay.' || $1)::regclass AND attnum > 0 AND NOT attisdropped`, []any{table}, &columns)
	w.exec(`ALTER TABLE cdc_relay.` + table + ` RENAME TO real_table`)
	w.exec(`CREATE VIEW cdc_relay.` + table + ` AS SELECT ` + columns + ` FROM cdc_relay.real_table`)
	w.exec(`GRANT SELECT ON cdc_relay.` + table + ` TO ` + w.pool.Config().ConnConfig.User)
	over := false
	end = func() {
		if !over {
			over = true
			w.exec(`DROP VIEW cdc_relay.` + table)
			w.exec(`ALTER TABLE cdc_relay.real_table RENAME TO ` + table)
		}
	}
	w.t.Cleanup(end)
	return end
}

// A large row that is not read in its time is refused, and the others are read.
func testLargeRead(b *bench, w *database) {
	huge, small := b.large("huge"), b.row("small", 1, 1)
	b.deferRow(huge)
	b.deferRow(small)
	fast := w.slowReads("retry")
	read := func(groups ...uint64) error {
		_, err := b.ReadRows(await.Context(b.T), wants(groups...), 10, all, all)
		return err
	}
	b.timesOut(func() error { return read(small.Group, huge.Group) })
	b.rested("read a large row", false)
	b.wantRefused(read(huge.Group), timedOut)
	b.wantRows(small.Group, small)
	fast()
	b.wantRefused(read(huge.Group), timedOut)
	b.rested("read a large row", true)
	got := b.runs(all, small.Group, huge.Group)
	equal(b, "payload", got[1].Rows[0].Event.Payload, huge.Event.Payload)
}

// A large dead letter that is to be replayed is read alone. If that takes too long it is refused,
// and the requests before it are read.
func testLargeReplay(b *bench, w *database) {
	small, huge := b.deadLetter("small"), b.large("huge")
	huge.Dead = true
	b.deferRow(huge)
	b.Ask(b.c, retrystore.Replay, small.N, event.Route{})
	b.Ask(b.c, retrystore.Replay, huge.N, event.Route{})
	fast := w.slowReads("dead_letter")
	b.timesOut(func() error { _, err := b.WaitingRequests(await.Context(b.T), 10, all); return err })
	list, err := b.WaitingRequests(await.Context(b.T), 1, all)
	b.must(err)
	equal(b, "the first", string(list[0].Row.Event.Payload), "{}")
	fast()
	b.rested("read a large row", true)
	list, err = b.WaitingRequests(await.Context(b.T), 10, all)
	b.must(err)
	row := list[1].Row
	if !bytes.Equal(row.Event.Payload, huge.Event.Payload) || !row.Dead {
		b.Errorf("got %+v", list[1])
	}
}

// A row that makes a message of more than 1 GiB cannot be sent to PostgreSQL at all, as the driver
// says before it sends anything. Here it says so of a row that is shorter.
func testTooLargeToSend(b *bench, w *database) {
	p := b.Store.(*Store)
	var conn *pgx.Conn
	cfg := w.pool.Config()
	cfg.AfterConnect = func(_ context.Context, c *pgx.Conn) error { conn = c; return nil }
	pool, err := pgxpool.NewWithConfig(await.Context(b.T), cfg)
	b.must(err)
	b.Cleanup(pool.Close)
	p.pool = pool
	args := func(storable) []any {
		conn.PgConn().Frontend().Send(&tooLarge{})
		return []any{p.cfg.SystemID}
	}
	b.wantRefused(p.runSizedWrite(await.Context(b.T), "defer", 2000, writeFence+` SELECT $3::text FROM fence`, args, nil), "message body too large")
	equal(b, "doubts", len(p.doubtfulSessions), 0)
}

// tooLarge is a message of more than 1 GiB.
type tooLarge struct{ pgproto3.Bind }

func (*tooLarge) Encode([]byte) ([]byte, error) { return nil, errors.New("message body too large") }

// A large row goes alone: not behind the ones before it, and with none behind it.
func testLargeRun(b *bench, w *database) {
	rows := []*retrystore.Row{b.row("k", 1, 1), b.row("k", 1, 1), b.large("k"), b.row("k", 1, 1)}
	for _, row := range rows {
		b.deferRow(row)
	}
	next := func(more bool, want ...*retrystore.Row) {
		b.Helper()
		run := b.runs(all, rows[0].Group)[0]
		equal(b, "rows, more", fmt.Sprint(numbers(run.Rows), run.More), fmt.Sprint(numbers(want), more))
		for _, row := range want {
			b.must(b.ApplyResults(await.Context(b.T), []retrystore.Result{{Row: row, Kind: retrystore.Delivered}}))
		}
	}
	// Rows of others have the room that the large one does not take.
	other := b.rows(2, "other", 1, 1)
	b.deferRow(other...)
	runs, err := b.ReadRows(await.Context(b.T), wants(rows[0].Group, other[0].Group), 10, 2000, all)
	b.must(err)
	equal(b, "rows of others", numbers(runs[1].Rows), numbers(other))
	next(true, rows[:2]...)
	next(true, rows[2])
	next(false, rows[3])
}

// The answer about a large row does not come. It is not sent again before all others: the database
// is asked whether it has the row.
func testLargeLost(b *bench, w *database, committed bool) {
	pool, proxy := w.through()
	second, _ := w.through()
	p := b.Store.(*Store)
	p.pool = pool
	row := b.large("huge")
	// The row waits when it is written, and not before the statement is sent as a whole.
	w.exec(`CREATE OR REPLACE FUNCTION cdc_relay.waits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(17); RETURN NEW; END $$`)
	w.exec(`CREATE TRIGGER waits BEFORE INSERT ON cdc_relay.retry FOR EACH ROW WHEN (NEW.bytes > 1000) EXECUTE FUNCTION cdc_relay.waits()`)
	b.Cleanup(func() { w.exec(`DROP TRIGGER waits ON cdc_relay.retry`) })
	w.exec(`SELECT pg_advisory_lock(17)`)
	free := func() { w.exec(`SELECT pg_advisory_unlock(17)`) }
	ctx, cancel := context.WithCancel(await.Context(b.T))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- p.Defer(ctx, []*retrystore.Row{row}) }()
	w.untilLocked(b, "the row", func() bool { return len(done) > 0 })
	// the driver asks the server to cancel it: that does not arrive
	proxy.SetTarget("127.0.0.1:1")
	if proxy.Hold(netproxy.Down); committed {
		free()
		await.Until(b.T, "the row to be there", func() bool { return w.where(row.N) == "deferred" })
	}
	cancel()
	if err := <-done; err == nil || retrystore.IsRefused(err) {
		b.Fatalf("no answer: %v", err)
	}
	proxy.Release(netproxy.Down)
	p.pool = second
	err := p.Defer(await.Context(b.T), []*retrystore.Row{row})
	if committed {
		b.must(err)
		b.wantRows(row.Group, row)
		return
	}
	b.wantRefused(err, "canceled")
	free()
	b.wantWhere("", row)
	b.rested("defer", true)
	b.deferRow(row)
	b.wantRows(row.Group, row)
}

// A result or an answer that does not write a large row again is an ordinary statement.
func testLargeNotWritten(b *bench, _ *database) {
	one, other := b.large("one"), b.large("other")
	other.Dead = true
	b.deferRow(one)
	b.deferRow(other)
	p := b.Store.(*Store)
	for _, what := range []string{"apply results", "answer requests"} {
		p.failures[what] = failure{size: 1001, times: 1, until: time.Now().Add(time.Hour), err: errors.New("too slow")}
	}
	b.must(b.ApplyResults(await.Context(b.T), []retrystore.Result{{Row: one, Kind: retrystore.Delivered}}))
	id := b.Ask(b.c, retrystore.Discard, other.N, event.Route{})
	_, err := b.AnswerRequests(await.Context(b.T), []retrystore.Answer{{Request: b.request(id)}})
	b.must(err)
	raw := &retrystore.Row{Event: event.Event{Raw: make([]byte, 700)}}
	equal(b, "size", sizeOf([]*retrystore.Row{raw}), 700)
}

// A failure that is not of its size has no row wait, and tells nothing about a lost one.
func testLargeOrdinary(b *bench, w *database) {
	p := b.Store.(*Store)
	row := b.large("huge")
	w.exec(`CREATE OR REPLACE FUNCTION cdc_relay.refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '22000'; END $$`)
	w.exec(`CREATE TRIGGER refuses BEFORE INSERT ON cdc_relay.retry FOR EACH ROW WHEN (NEW.bytes > 1000) EXECUTE FUNCTION cdc_relay.refuses()`)
	err := b.Defer(await.Context(b.T), []*retrystore.Row{row})
	w.exec(`DROP TRIGGER refuses ON cdc_relay.retry`)
	if !retrystore.IsRefused(err) || len(p.failures) > 0 {
		b.Errorf("got %v, failures %v", err, p.failures)
	}
	p.doubtfulSessions[1] = true // of another statement
	p.noteLost([]*retrystore.Row{row}, time.Second, errors.New("no connection"))
	delete(p.doubtfulSessions, 1)
	if p.lostDefer != nil {
		b.Errorf("lost: %v", p.lostDefer.err)
	}
	p.noteLost([]*retrystore.Row{row}, time.Second, inDoubt{errors.New("no answer")})
	system := p.cfg.SystemID
	p.cfg.SystemID = "\x00" // the question is refused
	err = p.Defer(await.Context(b.T), []*retrystore.Row{row})
	_, unread := p.readLarge(await.Context(b.T), row)
	p.cfg.SystemID = system
	if !retrystore.IsRefused(unread) || len(p.failures) > 0 {
		b.Errorf("got %v, failures %v", unread, p.failures)
	}
	if err == nil || retrystore.IsRefused(err) || p.lostDefer == nil {
		b.Errorf("got %v, lost %v", err, p.lostDefer)
	}
}
