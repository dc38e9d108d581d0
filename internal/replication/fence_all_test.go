//go:build testall

package replication

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

// A standby is held up on its way to the slot, and meanwhile another one leads and stops. What it
// then compares the slot with must be of the time when it holds it.
func TestStandbyThatComesLate(t *testing.T) {
	b := shared(t)
	late, between := b.another(), b.another()
	var held atomic.Bool
	asked, goes := make(chan struct{}, 8), make(chan struct{})
	late.cfg.Password = func(context.Context) (string, error) { // asked for at every connect
		if held.Load() {
			asked <- struct{}{}
			<-goes
		}
		return "", nil
	}
	leader := b.settledRun("a")
	standby := late.run()
	letGo := sync.OnceFunc(func() { close(goes) })
	t.Cleanup(letGo)
	standby.waitPhase(slot.Standby)
	held.Store(true)
	leader.endClean()
	<-asked // the standby comes
	between.goesOn("b")
	held.Store(false)
	letGo()
	standby.waitPhase(slot.Streaming)
	b.insert("c")
	standby.waitSeen("c")
	standby.endClean()
}

// The slot was adopted between two sessions, under an epoch that looks like ours.
func TestLeaderReturnsAfterTheSlotWasAdopted(t *testing.T) {
	b := shared(t)
	p := b.through()
	r := b.settledRun("a")
	b.current().Hold()
	b.insert("b")
	r.waitSeen("b")
	old := b.current()
	p.Cut()
	b.exec(`UPDATE cdc_relay.slots SET incarnation = incarnation + 1`)
	await.Must(t, p.Restore())
	await.Until(t, "a new term", func() bool { return b.current() != old })
	r.waitSeen("b") // again: it was not settled
	r.endClean()
}
