package replication

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

// The server asks for a report when half of wal_sender_timeout is over without one, and gives up
// after the other half.
func TestIdleRelayAnswersTheServer(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout = 2 * time.Second
	r := b.settledRun("a")
	b.insert("b")
	r.waitSeen("b")
	// A machine that stands still for so long may end a session as well. Where questions are not
	// answered, none lives long enough.
	sessions, since := 0, time.Now()
	await.Until(t, "a session whose questions are answered", func() bool {
		if n := r.sessions(); n != sessions || r.s.Snapshot().Phase != slot.Streaming {
			sessions, since = n, time.Now()
		}
		if sessions > 10 {
			t.Fatal("no session lives: questions are not answered")
		}
		return time.Since(since) > 3*b.cfg.WALSenderTimeout
	}, func() any { return r.sessions() })
	r.endClean()
}

// The in-flight budget is full for longer than wal_sender_timeout: the reader stands still, the
// session lives.
func TestSessionSurvivesBackPressure(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout = 5 * time.Second // a busy machine may stand still for half of that
	r := b.settledRun("a")
	release := b.current().Block()
	defer release()
	// more than any socket holds
	b.exec(`INSERT INTO outbox SELECT 'n' || n, to_jsonb(repeat('x', 1000)) FROM generate_series(1, 20000) n`)
	r.waitSeen("n1")
	blocked := time.NewTimer(3 * b.cfg.WALSenderTimeout / 2) // the time itself is what is tested
	<-blocked.C
	release()
	r.waitSeen("n20000")
	if n := r.sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
	if n := len(b.current().Seen()); n != 20001 {
		t.Errorf("%d events", n)
	}
	r.endClean()
}

// The server goes silent without closing anything.
func TestSilentServerIsLeft(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout = 4 * time.Second
	p := b.through()
	r := b.settledRun("a")
	p.Hold(netproxy.Up)
	p.Hold(netproxy.Down)
	// said once, and logged: a moment later it waits for the new session
	await.Until(t, "the relay to leave it, and to name the setting", func() bool {
		return slices.ContainsFunc(b.logs.FilterMessage("waiting for PostgreSQL").All(), func(line observer.LoggedEntry) bool {
			return strings.Contains(fmt.Sprint(line.ContextMap()["reason"]), "source.wal_sender_timeout")
		})
	}, func() any { return r.s.Snapshot() })
	p.Reset() // what was held is gone
	p.Release(netproxy.Up)
	p.Release(netproxy.Down)
	b.insert("b")
	r.waitSeen("b")
	r.endClean()
	b.wantSeen("a", "b")
}

// A walsender that works for longer than wal_sender_timeout and sends nothing meanwhile is waited
// for: the next session would begin the same work again. Here it waits for a lock on the catalogue.
func TestBusyWalsenderIsWaitedFor(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout = 6 * time.Second
	r := b.settledRun("a")
	unlock := b.busyWalsender(r)
	if why := r.s.Snapshot().Why; !strings.Contains(why, "at work") {
		t.Errorf("status says %q", why)
	}
	b.insert("b")
	unlock()
	r.waitSeen("b")
	await.Until(t, "status to say nothing about it", func() bool { return r.s.Snapshot().Why == "" })
	b.wantNoneTakenForDead()
	r.endClean()
	b.wantSeen("a", "b")
}

// busyWalsender lets the walsender wait, until unlock, for a lock that it needs to find out that it
// need not send the row of another table, and returns when it was silent for longer than
// wal_sender_timeout.
//
// On a machine that stands still the database may not answer the question about the walsender. Then
// the session ends, as it should, and all of it is done again.
func (b *bench) busyWalsender(r *running) (unlock func()) {
	b.t.Helper()
	told := func() int {
		return b.logs.FilterMessageSnippet("at work").FilterMessageSnippet("source.wal_sender_timeout").Len()
	}
	for n := range 10 {
		table := fmt.Sprint("other", n) // the walsender does not ask twice about one
		b.exec(`CREATE TABLE ` + table + ` (n int)`)
		sessions, before, ended := r.sessions(), told(), false
		unlock = b.begin(`LOCK TABLE pg_publication_rel IN ACCESS EXCLUSIVE MODE`)
		b.exec(`INSERT INTO ` + table + ` VALUES (1)`)
		await.Until(b.t, "the relay to wait for its walsender", func() bool {
			ended = r.sessions() > sessions || r.s.Snapshot().Phase != slot.Streaming
			return ended || told() > before
		})
		if !ended {
			return unlock
		}
		unlock()
		await.Until(b.t, "the next session", func() bool { return r.sessions() > sessions })
		b.wantNoneTakenForDead()
	}
	b.t.Fatal("the question about the walsender is never answered")
	return nil
}

// wantNoneTakenForDead fails when a session has ended because its walsender was silent, although
// the database could be asked what it does. On a machine that stands still, sessions end for other
// reasons as well.
func (b *bench) wantNoneTakenForDead() {
	b.t.Helper()
	for _, line := range b.logs.FilterMessage("waiting for PostgreSQL").All() {
		why := fmt.Sprint(line.ContextMap()["reason"])
		if strings.Contains(why, "silent") && !strings.Contains(why, "cannot ask about its walsender") {
			b.t.Fatalf("a walsender at work was taken for dead: %s", why)
		}
	}
}

// A new session re-reads what was not reported to the server; this process does not send it again.
func TestWalsenderTerminated(t *testing.T) {
	b := shared(t)
	r := b.settledRun("a")
	line := b.current()
	line.Hold()
	for i := range 3 {
		b.insert(fmt.Sprint("held ", i))
		r.waitSeen(fmt.Sprint("held ", i))
		await.Until(t, "a walsender to end", func() bool {
			return b.text(`SELECT count(pg_terminate_backend(active_pid))::text FROM pg_replication_slots WHERE slot_name = $1 AND active`, b.cfg.Slot) == "1"
		})
		await.Until(t, "a new session", func() bool { return r.sessions() == i+2 })
	}
	b.insert("b")
	r.waitSeen("b")
	if seen := line.Seen(); b.current() != line || !slices.Equal(seen, []string{"a", "held 0", "held 1", "held 2", "b"}) {
		t.Errorf("seen: %v", seen)
	}
	line.Settle(5)
	r.endClean()
	b.goesOn("c")
	b.wantSeen("c")
}

// A clean stop repeats nothing and misses nothing, while the outbox and other tables are being
// written.
func TestCleanStopsUnderLoad(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE other (t text)`)
	first := b.run() // before the writer: its table has no rows yet
	first.waitPhase(slot.Streaming)
	ctx, stop := context.WithCancel(context.Background())
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
	add := func(seen []string) {
		// what a busy walsender did not take the report of comes again, and the log says so
		if b.logs.FilterMessageSnippet("was not acknowledged").Len() > 0 && len(seen) > 0 {
			if first, err := strconv.Atoi(seen[0]); err == nil && first < len(got) {
				got = got[:first]
			}
		}
		got = append(got, seen...)
	}
	r := first
	for round := range 4 {
		line := b.current()
		await.Until(t, "some events", func() bool { return len(line.Seen()) > 20 })
		if round == 3 {
			stop()
		}
		r.endClean()
		add(line.Seen())
		if round < 3 {
			r = b.run()
			await.Until(t, "a new line", func() bool { return b.current() != nil })
		}
	}
	total := <-written
	last := b.run()
	if n := len(got); n < total {
		last.waitSeen(fmt.Sprint(total - 1))
	} else {
		last.waitPhase(slot.Streaming)
	}
	last.endClean()
	add(b.current().Seen())
	for i := range max(total, len(got)) {
		if i >= len(got) || got[i] != fmt.Sprint(i) {
			t.Fatalf("event %d is %q of %d, %d were written", i, got[min(i, len(got)-1)], len(got), total)
		}
	}
}

// A stop inside a transaction waits for its end for half the grace, and leaves it whole to the next
// start.
func TestStopInsideATransaction(t *testing.T) {
	b := shared(t)
	b.cfg.Grace = 6 * time.Second
	r := b.settledRun("a")
	line := b.current()
	defer line.BlockAfter(3)()
	b.exec(`INSERT INTO outbox SELECT 'n' || n, to_jsonb(repeat('x', 1000)) FROM generate_series(1, 5000) n`)
	r.waitSeen("n4") // which waits for room: it is not admitted
	r.endClean()     // everything that was read is settled; the log says that it stopped inside
	if said := b.logs.FilterMessageSnippet("inside a transaction").All(); len(said) != 1 || said[0].ContextMap()["events"] != int64(3) {
		t.Errorf("log: %v", said)
	}
	b.delivers("n1", "n5000")
	if n := len(b.current().Seen()); n != 5000 {
		t.Errorf("%d events after the stop", n)
	}
}

// An idle outbox must not pin the WAL that other tables write.
func TestIdleOutboxMovesWithOtherTables(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE other (t text)`)
	r := b.streaming()
	for range 3 {
		// some 25 MB
		b.exec(`INSERT INTO other SELECT repeat(md5(g::text), 100) FROM generate_series(1, 8000) g`)
		await.Until(t, "the slot to follow", func() bool {
			v, err := slot.ReadView(await.Context(t), b.conn, b.cfg.Slot)
			return err == nil && uint64(v.Current)-uint64(v.ConfirmedFlush) < 20<<20
		})
	}
	r.endClean()
}
