//go:build testall

package replication

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// The monitor and the flush limit are at work while the database keeps them waiting, here by a
// lock, and at rest when it has answered, whatever the answer was, and when the session is over.
func TestLoopsTellThatTheyAreAtWork(t *testing.T) {
	b := shared(t)
	var monitor, flushLimit atomic.Bool
	b.cfg.Hooks.Monitor, b.cfg.Hooks.FlushLimit = monitor.Store, flushLimit.Store
	r := b.settledRun("a")
	r.waitChecked()
	locking := b.connect()
	tx, err := locking.Begin(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(await.Context(t), `LOCK TABLE cdc_relay.slots IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	b.insert("b")
	await.Until(t, "both to wait for the lock", func() bool { return monitor.Load() && flushLimit.Load() })
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "both to be at rest", func() bool { return !monitor.Load() && !flushLimit.Load() })
	r.endClean()
	if monitor.Load() || flushLimit.Load() {
		t.Error("at work after the end")
	}
}
