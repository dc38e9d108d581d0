// Leadership is given back: a leader that has never reached its broker makes way for a standby that
// has.
//
// The failure behind it: a pod with a wrong address of the broker becomes the leader, because the
// others were stopped or died. It reads, can send nothing, and holds the slot beside a standby that
// could.
//
// Nothing is lost by it, and hardly anything is repeated. What is unsettled stays above the slot's
// position, and the next leader reads it, as after any other end of a leader. As this process never
// had a connection to the broker, no event was confirmed; what was settled in the retry table
// without a broker is there for the next leader, too. Only a broker that is reached at this very
// moment may take an event that is then sent twice, and before the next leader sends it: the lanes
// end while this relay still holds the slot.
//
// A leader that reached its broker once never gives back. Then it is an outage, which is most
// likely the standby's as well, and a change of the leader would only cost time.

package session

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

// GiveBackAfter is how long a leader may try to reach its broker before it gives the slot back:
// long enough for a name that is not resolved yet, a timeout of connect and the tries after it;
// short beside what a disk takes to fill.
const GiveBackAfter = 30 * time.Second

// ErrGivenBack ends the session and the term of a leader that gives the slot back.
var ErrGivenBack = errors.New("the broker was never reached, and a standby reaches its own")

// giveBack ends the lanes before the slot is free, and then reports what is settled. Lanes that
// went on until the session is closed could send an early event of a key after the next leader has
// sent a later one.
func (se *Session) giveBack() {
	se.t.End()
	se.flushReport()
}

// betterStandby reports whether this leader should make way.
func (se *Session) betterStandby(ctx context.Context) bool {
	patience := se.Cfg.GiveBackAfter
	if patience == 0 {
		patience = GiveBackAfter
	}
	if _, was := se.Cfg.BrokerState(); was || time.Since(se.t.began) < patience {
		return false
	}
	offered, err := slot.Offered(ctx, se.Pool, se.Cfg, slot.OfferLasts)
	if err != nil || !offered {
		return false // the next round asks again
	}
	// It may have been reached while the database was asked.
	if _, was := se.Cfg.BrokerState(); was {
		return false
	}
	se.Cfg.Log.Warn("giving the slot back: the broker was never reached by this relay, and a standby reaches its own; nothing is lost",
		zap.String("slot", se.Cfg.Slot), zap.Int64("epoch", se.t.Epoch), zap.String("fix", "compare this relay's section sink with that of the others"))
	return true
}
