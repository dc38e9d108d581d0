// Questions to the broker, on a channel of their own or not, that end with a context.

package conn

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ThrowAway runs f on a channel that is closed afterwards. f's error is returned; so is ctx's, or
// that of a connection that does not answer, and f then ends with the connection.
func (s *Session) ThrowAway(ctx context.Context, f func(*amqp.Channel) error) error {
	return s.rpc(ctx, func() error {
		ch, err := s.amqp.Channel()
		if err != nil {
			return fmt.Errorf("open channel: %w", err)
		}
		defer ch.Close() //nolint:errcheck // nothing depends on it
		return f(ch)
	}, func() {})
}

// rpc runs f, which asks the broker something. amqp091's calls know no context and wait for ever,
// so f has a goroutine, which ends with the connection at the latest. A broker that does not answer
// within the confirm timeout has lost the connection, unless it blocks: then it does not read
// either. undo is called when f succeeded after the caller stopped waiting.
func (s *Session) rpc(ctx context.Context, f func() error, undo func()) error {
	done := make(chan error)
	started := s.Spawn(func() {
		err := f()
		select {
		case done <- err:
		case <-ctx.Done():
			if err == nil {
				undo()
			}
		case <-s.Gone:
		}
	})
	if !started {
		return ErrGone
	}
	tick := time.NewTicker(s.limit)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Gone:
			return ErrGone
		case <-tick.C:
			if !s.blocked.Load() {
				s.Kill(fmt.Errorf("broker has not answered for %s", s.limit))
			}
		}
	}
}
