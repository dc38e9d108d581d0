package replication

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// A clean stop repeats nothing and misses nothing, while the outbox and other tables are being written.
func TestCleanStopsUnderLoad(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE other (t text)`)
	first := b.run() // before the writer: its table has no rows yet
	first.waitPhase(Streaming)
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Minute) // longer than all rounds: they wait for what is written
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
	defer line.blockAfter(3)()
	b.exec(`INSERT INTO outbox SELECT 'n' || n, to_jsonb(repeat('x', 1000)) FROM generate_series(1, 5000) n`)
	r.waitSeen("n4") // which waits for room: it is not admitted
	r.endClean()     // everything that was read is settled; the log says that it stopped inside
	if said := b.logs.FilterMessageSnippet("inside a transaction").All(); len(said) != 1 || said[0].ContextMap()["events"] != int64(3) {
		t.Errorf("log: %v", said)
	}
	next := b.run()
	next.waitSeen("n1", "n5000")
	next.endClean()
	if n := len(b.current().seen()); n != 5000 {
		t.Errorf("%d events after the stop", n)
	}
}

// A leader that is fenced while it stops has no lanes any more to wait for, and says why.
func TestFencedDuringAStop(t *testing.T) {
	b := shared(t)
	b.cfg.Grace = time.Hour // the test would not end
	r := b.settledRun("a")
	line := b.current()
	line.hold()
	b.insert("b")
	r.waitSeen("b")
	r.stop()
	r.waitPhase(Stopping)
	line.failed <- fenced(&b.cfg, 1)
	wantStop(t, r.wait(), outbox.ExitFailure, "fenced")
	next := b.run()
	next.waitSeen("b")
	next.endClean()
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
	b.cfg.WALSenderTimeout, b.cfg.Grace = 3*time.Second, time.Minute
	r := b.settledRun("a")
	line := b.current()
	line.hold()
	b.insert("b")
	r.waitSeen("b")
	r.stop()
	r.waitPhase(Stopping)
	drain := time.NewTimer(3 * b.cfg.WALSenderTimeout) // the time itself is what is tested
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
