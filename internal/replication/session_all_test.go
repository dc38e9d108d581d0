//go:build testall

package replication

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/session"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// A row that takes longer than wal_sender_timeout to arrive is no silence: taken for one, it would
// be begun again for ever.
func TestHugeRowOverASlowLine(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout = 6 * time.Second // a busy machine may stand still for half of that
	p := b.through()
	r := b.settledRun("a")
	p.Trickle(50 << 10)
	// 400 KiB
	b.exec(`INSERT INTO outbox SELECT 'huge', to_jsonb(string_agg(md5(g::text), '')) FROM generate_series(1, 12800) g`)
	r.waitSeen("huge")
	if sessions := r.sessions(); sessions != 1 {
		t.Errorf("%d sessions: the line was taken for dead", sessions)
	}
	p.Trickle(0)
	r.endClean()
}

// A walsender that is silent and does not work is left, although the pool's connections are well.
// Here it is frozen while it waits for WAL.
func TestSilentWalsenderThatWaits(t *testing.T) {
	t.Parallel()
	// Its own server: the end of another test's database would wait for the frozen process.
	b := newBench(t, ownServer(t, nil).URL("shop"))
	b.cfg.WALSenderTimeout = 3 * time.Second
	r := b.settledRun("a")
	var pid int
	b.scan(&pid, `SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
	await.Must(t, syscall.Kill(pid, syscall.SIGSTOP))
	defer syscall.Kill(pid, syscall.SIGCONT)
	r.waitPhase(slot.Waiting)
	await.Until(t, "the log to say why", func() bool {
		return slices.ContainsFunc(b.logs.FilterMessage("waiting for PostgreSQL").All(), func(line observer.LoggedEntry) bool {
			why, _ := line.ContextMap()["reason"].(string)
			return strings.Contains(why, "source.wal_sender_timeout") && strings.Contains(why, "WalSender")
		})
	}, func() any { return b.logs.All() })
	await.Must(t, syscall.Kill(pid, syscall.SIGCONT))
	b.insert("b")
	r.waitSeen("b")
	r.endClean()
	b.wantSeen("a", "b")
}

// A stop while the walsender works and does not read is not acknowledged, and is a stop all the
// same.
func TestStopWhileTheWalsenderIsBusy(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout = 6 * time.Second
	r := b.settledRun("a")
	unlock := b.busyWalsender(r)
	r.endClean()
	unlock()
	b.goesOn("b")
	b.wantSeen("b")
}

// A line that counts a million deferred ordering groups takes longer to make than
// wal_sender_timeout: the session lives on meanwhile.
func TestLineThatTakesItsTime(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout = 5 * time.Second
	quick, made := b.cfg.NewLine, 0
	b.cfg.NewLine = func(ctx context.Context, at source.Term) (source.Line, error) {
		made++
		if !source.Sleep(ctx, 3*b.cfg.WALSenderTimeout/2) { // the time itself is what is tested
			return nil, ctx.Err()
		}
		return quick(ctx, at)
	}
	b.goesOn("a")
	if made != 1 {
		t.Errorf("%d lines were made, want 1", made)
	}
}

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
	r.waitPhase(slot.Stopping)
	line.Failed <- session.FencedStop(&b.cfg, 1)
	b.wantStop(r.wait(), event.ExitFailure, "fenced")
	b.delivers("b")
}

// The second signal skips what the first one waits for: the end of a transaction, and the broker.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	each(t, map[string]func(b *bench, r *running){
		"inside a transaction": func(b *bench, r *running) {
			b.t.Cleanup(b.current().Block())
			b.exec(`INSERT INTO outbox SELECT 'n' || n, '{}' FROM generate_series(1, 5000) n`)
			r.waitSeen("n1")
		},
		"while the broker is dead": func(*bench, *running) {},
	}, func(t *testing.T, b *bench, prepare func(b *bench, r *running)) {
		b.cfg.Grace = time.Hour // the test would not end
		r := b.settledRun("a")
		b.current().Hold()
		b.insert("b")
		r.waitSeen("b")
		prepare(b, r)
		r.stop()
		r.waitPhase(slot.Stopping)
		r.cut()
		b.wantStop(r.wait(), event.ExitCut, "cut")
		b.delivers("b")
	})
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
	r.waitPhase(slot.Stopping)
	drain := time.NewTimer(3 * b.cfg.WALSenderTimeout / 2) // the time itself is what is tested
	<-drain.C
	line.Settle(2)
	await.Must(t, r.wait())
	b.goesOn("c")
	b.wantSeen("c")
}

// The monitor and the flush limit are at work while the database keeps them waiting, here by a
// lock, and at rest when it has answered, whatever the answer was, and when the session is over.
func TestLoopsTellThatTheyAreAtWork(t *testing.T) {
	b := shared(t)
	var monitor, flushLimit atomic.Bool
	b.cfg.Hooks.Monitor, b.cfg.Hooks.FlushLimit = monitor.Store, flushLimit.Store
	r := b.settledRun("a")
	r.waitChecked()
	unlock := b.begin(`LOCK TABLE cdc_relay.slots IN ACCESS EXCLUSIVE MODE`)
	b.insert("b")
	await.Until(t, "both to wait for the lock", func() bool { return monitor.Load() && flushLimit.Load() })
	unlock()
	await.Until(t, "both to be at rest", func() bool { return !monitor.Load() && !flushLimit.Load() })
	r.endClean()
	if monitor.Load() || flushLimit.Load() {
		t.Error("at work after the end")
	}
}
