package replication

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// adjacent commits two transactions, each with one event, whose commit records follow each other in the WAL without a
// byte between them, and returns their ids. The relay runs, and has both.
func (b *bench) adjacent(r *running) (first, second string) {
	b.t.Helper()
	for try := range 200 {
		first, second = fmt.Sprintf("first %d", try), fmt.Sprintf("second %d", try)
		one, _ := b.openInsert(first)
		two, _ := b.openInsert(second)
		for _, tx := range []pgx.Tx{one, two} {
			if err := tx.Commit(bounded(b.t, 20*time.Second)); err != nil {
				b.t.Fatal(err)
			}
		}
		r.waitSeen(first, second)
		var txs []transaction
		until(b.t, "both transactions", func() bool {
			txs = b.current().transactions()
			return len(txs) == 2*(try+1)
		})
		if txs[len(txs)-2].end == txs[len(txs)-1].commit {
			return first, second
		}
	}
	b.t.Fatal("no two commits were adjacent")
	return "", ""
}

// The server skips by the start of the commit record: a report one byte beyond a transaction's end would skip its
// neighbour for ever, one byte before it would repeat the transaction itself.
func TestStopBetweenCommitsThatAreAdjacent(t *testing.T) {
	b := shared(t)
	b.held = true
	r := b.run()
	r.waitPhase(Streaming)
	first, second := b.adjacent(r)
	txs := b.current().transactions()
	between := txs[len(txs)-2].end
	b.current().settle(len(txs) - 1)
	until(t, "the first one to be reported", func() bool { return b.confirmedFlush() >= between })
	r.cut()
	wantStop(t, r.end(), outbox.ExitCut, "cut")
	if at := b.confirmedFlush(); at != between {
		t.Errorf("the slot is at %s, the first one ended at %s", at, between)
	}
	b.held = false
	next := b.run()
	next.waitSeen(second)
	if slices.Contains(b.current().seen(), first) {
		t.Error("the first one was settled and reported, and came again")
	}
	next.endClean()
}

// flushSample is what one statement saw of the slot and of our ceiling.
type flushSample struct{ flush, ceiling pglogrepl.LSN }

// sampleFlush reads slot and ceiling as fast as the server answers, until the context is done, and hands each pair to
// look. Both are of one moment only in this order: the ceiling is raised before the flush and never falls while a relay
// runs, so it is read last.
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
		if err := conn.QueryRow(ctx, `SELECT ceiling FROM cdc_relay.progress WHERE slot = $1`, b.cfg.Slot).Scan(&s.ceiling); err != nil {
			return err
		}
		look(s)
	}
	return nil
}

// At every moment the slot stands at the end of a transaction, or where a keepalive stood, with everything before it
// settled and the ceiling above it, whatever is held, and however fast commits and keepalives come.
func TestFlushNeverPassesWhatIsSettled(t *testing.T) {
	b := shared(t)
	b.held = true
	b.exec(`CREATE TABLE other (t text)`)
	r := b.run()
	r.waitPhase(Streaming)
	line := b.current()
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	sampled := make(chan error, 1)
	distinct := map[pglogrepl.LSN]bool{}
	go func() {
		sampled <- b.sampleFlush(ctx, func(s flushSample) {
			distinct[s.flush] = true
			if settled, _ := line.Watermark(); s.flush > settled { // read after it, and it only grows
				t.Errorf("the slot is at %s, settled is %s", s.flush, settled)
			}
			if s.flush > s.ceiling {
				t.Errorf("the slot is at %s, the ceiling at %s", s.flush, s.ceiling)
			}
			if !line.isEnd(s.flush) {
				t.Errorf("the slot is at %s, where no transaction ended and no keepalive stood", s.flush)
			}
		})
	}()
	const events = 120
	for i := range events {
		b.insert(fmt.Sprint(i))
		b.exec(`INSERT INTO other VALUES (repeat('x', 500))`)
		line.settle(i - 5)
	}
	r.waitSeen(fmt.Sprint(events - 1))
	line.settle(events - 1)
	last := line.transactions()[events-2].end
	until(t, "all but one to be reported", func() bool { return b.confirmedFlush() >= last })
	stop()
	if err := <-sampled; err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	if len(distinct) < 3 {
		t.Errorf("only %d positions were seen: this test shows nothing", len(distinct))
	}
	line.settle(events)
	r.endClean()
}

// Under load the watermark of the moment is always above any ceiling that is durable yet. Reports go on all the same, with
// the watermark the ceiling was raised for.
func TestReportsGoOnUnderLoad(t *testing.T) {
	r := newReporter(t)
	r.settle(100, true)
	r.step()
	r.wantRaise()
	for at := pglogrepl.LSN(200); at <= 500; at += 100 {
		r.settle(at, true)                 // before the raise was answered
		r.t.ceiling.Store(uint64(at - 50)) // where the WAL was when it was
		r.step()
		if r.sent.at != at-100 {
			t.Fatalf("reported %s, want %s", r.sent.at, at-100)
		}
		r.wantRaise()
	}
}

// The WAL moved on before anybody looked: the event is below the ceiling, the watermark is not.
func TestEventBelowTheCeilingIsReported(t *testing.T) {
	r := newReporter(t)
	r.t.ceiling.Store(100)
	r.settle(90, true)
	r.settle(110, false)
	r.step()
	r.wantRaise()
	r.t.ceiling.Store(120)
	r.step()
	if r.sent.at != 110 {
		t.Errorf("reported %s", r.sent.at)
	}
}

func TestIdleMovesWaitForTheTimer(t *testing.T) {
	r := newReporter(t)
	r.t.ceiling.Store(100)
	r.settle(90, false)
	r.step()
	if r.sent.at != 0 {
		t.Errorf("reported %s at once", r.sent.at)
	}
	if err := r.reporter.step(t.Context(), true); err != nil || r.sent.at != 90 {
		t.Errorf("reported %s with the timer (%v)", r.sent.at, err)
	}
	r.settle(110, false)
	r.step() // the first raise of a session
	r.wantRaise()
	r.t.ceiling.Store(120)
	r.step()
	r.settle(130, false)
	r.step()
	r.wantNoRaise()
	r.settle(120+idleRaiseBytes, false)
	r.step()
	r.wantRaise()
}

func TestReportOutsideOfItsBoundsEndsTheSession(t *testing.T) {
	for _, c := range []struct{ flush, ceiling, reported pglogrepl.LSN }{{0, 100, 0}, {101, 100, 50}, {49, 100, 50}} {
		r := newReporter(t)
		r.flush.at = c.flush
		r.t.ceiling.Store(uint64(c.ceiling))
		r.t.reported.Store(uint64(c.reported))
		if err := r.write(); err == nil {
			t.Errorf("%+v was written", c)
		}
	}
}

// The server asks for a report when half of wal_sender_timeout is over without one, and gives up after the other half.
func TestIdleRelayAnswersTheServer(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout = 900 * time.Millisecond // less than the reporter's own interval
	r := b.settledRun("a")
	r.waitChecked()
	b.insert("b")
	r.waitSeen("b")
	if n := r.s.Snapshot().Sessions; n != 1 {
		t.Errorf("%d sessions: a question was not answered", n)
	}
	r.endClean()
}

// The window is full for three times wal_sender_timeout: the reader stands still, the session lives.
func TestSessionSurvivesBackPressure(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout = 2 * time.Second
	r := b.settledRun("a")
	release := b.current().block()
	defer release()
	b.exec(`INSERT INTO outbox SELECT 'n' || n, to_jsonb(repeat('x', 1000)) FROM generate_series(1, 20000) n`) // more than any socket holds
	r.waitSeen("n1")
	blocked := time.NewTimer(3 * b.cfg.WALSenderTimeout) // the time itself is what is tested
	<-blocked.C
	release()
	r.waitSeen("n20000")
	if n := r.s.Snapshot().Sessions; n != 1 {
		t.Errorf("%d sessions", n)
	}
	if n := len(b.current().seen()); n != 20001 {
		t.Errorf("%d events", n)
	}
	r.endClean()
}

// The server goes silent without closing anything.
func TestSilentServerIsLeft(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout = 2 * time.Second
	p := b.through()
	r := b.settledRun("a")
	p.Hold(0)
	p.Hold(1)
	r.waitPhase(Waiting)
	p.Reset() // what was held is gone
	p.Release(0)
	p.Release(1)
	b.insert("b")
	r.waitSeen("b")
	r.endClean()
	if seen := b.current().seen(); !slices.Equal(seen, []string{"a", "b"}) {
		t.Errorf("seen: %v", seen)
	}
}

// A new session repeats what the server was not told about; this process does not.
func TestWalsenderTerminated(t *testing.T) {
	b := shared(t)
	r := b.settledRun("a")
	line := b.current()
	line.hold()
	for i := range 3 {
		b.insert(fmt.Sprint("held ", i))
		r.waitSeen(fmt.Sprint("held ", i))
		until(t, "a walsender to end", func() bool {
			return b.text(`SELECT count(pg_terminate_backend(active_pid))::text FROM pg_replication_slots WHERE slot_name = $1 AND active`, b.cfg.Slot) == "1"
		})
		until(t, "a new session", func() bool { return r.s.Snapshot().Sessions == i+2 })
	}
	b.insert("b")
	r.waitSeen("b")
	if seen := line.seen(); b.current() != line || !slices.Equal(seen, []string{"a", "held 0", "held 1", "held 2", "b"}) {
		t.Errorf("seen: %v", seen)
	}
	line.settle(5)
	r.endClean()
	b.goesOn("c")
	if seen := b.current().seen(); !slices.Equal(seen, []string{"c"}) {
		t.Errorf("after the clean stop: %v", seen)
	}
}

// A clean stop repeats nothing and misses nothing, while the outbox and other tables are being written.
func TestCleanStopsUnderLoad(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE other (t text)`)
	first := b.run() // before the writer: its table has no rows yet
	first.waitPhase(Streaming)
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	written := make(chan int, 1)
	writer := b.connect()
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			sql := fmt.Sprintf(`BEGIN; INSERT INTO outbox VALUES ('%d', '{}'); INSERT INTO other VALUES (repeat('x', 300)); COMMIT; INSERT INTO other VALUES ('')`, n)
			if _, err := writer.Exec(context.Background(), sql); err != nil {
				t.Error(err)
				break
			}
		}
		written <- n
	}()
	var got []string
	r := first
	for round := range 4 {
		line := b.current()
		until(t, "some events", func() bool { return len(line.seen()) > 20 })
		if round == 3 {
			stop()
		}
		r.endClean()
		got = append(got, line.seen()...)
		if round < 3 {
			r = b.run()
			until(t, "a new line", func() bool { return b.current() != nil })
		}
	}
	total := <-written
	last := b.run()
	if n := len(got); n < total {
		last.waitSeen(fmt.Sprint(total - 1))
	} else {
		last.waitPhase(Streaming)
	}
	last.endClean()
	got = append(got, b.current().seen()...)
	for i := range max(total, len(got)) {
		if i >= len(got) || got[i] != fmt.Sprint(i) {
			t.Fatalf("event %d is %q of %d, %d were written", i, got[min(i, len(got)-1)], len(got), total)
		}
	}
}

// A stop inside a transaction waits for its end for half the grace, and leaves it whole to the next start.
func TestStopInsideATransaction(t *testing.T) {
	b := shared(t)
	b.cfg.Grace = 2 * time.Second
	r := b.settledRun("a")
	line := b.current()
	defer line.block()()
	b.exec(`INSERT INTO outbox SELECT 'n' || n, to_jsonb(repeat('x', 1000)) FROM generate_series(1, 5000) n`)
	r.waitSeen("n1")
	r.endClean() // everything that was read is settled; the log says that it stopped inside
	if n := b.logs.FilterMessageSnippet("inside a transaction").Len(); n != 1 {
		t.Errorf("logged %d times", n)
	}
	next := b.run()
	next.waitSeen("n1", "n5000")
	next.endClean()
	if n := len(b.current().seen()); n != 5000 {
		t.Errorf("%d events after the stop", n)
	}
}

// The second signal skips what the first one waits for: the end of a transaction, and the broker.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	for name, prepare := range map[string]func(b *bench, r *running){
		"inside a transaction": func(b *bench, r *running) {
			b.t.Cleanup(b.current().block())
			b.exec(`INSERT INTO outbox SELECT 'n' || n, '{}' FROM generate_series(1, 5000) n`)
			r.waitSeen("n1")
		},
		"while the broker is dead": func(*bench, *running) {},
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.cfg.Grace = time.Hour // the test would not end
			r := b.settledRun("a")
			b.current().hold()
			b.insert("b")
			r.waitSeen("b")
			prepare(b, r)
			r.stop()
			r.waitPhase(Stopping)
			r.cut()
			wantStop(t, r.wait(), outbox.ExitCut, "cut")
			next := b.run()
			next.waitSeen("b")
			next.endClean()
		})
	}
}

// The drain takes longer than wal_sender_timeout, in which nobody reads any more. What is settled at its end is reported.
func TestLongDrainIsStillACleanStop(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout, b.cfg.Grace = time.Second, time.Minute
	r := b.settledRun("a")
	line := b.current()
	line.hold()
	b.insert("b")
	r.waitSeen("b")
	r.stop()
	r.waitPhase(Stopping)
	drain := time.NewTimer(4 * time.Second) // the time itself is what is tested
	<-drain.C
	line.settle(2)
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
	b.goesOn("c")
	if seen := b.current().seen(); !slices.Equal(seen, []string{"c"}) {
		t.Errorf("after the clean stop: %v", seen)
	}
}
