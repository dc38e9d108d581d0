// A consumer at work: one session with the broker after another.

package rabbit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/inbox/internal/wait"
)

// Run processes messages until ctx ends. Then it begins no more, lets the handlers that run end
// within inbox.Config.Grace, and returns nil. When handlers ignore that their context has ended, it
// returns an error 5 seconds later.
//
// While the broker or the database is away it waits, and says so in the log and in the metrics. It
// returns an error for what waiting does not cure: the topology differs from what the broker has,
// the table of processed messages is missing, or the broker refuses the login or a right before the
// consumer was ever connected. Later it waits for these as well: rights change.
func (c *Consumer) Run(ctx context.Context) error {
	if err := c.in.Ready(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &publisher{c: c}
	var jobs sync.WaitGroup
	jobs.Go(func() { c.in.Prune(ctx) })
	defer jobs.Wait()
	defer cancel()
	defer p.close()

	var pauses wait.Backoff
	for connected := false; ; {
		began := time.Now()
		err := c.session(ctx, p, &connected)
		c.in.BrokerUp(false)
		var differs *differenceError
		var final *finalError
		var stuck *stuckError
		switch {
		case errors.As(err, &stuck):
			return err
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &differs), errors.As(err, &final), isRefusal(err) && !connected:
			return err
		}
		c.receiving.Failed(err)
		// A session that ends soon after another is counted by the broker, for each message that
		// was delivered. So the pauses grow also when connecting works.
		if time.Since(began) > time.Minute {
			pauses.Reset()
		}
		if pauses.Pause(ctx) != nil {
			return nil
		}
	}
}

// stuckError is a stop that has left handlers behind.
type stuckError struct{ handlers int }

func (e *stuckError) Error() string {
	return fmt.Sprintf("stop: %d handlers still run after Grace and the end of their context: their messages come again", e.handlers)
}

// finalError is an error that waiting does not cure.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }
