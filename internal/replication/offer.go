// A relay that could not use the slot leaves it to one that can: a standby that reaches its broker
// says so, and a relay that gave the slot back does not take it again at once.

package replication

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// offerEvery is how often a standby says it again: the pool closes a session after half a minute.
const offerEvery = 5 * time.Second

// takeBackAfter is how long a relay that gave the slot back leaves it alone while no other relay
// holds it: two that reach no broker do not change places for ever, and a slot whose standby went
// away is not left unread for long, so that what needs no broker goes on, such as the disk guard.
const takeBackAfter = time.Minute

// offer is what a standby has said to the database.
type offer struct{ said time.Time }

// renew says that this standby reaches its broker, if it does. A database that refuses is asked
// again: the worst is that a leader without a broker stays.
func (o *offer) renew(ctx context.Context, pool *pgxpool.Pool, c *source.Config) {
	if up, _ := c.BrokerState(); !up || time.Since(o.said) < offerEvery {
		return
	}
	o.said = time.Now()
	if err := slot.Offer(ctx, pool, c); err != nil {
		c.Log.Debug("cannot offer to lead", zap.Error(err))
	}
}

// leavesIt reports whether this relay leaves a free slot to another one: it gave the slot back, its
// broker is still away, and the slot has not been free for long.
func (s *Stream) leavesIt(freeSince time.Time) bool {
	if !s.gaveBack {
		return false
	}
	patience := s.cfg.TakeBackAfter
	if patience == 0 {
		patience = takeBackAfter
	}
	if up, _ := s.cfg.BrokerState(); up || time.Since(freeSince) >= patience {
		return false
	}
	s.status.Enter(survey.Standby, "gave the slot back, because the broker was never reached; no other relay holds it yet")
	return true
}
