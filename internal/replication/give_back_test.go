package replication

import (
	"context"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// broker is what a bench's relay knows of its broker.
type broker struct{ up, was atomic.Bool }

func (b *broker) state() (up, was bool) { return b.up.Load(), b.was.Load() }

// withBroker gives the bench a broker that is up or was never reached; without it lines settle
// nothing.
func (b *bench) withBroker(up bool) *broker {
	broker := &broker{}
	broker.up.Store(up)
	broker.was.Store(up)
	b.cfg.Broker, b.held = broker.state, !up
	b.cfg.GiveBackAfter, b.cfg.TakeBackAfter = time.Nanosecond, time.Hour
	return broker
}

// A leader with a wrong address of the broker makes way for a standby that has the right one, which
// reads everything, and leaves the slot alone until its own broker is there.
func TestLeaderWithoutBrokerGivesBack(t *testing.T) {
	b := shared(t)
	broker := b.withBroker(false)
	first := b.streaming()
	b.insert("a")
	first.waitSeen("a")
	other := b.another()
	other.withBroker(true)
	second := other.run()
	second.waitPhase(survey.Streaming)
	second.waitSeen("a")
	first.waitPhase(survey.Standby)
	second.waitReported("a")
	if n := b.logs.FilterMessageSnippet("giving the slot back").Len(); n != 1 {
		t.Errorf("%d lines say so", n)
	}
	second.endClean()
	await.Until(t, "the first relay to leave the free slot alone", func() bool {
		return strings.Contains(first.s.Snapshot().Why, "no other relay holds it yet")
	})
	b.insert("b")
	broker.up.Store(true)
	b.mu.Lock()
	b.held = false
	b.mu.Unlock()
	first.waitPhase(survey.Streaming)
	first.waitReported("b")
	b.wantSeen("b") // what the second relay reported is not read again
	first.endClean()
}

// lanesEnd is a line that says when its lanes have ended.
type lanesEnd struct {
	source.Line
	closed *atomic.Bool // the session, and with it the slot
	ended  func()
}

func (l lanesEnd) Disconnected() {
	l.closed.Store(true)
	l.Line.Disconnected()
}

func (l lanesEnd) Run(ctx context.Context) error {
	defer l.ended()
	return l.Line.Run(ctx)
}

// Whose word counts.
func TestOffer(t *testing.T) {
	b := shared(t)
	pool := b.pool()
	want := func(want bool, when string) {
		t.Helper()
		if got, err := slot.Offered(await.Context(t), pool, &b.cfg, slot.OfferLasts); err != nil || got != want {
			t.Errorf("%s: %t, %v", when, got, err)
		}
	}
	want(false, "without an offer")
	role := "forger_" + b.cfg.Slot
	b.exec(`CREATE ROLE ` + role + ` LOGIN`)
	u, err := url.Parse(b.url)
	await.Must(t, err)
	u.User = url.User(role)
	forger, err := pgx.Connect(await.Context(t), u.String())
	await.Must(t, err)
	defer forger.Close(context.Background())
	_, err = forger.Exec(await.Context(t), `SELECT pg_advisory_lock_shared($1, hashtext($2))`, slot.CreationLock+1, b.cfg.Slot)
	await.Must(t, err)
	want(false, "offered by another role")
	b.exec(`SELECT pg_advisory_lock_shared($1, hashtext($2))`, slot.CreationLock+1, b.cfg.Slot+"x")
	want(false, "offered for another slot")
	await.Must(t, slot.Offer(await.Context(t), pool, &b.cfg))
	want(true, "offered")
	await.Until(t, "the offer of a session that says nothing more to be ignored", func() bool {
		offered, err := slot.Offered(await.Context(t), b.pool(), &b.cfg, time.Millisecond)
		return err == nil && !offered
	})
	want(true, "offered, and the session is there")
	pool.Reset()
	await.Until(t, "the offer to end with its session", func() bool {
		offered, err := slot.Offered(await.Context(t), pool, &b.cfg, slot.OfferLasts)
		return err == nil && !offered
	})
}
