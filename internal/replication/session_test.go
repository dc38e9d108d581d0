package replication

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
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
		if n := r.sessions(); n != sessions || r.s.Snapshot().Phase != survey.Streaming {
			sessions, since = n, time.Now()
		}
		if sessions > 10 {
			t.Fatal("no session lives: questions are not answered")
		}
		return time.Since(since) > 3*b.cfg.WALSenderTimeout
	}, func() any { return r.sessions() })
	r.endClean()
}

// The in-flight budget is full for twice wal_sender_timeout: the reader stands still, the session
// lives.
func TestSessionSurvivesBackPressure(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout = 5 * time.Second // a busy machine may stand still for half of that
	r := b.settledRun("a")
	release := b.current().Block()
	defer release()
	// more than any socket holds
	b.exec(`INSERT INTO outbox SELECT 'n' || n, to_jsonb(repeat('x', 1000)) FROM generate_series(1, 20000) n`)
	r.waitSeen("n1")
	blocked := time.NewTimer(2 * b.cfg.WALSenderTimeout) // the time itself is what is tested
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
	r.waitPhase(survey.Waiting)
	p.Reset() // what was held is gone
	p.Release(netproxy.Up)
	p.Release(netproxy.Down)
	b.insert("b")
	r.waitSeen("b")
	r.endClean()
	if seen := b.current().Seen(); !slices.Equal(seen, []string{"a", "b"}) {
		t.Errorf("seen: %v", seen)
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
	if seen := b.current().Seen(); !slices.Equal(seen, []string{"c"}) {
		t.Errorf("after the clean stop: %v", seen)
	}
}
