package replication

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
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
			ID: decode.Names{Any: []string{"id"}}, Payload: decode.Names{Any: []string{"payload"}},
		}}},
		WALSenderTimeout: 20 * time.Second, Grace: 4 * time.Second, Log: zap.New(core),
		NewLine: func(_ context.Context, at source.Term) (source.Line, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.line = replicationtest.NewRecorder(at.Start)
			b.line.Held = b.held
			return b.line, nil
		},
	}
	b.exec(`CREATE TABLE IF NOT EXISTS outbox (id text PRIMARY KEY, payload jsonb)`)
	return b
}

// connect is one more connection past any proxy.
func (b *bench) connect() *pgx.Conn {
	b.t.Helper()
	conn, err := pgx.Connect(await.Context(b.t), b.url)
	if err != nil {
		b.t.Fatal(err)
	}
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
	if err != nil {
		b.t.Fatal(err)
	}
	p, err := netproxy.Start(u.Host)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(p.Close)
	u.Host = p.Addr()
	b.cfg.URL = u.String()
	return p
}

// text is the result of a query for one text.
func (b *bench) text(sql string, args ...any) string {
	b.t.Helper()
	var s string
	if err := b.conn.QueryRow(await.Context(b.t), sql, args...).Scan(&s); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return s
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
		return b.text(`SELECT coalesce(active_pid, 0)::text FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot) == "0"
	})
}

var statements = regexp.MustCompile(`CREATE PUBLICATION [^;]*|ALTER PUBLICATION [^;]*|SELECT pg_drop_replication_slot\('\w+'\)|` +
	`UPDATE cdc_relay\.slots SET state = 'adopt' WHERE slot = '\w+'|UPDATE cdc_relay\.slots SET sends = .* WHERE slot = '\w+'|` +
	`INSERT INTO cdc_relay\.slots [^;]*|WITH ignored AS [^;]*`)

// runFix runs the statements that a stop prints.
func (b *bench) runFix(stop *event.Stop) {
	b.t.Helper()
	found := statements.FindAllString(stop.Fix, -1)
	if len(found) == 0 {
		b.t.Fatalf("no statement to run in: %s", stop.Fix)
	}
	for _, sql := range found {
		b.exec(sql)
	}
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
	if err != nil {
		b.t.Fatal(err)
	}
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
	if err := r.end(); err != nil {
		r.b.t.Fatal(err)
	}
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
	if err := p.Restore(); err != nil {
		r.b.t.Fatal(err)
	}
}

func (r *running) wait() error {
	r.b.t.Helper()
	await.Closed(r.b.t, "the stream to end", r.done)
	return r.err
}

func (r *running) waitPhase(p survey.Phase) {
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
	v, err := slot.Read(await.Context(b.t), b.conn, b.cfg.Slot)
	if err != nil || v == nil {
		b.t.Fatalf("slot: %v %v", v, err)
	}
	return v.ConfirmedFlush
}
