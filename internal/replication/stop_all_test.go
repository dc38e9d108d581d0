//go:build testall

package replication

import (
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/session"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// A leader that is fenced while it stops no longer has lanes to wait for, and says why.
func TestFencedDuringAStop(t *testing.T) {
	b := shared(t)
	b.cfg.Grace = time.Hour // the test would not end
	r := b.settledRun("a")
	line := b.current()
	line.Hold()
	b.insert("b")
	r.waitSeen("b")
	r.stop()
	r.waitPhase(survey.Stopping)
	line.Failed <- session.Fenced(&b.cfg, 1)
	replicationtest.WantStop(t, r.wait(), event.ExitFailure, "fenced")
	next := b.run()
	next.waitSeen("b")
	next.endClean()
}

// The second signal skips what the first one waits for: the end of a transaction, and the broker.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	for name, prepare := range map[string]func(b *bench, r *running){
		"inside a transaction": func(b *bench, r *running) {
			b.t.Cleanup(b.current().Block())
			b.exec(`INSERT INTO outbox SELECT 'n' || n, '{}' FROM generate_series(1, 5000) n`)
			r.waitSeen("n1")
		},
		"while the broker is dead": func(*bench, *running) {},
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.cfg.Grace = time.Hour // the test would not end
			r := b.settledRun("a")
			b.current().Hold()
			b.insert("b")
			r.waitSeen("b")
			prepare(b, r)
			r.stop()
			r.waitPhase(survey.Stopping)
			r.cut()
			replicationtest.WantStop(t, r.wait(), event.ExitCut, "cut")
			next := b.run()
			next.waitSeen("b")
			next.endClean()
		})
	}
}

// The drain takes longer than wal_sender_timeout, in which nobody reads. What is settled at its end
// is reported.
func TestLongDrainIsStillACleanStop(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout, b.cfg.Grace = 5*time.Second, time.Hour
	r := b.settledRun("a")
	line := b.current()
	line.Hold()
	b.insert("b")
	r.waitSeen("b")
	r.stop()
	r.waitPhase(survey.Stopping)
	drain := time.NewTimer(2 * b.cfg.WALSenderTimeout) // the time itself is what is tested
	<-drain.C
	line.Settle(2)
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
	b.goesOn("c")
	if seen := b.current().Seen(); !slices.Equal(seen, []string{"c"}) {
		t.Errorf("after the clean stop: %v", seen)
	}
}
