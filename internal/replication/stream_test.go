package replication

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

func TestMain(m *testing.M) {
	// These tests wait for servers far more than they compute.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	servers.Main(m)
}

// bench is one database with an outbox, and a stream over it.
type bench struct {
	t     *testing.T
	url   string
	conn  *pgx.Conn
	cfg   source.Config
	logs  *observer.ObservedLogs
	mu    sync.Mutex
	line  *replicationtest.Recorder // of the newest term
	held  bool                      // new terms begin with a dead broker
	stays bool                      // a stream that has stopped stays up until it is asked to stop
}

// shared is a bench in a database of its own, in parallel with other tests. The server is this
// package's: almost every test makes slots, which wait for all transactions of a server, and many
// hold transactions open.
func shared(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	return newBench(t, servers.OwnPostgres(t).Database(t))
}

// alone is a bench on a server that no other test uses meanwhile.
func alone(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	return newBench(t, servers.QuietPostgres(t).Database(t))
}

func newBench(t *testing.T, url string) *bench {
	t.Helper()
	b := &bench{t: t, url: url}
	b.conn = b.connect()
	core, logs := observer.New(zap.InfoLevel)
	b.logs = logs
	b.cfg = source.Config{
		URL: url, Slot: fmt.Sprintf("s%d", time.Now().UnixNano()), Publication: "p", Create: true,
		Tables: []decode.Table{{Schema: "public", Name: "outbox", Mapping: decode.Mapping{
			ID: decode.Names{Any: []string{"id"}}, Payload: decode.Names{Any: []string{"payload"}}, Transaction: decode.Names{Any: []string{"tx"}, Optional: true},
		}}},
		WALSenderTimeout: 20 * time.Second, Grace: 20 * time.Second, Log: zap.New(core),
		NewLine: func(_ context.Context, at source.Term) (source.Line, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.line = replicationtest.NewRecorder(at.Start)
			b.line.Held, b.line.Sent = b.held, at.Sent
			return b.line, nil
		},
	}
	b.exec(`CREATE TABLE IF NOT EXISTS outbox (id text PRIMARY KEY, payload jsonb, tx xid8 DEFAULT pg_current_xact_id())`)
	return b
}

// connect is one more connection past any proxy.
func (b *bench) connect() *pgx.Conn {
	b.t.Helper()
	conn, err := pgx.Connect(await.Context(b.t), b.url)
	await.Must(b.t, err)
	b.t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.conn.Exec(await.Context(b.t), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bench) insert(id string) { b.t.Helper(); b.exec(`INSERT INTO outbox VALUES ($1, '{}')`, id) }

// through puts a proxy between the relay and the server. The bench's own connection goes past it.
func (b *bench) through() *netproxy.Proxy {
	b.t.Helper()
	u, err := url.Parse(b.url)
	await.Must(b.t, err)
	p, err := netproxy.Start(u.Host)
	await.Must(b.t, err)
	b.t.Cleanup(p.Close)
	u.Host = p.Addr()
	b.cfg.URL = u.String()
	return p
}

// pool is the relay's own kind of connections, until the test ends.
func (b *bench) pool() *pgxpool.Pool {
	b.t.Helper()
	pool, err := source.ConnectPool(&b.cfg)
	await.Must(b.t, err)
	b.t.Cleanup(pool.Close)
	return pool
}

// scan is the result of a query for one value.
func (b *bench) scan(into any, sql string, args ...any) {
	b.t.Helper()
	if err := b.conn.QueryRow(await.Context(b.t), sql, args...).Scan(into); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// text is the result of a query for one text.
func (b *bench) text(sql string, args ...any) (s string) {
	b.t.Helper()
	b.scan(&s, sql, args...)
	return s
}

// wantText compares the result of a query for one text.
func (b *bench) wantText(want, sql string, args ...any) {
	b.t.Helper()
	if got := b.text(sql, args...); got != want {
		b.t.Errorf("%s: %q, want %q", sql, got, want)
	}
}

// wantLogged wants a line once.
func (b *bench) wantLogged(snippet string) {
	b.t.Helper()
	if n := b.logs.FilterMessageSnippet(snippet).Len(); n != 1 {
		b.t.Errorf("%d lines of the log say %q, want one", n, snippet)
	}
}

// wantRemembered wants what is remembered of the slot to be as before.
func (b *bench) wantRemembered(before string) {
	b.t.Helper()
	if after := b.remembered(); after != before {
		b.t.Errorf("it was changed from %s to %s", before, after)
	}
}

// remembered is everything of ours about the slot, in one text.
func (b *bench) remembered() string {
	b.t.Helper()
	return b.text(`SELECT s::text || p::text FROM cdc_relay.slots s JOIN cdc_relay.progress p USING (slot) WHERE slot = $1`, b.cfg.Slot)
}

// waitFree returns once nobody holds the slot.
func (b *bench) waitFree() {
	b.t.Helper()
	await.Until(b.t, "the slot to be free", func() bool {
		return b.text(`SELECT coalesce(max(active_pid), 0)::text FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot) == "0"
	})
}

var (
	statements = regexp.MustCompile(`CREATE PUBLICATION [^;]*|ALTER PUBLICATION [^;]*|SELECT pg_drop_replication_slot\('\w+'\)`)
	acceptLine = regexp.MustCompile(`cdc-relay accept ([0-9a-f]{12})((?: --[a-z-]+(?: (?:'[^']*'|[^\s;,()-][^\s;,()]*))?)*)`)
	acceptFlag = regexp.MustCompile(` --([a-z-]+)(?: ('[^']*'|[^\s;,()-][^\s;,()]*))?`)
)

// runFix does what a stop prints: its statements, and its first accept. Where the relay is to be
// started again instead, it does what the next stop prints.
func (b *bench) runFix(stop *event.Stop) {
	b.t.Helper()
	found := statements.FindAllString(stop.Fix, -1)
	for _, sql := range found {
		b.exec(sql)
	}
	switch {
	case strings.Contains(stop.Fix, "cdc-relay accept "):
		b.acceptFix(stop.Fix)
	case strings.Contains(stop.Fix, source.StartAgainHint):
		b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, stop.Reason))
	case len(found) == 0:
		b.t.Fatalf("nothing to run in: %s", stop.Fix)
	}
}

// acceptFix runs the first accept in a fix.
func (b *bench) acceptFix(fix string) {
	b.t.Helper()
	line := acceptLine.FindStringSubmatch(fix)
	if line == nil {
		b.t.Fatalf("no accept in: %s", fix)
	}
	opt := setup.AcceptOptions{ID: line[1], Reason: "a test"}
	for _, flag := range acceptFlag.FindAllStringSubmatch(line[2], -1) {
		value := strings.Trim(flag[2], "'")
		switch flag[1] {
		case "new-slot":
			opt.NewSlot = true
		case "same-data":
			opt.SameData = true
		case "delivered":
			opt.Delivered = value
		case "copy":
			opt.Copy = true
		case "skip-rows":
			opt.Rows.Skip = value
		case "skip-messages":
			opt.Rows.SkipMessages = value
		case "events":
			opt.Rows.Events = value
		case "of":
			opt.Rows.Of = value
		default:
			b.t.Fatalf("unknown flag in: %s", line[0])
		}
	}
	_, err := setup.Accept(await.Context(b.t), b.cfg, opt)
	await.Must(b.t, err)
}

func (b *bench) current() *replicationtest.Recorder {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.line
}

// running is a Stream on its way.
type running struct {
	b    *bench
	s    *Stream
	stop context.CancelFunc
	cut  context.CancelFunc
	done chan struct{}
	err  error // of Run, valid after done

	before int // sessions of earlier runs
}

func (b *bench) run() *running {
	b.t.Helper()
	s, err := New(b.cfg)
	await.Must(b.t, err)
	b.mu.Lock()
	b.line = nil // what is asked of the line from now on is asked of the new one
	b.mu.Unlock()
	reading, stop := context.WithCancel(context.Background())
	draining, cut := context.WithCancel(context.Background())
	r := &running{b: b, s: s, stop: stop, cut: cut, done: make(chan struct{}), before: b.sessions()}
	ctx, cancel := context.WithCancel(context.Background())
	surveyed, closed := make(chan error, 1), make(chan struct{})
	go func() { surveyed <- s.Survey(ctx) }()
	go func() {
		defer close(closed)
		r.err = s.Run(reading, draining)
		if b.stays {
			close(r.done)
			<-reading.Done()
		}
		cancel()
		if err := <-surveyed; err != nil {
			b.t.Error(err)
		}
		s.Close()
		if !b.stays {
			close(r.done)
		}
	}()
	b.t.Cleanup(func() {
		stop()
		cut()
		<-closed
	})
	return r
}

// streaming is a run that leads and streams.
func (b *bench) streaming() *running {
	b.t.Helper()
	r := b.run()
	r.waitPhase(slot.Streaming)
	return r
}

// wantStop is replicationtest.WantStop, and wants each of these texts in what the stop says.
func (b *bench) wantStop(err error, code int, reason string, texts ...string) *event.Stop {
	b.t.Helper()
	stop := replicationtest.WantStop(b.t, err, code, reason)
	for _, text := range texts {
		if !strings.Contains(stop.Error(), text) {
			b.t.Errorf("the stop does not say %q: %s", text, stop)
		}
	}
	return stop
}

// wantSeen wants exactly these events to have come to the newest line, in this order.
func (b *bench) wantSeen(ids ...string) {
	b.t.Helper()
	if seen := b.current().Seen(); !slices.Equal(seen, ids) {
		b.t.Errorf("events %q, want %q", seen, ids)
	}
}

// sessions is how many sessions all runs have had.
func (b *bench) sessions() int { return b.logs.FilterMessage("streaming").Len() }

// sessions is how many sessions this run has had.
func (r *running) sessions() int { return r.b.sessions() - r.before }

// end stops the stream and returns its error.
func (r *running) end() error {
	r.b.t.Helper()
	r.stop()
	return r.wait()
}

// endClean stops the stream and wants that to be a clean stop.
func (r *running) endClean() {
	r.b.t.Helper()
	await.Must(r.b.t, r.end())
}

// crash ends the stream as a SIGKILL would, as far as the server can see: its connections, all of
// them through the proxy, end in the middle of whatever they do, and nothing of it reaches the
// server after that.
func (r *running) crash(p *netproxy.Proxy) {
	r.b.t.Helper()
	p.Cut()
	r.stop()
	r.cut()
	_ = r.wait()
	await.Must(r.b.t, p.Restore())
}

func (r *running) wait() error {
	r.b.t.Helper()
	await.Closed(r.b.t, "the stream to end", r.done)
	return r.err
}

func (r *running) waitPhase(p slot.Phase) {
	r.b.t.Helper()
	await.Until(r.b.t, "phase "+string(p), func() bool {
		select {
		case <-r.done:
			r.b.t.Fatalf("ended, before phase %s: %v", p, r.err)
		default:
		}
		return r.s.Snapshot().Phase == p
	}, func() any { return r.s.Snapshot() })
}

func (r *running) waitSeen(ids ...string) {
	r.b.t.Helper()
	await.Until(r.b.t, fmt.Sprintf("events %v", ids), func() bool {
		ended := false
		select {
		case <-r.done:
			ended = true
		default:
		}
		if line := r.b.current(); line != nil {
			have := line.Seen()
			if !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(have, id) }) {
				return true
			}
		}
		if ended {
			r.b.t.Fatalf("ended, before events %v: %v", ids, r.err)
		}
		return false
	})
}

func (b *bench) confirmedFlush() pglogrepl.LSN {
	b.t.Helper()
	v, err := slot.ReadView(await.Context(b.t), b.conn, b.cfg.Slot)
	if err != nil || v == nil {
		b.t.Fatalf("slot: %v %v", v, err)
	}
	return v.ConfirmedFlush
}

// begin runs a statement in a transaction on a connection of its own, and leaves it open. commit
// commits it.
func (b *bench) begin(sql string, args ...any) (commit func()) {
	b.t.Helper()
	ctx := await.Context(b.t)
	conn := b.connect()
	tx, err := conn.Begin(ctx)
	await.Must(b.t, err)
	_, err = tx.Exec(ctx, sql, args...)
	await.Must(b.t, err)
	return func() {
		b.t.Helper()
		await.Must(b.t, tx.Commit(ctx))
	}
}

// lockWaits is how many backends of the database wait for a lock.
func (b *bench) lockWaits() (n int) {
	b.t.Helper()
	b.scan(&n, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	return n
}

// withSchema is a pool on a database that has the schema.
func (b *bench) withSchema() *pgxpool.Pool {
	b.t.Helper()
	pool := b.pool()
	await.Must(b.t, schema.Ensure(await.Context(b.t), pool, &b.cfg))
	return pool
}

// prepared is withSchema, and finds the tables of the configuration.
func (b *bench) prepared() *pgxpool.Pool {
	b.t.Helper()
	pool := b.withSchema()
	var err error
	b.cfg.Tables, err = schema.FindTables(await.Context(b.t), pool, &b.cfg, true)
	await.Must(b.t, err)
	return pool
}

// reconnect is for after a restart of the server.
func (b *bench) reconnect() { b.conn = b.connect() }

// each runs a test on a bench of its own for each of the cases, in parallel.
func each[C any](t *testing.T, cases map[string]C, test func(*testing.T, *bench, C)) {
	t.Helper()
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { test(t, shared(t), c) })
	}
}

// replicate begins to read a slot under the name of another program, until the test ends. The
// server does not mind its silence.
func (b *bench) replicate(slot, application string, pluginArgs ...string) (*pgconn.PgConn, error) {
	b.t.Helper()
	cfg, err := pgconn.ParseConfig(b.url)
	await.Must(b.t, err)
	cfg.RuntimeParams["replication"] = "database"
	cfg.RuntimeParams["application_name"] = application
	cfg.RuntimeParams["wal_sender_timeout"] = "0"
	conn, err := pgconn.ConnectConfig(await.Context(b.t), cfg)
	await.Must(b.t, err)
	b.t.Cleanup(func() { conn.Close(context.Background()) })
	return conn, pglogrepl.StartReplication(await.Context(b.t), conn, slot, 0, pglogrepl.StartReplicationOptions{PluginArgs: pluginArgs})
}

// settledRun starts a relay, relays one event, and returns once that is reported.
func (b *bench) settledRun(id string) *running {
	b.t.Helper()
	r := b.streaming()
	b.insert(id)
	r.waitReported(id)
	return r
}

// waitReported waits until the server knows that an event is delivered. A stop reports it as well,
// but a busy walsender may end without having read that.
func (r *running) waitReported(id string) {
	b := r.b
	b.t.Helper()
	r.waitSeen(id)
	await.Until(b.t, "event "+id+" to be reported", func() bool { return b.confirmedFlush() >= b.current().OwnWatermark() })
}

// goesOn starts a relay, wants it to relay what is committed from then on, and stops it.
func (b *bench) goesOn(id string) {
	b.t.Helper()
	b.settledRun(id).endClean()
}

// delivers starts a relay, waits for these events, and stops it.
func (b *bench) delivers(ids ...string) {
	b.t.Helper()
	r := b.run()
	r.waitSeen(ids...)
	r.endClean()
}
