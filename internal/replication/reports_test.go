package replication

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
)

// adjacent commits two transactions, each with one event, whose commit records follow each other in
// the WAL without a byte between them, and returns their ids. The relay runs, and has both.
func (b *bench) adjacent(r *running) (first, second string) {
	b.t.Helper()
	conns := [2]*pgx.Conn{b.connect(), b.connect()}
	for try := range 200 {
		first, second = fmt.Sprintf("first %d", try), fmt.Sprintf("second %d", try)
		b.commitBoth(conns, first, second)
		r.waitSeen(first, second)
		var txs []replicationtest.Transaction
		await.Until(b.t, "both transactions", func() bool {
			txs = b.current().Transactions()
			return len(txs) == 2*(try+1)
		})
		if txs[len(txs)-2].End == txs[len(txs)-1].Commit {
			return first, second
		}
	}
	b.t.Fatal("no two commits were adjacent")
	return "", ""
}

// commitBoth inserts two rows, each in a transaction of its own, and commits these one right after
// the other.
func (b *bench) commitBoth(conns [2]*pgx.Conn, ids ...string) {
	b.t.Helper()
	for i, id := range ids {
		_, err := conns[i].Exec(await.Context(b.t), `BEGIN; INSERT INTO outbox VALUES ('`+id+`', '{}')`)
		await.Must(b.t, err)
	}
	for i := range ids {
		_, err := conns[i].Exec(await.Context(b.t), `COMMIT`)
		await.Must(b.t, err)
	}
}

// The server skips by the start of the commit record: a report one byte beyond a transaction's end
// would skip its neighbour for ever, one byte before it would repeat the transaction itself. A
// server of its own: what other tests write comes between.
func TestStopBetweenCommitsThatAreAdjacent(t *testing.T) {
	b := alone(t)
	b.held = true
	r := b.streaming()
	first, second := b.adjacent(r)
	txs := b.current().Transactions()
	between := txs[len(txs)-2].End
	b.current().Settle(len(txs) - 1)
	await.Until(t, "the first one to be reported", func() bool { return b.confirmedFlush() >= between })
	r.cut()
	b.wantStop(r.end(), event.ExitCut, "cut")
	if at := b.confirmedFlush(); at != between {
		t.Errorf("the slot is at %s, the first one ended at %s", at, between)
	}
	b.held = false
	next := b.run()
	next.waitSeen(second)
	if slices.Contains(b.current().Seen(), first) {
		t.Error("the first one was settled and reported, and came again")
	}
	next.endClean()
}

// flushSample is what one statement saw of the slot and of our flush limit.
type flushSample struct{ flush, flushLimit pglogrepl.LSN }

// sampleFlush reads slot and flush limit as fast as the server answers, until the context is done,
// and hands each pair to look. Both are of one moment only in this order: the flush limit is raised
// before the flush and never falls while a relay runs, so it is read last.
func (b *bench) sampleFlush(ctx context.Context, look func(flushSample)) error {
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	for ctx.Err() == nil {
		var s flushSample
		if err := conn.QueryRow(ctx, `SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot).Scan(&s.flush); err != nil {
			return err
		}
		if err := conn.QueryRow(ctx, `SELECT max_flush_lsn FROM cdc_relay.progress WHERE slot = $1`, b.cfg.Slot).Scan(&s.flushLimit); err != nil {
			return err
		}
		look(s)
	}
	return nil
}

// At every moment the slot stands at the end of a transaction, or where a keepalive stood, with
// everything before it settled and the flush limit above it, whatever is held, and however fast
// commits and keepalives come.
func TestFlushNeverPassesWhatIsSettled(t *testing.T) {
	b := shared(t)
	b.held = true
	b.exec(`CREATE TABLE other (t text)`)
	r := b.streaming()
	line := b.current()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	sampled := make(chan error, 1)
	distinct := map[pglogrepl.LSN]bool{}
	var positions atomic.Int32
	go func() {
		sampled <- b.sampleFlush(ctx, func(s flushSample) {
			distinct[s.flush] = true
			positions.Store(int32(len(distinct)))
			// read after it, and it only grows
			if settled := line.Watermark().LSN; s.flush > settled {
				t.Errorf("the slot is at %s, settled is %s", s.flush, settled)
			}
			if s.flush > s.flushLimit {
				t.Errorf("the slot is at %s, the flush limit at %s", s.flush, s.flushLimit)
			}
			if !line.IsEnd(s.flush) {
				t.Errorf("the slot is at %s, where no transaction ended and no keepalive stood", s.flush)
			}
		})
	}()
	events := 0
	// a fast machine needs more
	for ; events < 120 || positions.Load() < 4 && len(sampled) == 0; events++ {
		b.insert(fmt.Sprint(events))
		b.exec(`INSERT INTO other VALUES (repeat('x', 500))`)
		line.Settle(events - 5)
	}
	r.waitSeen(fmt.Sprint(events - 1))
	line.Settle(events - 1)
	last := line.Transactions()[events-2].End
	await.Until(t, "all but one to be reported", func() bool { return b.confirmedFlush() >= last })
	if len(sampled) > 0 {
		t.Fatalf("the samples end: %v", <-sampled)
	}
	stop()
	<-sampled
	if len(distinct) < 3 {
		t.Errorf("only %d positions were seen: this test shows nothing", len(distinct))
	}
	line.Settle(events)
	r.endClean()
}
