package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

func TestMain(m *testing.M) { devenv.Main(m) }

// recorder is a Line that remembers what it was given. It settles everything at once, or, while hold is set, nothing.
type recorder struct {
	mu        sync.Mutex
	ids       []string
	commit    pglogrepl.LSN
	last      pglogrepl.LSN // newest transaction admitted whole
	position  pglogrepl.LSN
	own       pglogrepl.LSN
	unsettled int
	inTx      int
	hold      bool
	ends      []pglogrepl.LSN
	moved     chan struct{}
	arrived   chan struct{}
}

func newRecorder(start pglogrepl.LSN) *recorder {
	return &recorder{position: start, moved: make(chan struct{}, 1), arrived: make(chan struct{}, 1)}
}

func (r *recorder) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (r *recorder) Begin(commit pglogrepl.LSN, _ uint32) (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if commit <= r.last {
		return 1<<32 - 1, nil
	}
	r.commit, r.inTx = commit, 0
	return 0, nil
}

func (r *recorder) Event(_ context.Context, ev *outbox.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, string(ev.ID))
	r.inTx++
	signal(r.arrived)
	return nil
}

func (r *recorder) Commit(end pglogrepl.LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.commit <= r.last {
		return
	}
	r.last = r.commit
	if r.hold {
		r.unsettled += r.inTx
		return
	}
	r.settle(end, r.inTx > 0)
}

func (r *recorder) settle(end pglogrepl.LSN, own bool) {
	r.position = max(r.position, end)
	if own {
		r.own = max(r.own, end)
	}
	r.ends = append(r.ends, end)
	signal(r.moved)
}

func (r *recorder) Keepalive(pos pglogrepl.LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unsettled == 0 {
		r.settle(pos, false)
	}
}

func (r *recorder) Disconnected() {}

func (r *recorder) Watermark() (position, own pglogrepl.LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.position, r.own
}

func (r *recorder) Moved() <-chan struct{} { return r.moved }

func (r *recorder) Unsettled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unsettled
}

func (r *recorder) WaitSettled(ctx context.Context) error {
	if r.Unsettled() == 0 {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (r *recorder) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.ids...)
}

// bench is one database with an outbox, and a stream over it.
type bench struct {
	t    *testing.T
	url  string
	conn *pgx.Conn
	cfg  Config
	logs *observer.ObservedLogs
	mu   sync.Mutex
	line *recorder // of the newest term
	hold bool
}

func setup(t *testing.T, url string) *bench {
	t.Helper()
	ctx := bounded(t, 20*time.Second)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	b := &bench{t: t, url: url, conn: conn}
	core, logs := observer.New(zap.InfoLevel)
	b.logs = logs
	b.cfg = Config{
		URL: url, Slot: fmt.Sprintf("s%d", time.Now().UnixNano()), Publication: "p", Create: true,
		Tables: []decode.Table{{Schema: "public", Name: "outbox", Mapping: decode.Mapping{
			ID: decode.Names{Any: []string{"id"}}, Payload: decode.Names{Any: []string{"payload"}},
		}}},
		MaxConnections: 3, WALSenderTimeout: 20 * time.Second, Grace: 4 * time.Second, Log: zap.New(core),
		NewLine: func(start pglogrepl.LSN) Line {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.line = newRecorder(start)
			b.line.hold = b.hold
			return b.line
		},
	}
	b.exec(`CREATE TABLE IF NOT EXISTS outbox (id text PRIMARY KEY, payload jsonb)`)
	return b
}

func bounded(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.conn.Exec(bounded(b.t, 20*time.Second), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bench) insert(id string) { b.t.Helper(); b.exec(`INSERT INTO outbox VALUES ($1, '{}')`, id) }

func (b *bench) current() *recorder {
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
	done chan error
}

func (b *bench) run() *running {
	b.t.Helper()
	s, err := New(b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	reading, stop := context.WithCancel(context.Background())
	draining, cut := context.WithCancel(context.Background())
	r := &running{b: b, s: s, stop: stop, cut: cut, done: make(chan error, 1)}
	go func() { r.done <- s.Run(reading, draining) }()
	b.t.Cleanup(func() {
		stop()
		cut()
	})
	return r
}

// end stops the stream and returns its error.
func (r *running) end() error {
	r.b.t.Helper()
	r.stop()
	return r.wait()
}

func (r *running) wait() error {
	r.b.t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(30 * time.Second):
		r.b.t.Fatal("the stream does not end")
		return nil
	}
}

// until polls a condition with a bound.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("not within the bound: %s", what)
		case <-tick.C:
		}
	}
}

func (r *running) waitPhase(p Phase) {
	r.b.t.Helper()
	until(r.b.t, "phase "+string(p), func() bool { return r.s.Snapshot().Phase == p })
}

func (r *running) waitSeen(ids ...string) {
	r.b.t.Helper()
	until(r.b.t, fmt.Sprintf("events %v, have %v", ids, r.b.current()), func() bool {
		line := r.b.current()
		if line == nil {
			return false
		}
		have := map[string]bool{}
		for _, id := range line.seen() {
			have[id] = true
		}
		for _, id := range ids {
			if !have[id] {
				return false
			}
		}
		return true
	})
}

func wantStop(t *testing.T, err error, code int, reason string) *outbox.Stop {
	t.Helper()
	var stop *outbox.Stop
	if !errors.As(err, &stop) || stop.Code != code || stop.Reason != reason {
		t.Fatalf("got %v, want a stop with code %d, reason %s", err, code, reason)
	}
	return stop
}

func (b *bench) confirmedFlush() pglogrepl.LSN {
	b.t.Helper()
	v, err := readSlot(bounded(b.t, 10*time.Second), b.conn, b.cfg.Slot)
	if err != nil || v == nil {
		b.t.Fatalf("slot: %v %v", v, err)
	}
	return v.ConfirmedFlush
}
