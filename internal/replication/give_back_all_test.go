//go:build testall

package replication

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// A leader stays that reached its broker once, and one whose standby reaches no broker either:
// another one would be no better.
func TestLeaderStays(t *testing.T) {
	each(t, map[string]struct{ was, other bool }{
		"its broker was up":            {was: true, other: true},
		"the standby has none, either": {},
	}, func(t *testing.T, b *bench, c struct{ was, other bool }) {
		broker := b.withBroker(false)
		broker.was.Store(c.was)
		var looks atomic.Int64
		b.cfg.Hooks.Monitor = func(atWork bool) {
			if !atWork {
				looks.Add(1)
			}
		}
		first := b.streaming()
		other := b.another()
		other.withBroker(c.other)
		other.cfg.Hooks.Monitor = nil
		second := other.run()
		second.waitPhase(survey.Standby)
		seen := looks.Load()
		await.Until(t, "the leader to look again after the standby came", func() bool { return looks.Load() >= seen+2 })
		if phase := first.s.Snapshot().Phase; phase != survey.Streaming {
			t.Errorf("the leader is %s", phase)
		}
	})
}

// The standby that made the leader give back is gone, or cannot lead: the slot is not left unread.
func TestSlotThatWasGivenBackIsTakenAgain(t *testing.T) {
	b := shared(t)
	b.withBroker(false)
	b.cfg.TakeBackAfter = time.Nanosecond
	b.exec(`SELECT pg_advisory_lock_shared($1, hashtext($2))`, slot.CreationLock+1, b.cfg.Slot)
	r := b.run()
	await.Until(t, "the relay to give back", func() bool { return b.logs.FilterMessageSnippet("giving the slot back").Len() > 0 })
	await.Until(t, "the relay to lead again", func() bool { return r.sessions() > 1 })
	b.insert("a")
	r.waitSeen("a")
}

// A broker that comes up while the slot is given back gets nothing from this relay any more once
// another one may send: the lanes end first. A relay that is asked to stop just then does.
func TestLanesEndBeforeTheSlotIsGivenBack(t *testing.T) {
	b := shared(t)
	b.withBroker(false)
	newLine, held := b.cfg.NewLine, make(chan bool, 1)
	var closed atomic.Bool
	var stop context.CancelFunc
	asked := make(chan struct{})
	b.cfg.NewLine = func(ctx context.Context, at source.Term) (source.Line, error) {
		line, err := newLine(ctx, at)
		return lanesEnd{line, &closed, func() {
			<-asked
			held <- !closed.Load()
			stop()
		}}, err
	}
	r := b.streaming()
	stop = r.stop
	close(asked)
	b.insert("a")
	r.waitSeen("a")
	b.exec(`SELECT pg_advisory_lock_shared($1, hashtext($2))`, slot.CreationLock+1, b.cfg.Slot)
	if !<-held {
		t.Error("the slot was free before the lanes ended")
	}
	<-r.done
	if r.err != nil {
		t.Errorf("asked to stop while it gave the slot back: %v", r.err)
	}
	b.waitFree()
}
