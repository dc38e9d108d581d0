package replication

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// ceilingGap is the least time between two raises: each is a commit in the source database.
const ceilingGap = 100 * time.Millisecond

// ceilingRetry is the pause after a raise that failed.
const ceilingRetry = 500 * time.Millisecond

// keepCeiling raises the ceiling when the reporter asks, off the reporter's way: reports flow while a raise waits for the
// database. A raise whose answer is lost leaves the table above what we know, which is the safe side.
func (se *session) keepCeiling(ctx context.Context) error {
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-se.raise:
		}
		// Asked for twice while one raise was under way. After the last report of a clean stop the ceiling goes down, and
		// nothing may put it up again.
		if uint64(se.t.line.Watermark().LSN) <= se.t.ceiling.Load() {
			continue
		}
		tell(se.cfg.Hooks.Ceiling, true)
		err := raiseCeiling(ctx, se.pool, &se.cfg, se.t, se.pid, se.good())
		tell(se.cfg.Hooks.Ceiling, false)
		var stop *outbox.Stop
		switch {
		case err == nil:
			said = ""
			signal(se.kick)
		case errors.As(err, &stop) || errors.Is(err, errNotHolder):
			return err
		default:
			if goingAway(err) {
				signal(se.suspect)
			} else if err.Error() != said {
				said = err.Error()
				se.cfg.Log.Warn("the slot can not move: the ceiling is not raised", zap.Error(err))
			}
			signal(se.raise) // again
		}
		gap := ceilingGap
		if said != "" && !se.final.Load() {
			gap = ceilingRetry
		}
		if (err != nil || !se.final.Load()) && !slept(ctx, gap) {
			return nil
		}
	}
}
