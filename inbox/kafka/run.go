// Run: sessions with the brokers, one after another.

package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/inbox/internal/wait"
)

// finalError is an error that waiting does not cure.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// Run receives messages until ctx ends, and then returns nil: no more are begun, handlers that run
// may go on for inbox.Config.Grace, and what they have done is committed.
//
// It waits for brokers and for the database. It returns an error for what waiting does not cure: a
// LostError, topics of the service that differ from what Declare makes, a missing table, and a
// login or right that is refused before the first message was asked for.
//
// It also returns an error when handlers still run, because they do not obey the end of their
// context: do not close the pool before they have ended. Their messages come again.
func (c *Consumer) Run(ctx context.Context) error {
	err := c.receive(ctx)
	if n := c.running.Load(); n > 0 {
		err = errors.Join(err, fmt.Errorf("stop: %d handlers still run after Grace and the end of their context: their messages come again", n))
	}
	return err
}

func (c *Consumer) receive(ctx context.Context) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer c.in.BrokerUp(false)
	if err := c.in.Ready(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	beside.Go(func() { c.in.Prune(ctx) })
	beside.Go(func() { c.report(ctx) })
	for pause := (wait.Backoff{}); ; {
		began := time.Now()
		err := c.join(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errTopics), errors.Is(err, errOvertaken):
			c.log.Info("the group is joined again", "reason", err)
			pause.Reset()
			continue
		case c.isFinal(err):
			return err
		}
		c.in.BrokerUp(false)
		c.receiving.Failed(err)
		if time.Since(began) > time.Minute {
			pause.Reset()
		}
		if pause.Pause(ctx) != nil {
			return nil
		}
	}
}

// join is one session with the brokers.
func (c *Consumer) join(ctx context.Context) error {
	if err := c.in.Ready(ctx); err != nil {
		return &finalError{err}
	}
	first := c.connect(nil)
	defer first.Close()
	if err := first.Reach(ctx); err != nil {
		return err
	}
	if err := c.declare(ctx, first); err != nil {
		return err
	}
	former, err := c.former(ctx, first)
	if err != nil {
		return err
	}
	k := c.connect(former)
	defer k.Close()
	return c.member(ctx, k)
}

func (c *Consumer) isFinal(err error) bool {
	var final *finalError
	var lost *LostError
	return errors.As(err, &final) || errors.As(err, &lost) || isRefused(err) && !c.joined.Load()
}

// Declare makes the service's own topics where they do not exist: one for each level of retries,
// one for returned dead letters, and the dead-letter topic. One that exists is left as it is, and
// an error says what of it would lose messages.
func (c *Consumer) Declare(ctx context.Context) error {
	k := c.connect(nil)
	defer k.Close()
	err := k.Reach(ctx)
	if err == nil {
		err = c.declare(ctx, k)
	}
	if err != nil {
		return fmt.Errorf("declare the topics of %s: %w", c.in.Service(), err)
	}
	return nil
}
