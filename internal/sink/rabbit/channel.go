package rabbit

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// errGone says that the connection ended meanwhile.
var errGone = errors.New("connection lost")

// errFrozen ends a connection over which an answer may have been missed.
var errFrozen = errors.New("the process stood still for seconds: answers of the broker may have been missed")

// channel is a lane's channel in confirm mode, used by the lane's goroutine only. It serves one call at a time, and is
// abandoned when a call leaves anything unanswered on it, so what it answers is always the present call's.
type channel struct {
	sess   *session
	ch     *amqp.Channel
	opened time.Time
	// returns holds the most a call can have returned: amqp091 drops a return that finds it full for 5 s. The broker sends
	// a message's return before its confirm, and amqp091's reader hands both on in order, so once a confirm is seen the
	// return is in here.
	returns chan amqp.Return
	closes  chan *amqp.Error
}

// openChannel opens a channel in confirm mode.
func (s *session) openChannel(ctx context.Context) (*channel, error) {
	c := &channel{sess: s, opened: time.Now(), returns: make(chan amqp.Return, sink.MaxCallEvents), closes: make(chan *amqp.Error, 1)}
	err := s.rpc(ctx, func() (err error) {
		if c.ch, err = s.conn.Channel(); err != nil {
			return fmt.Errorf("open channel: %w", err)
		}
		c.ch.NotifyReturn(c.returns)
		c.ch.NotifyClose(c.closes)
		if err := c.ch.Confirm(false); err != nil {
			return fmt.Errorf("select confirms: %w", err)
		}
		return nil
	}, c.close)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// abandon closes the channel in the background: whatever is still answered on it concerns nobody any more.
func (c *channel) abandon() {
	c.sess.spawn(c.close)
}

// close asks the broker to close the channel, and waits for the answer or the connection's end.
func (c *channel) close() {
	_ = c.ch.Close() //nolint:errcheck // an error says that the connection has ended, which closes the channel as well
}

// usable reports whether a message may be written to the channel.
func (c *channel) usable() bool { return !c.ch.IsClosed() && c.sess.alive() }

// exception is why the channel was closed, or its connection; nil when neither is known.
func (c *channel) exception() *amqp.Error {
	select {
	case <-c.sess.gone:
		return c.sess.end
	default:
	}
	select {
	case ex := <-c.closes:
		return ex
	default:
		return nil
	}
}

// throwAway runs f on a channel that is closed afterwards. f's error is returned; so is ctx's, or that of a connection
// that does not answer, and f then ends with the connection.
func (s *session) throwAway(ctx context.Context, f func(*amqp.Channel) error) error {
	return s.rpc(ctx, func() error {
		ch, err := s.conn.Channel()
		if err != nil {
			return fmt.Errorf("open channel: %w", err)
		}
		defer ch.Close() //nolint:errcheck // nothing depends on it
		return f(ch)
	}, func() {})
}

// rpc runs f, which asks the broker something. amqp091's calls know no context and wait for ever, so f has a goroutine,
// which ends with the connection at the latest. A broker that does not answer within the confirm timeout has lost the
// connection, unless it blocks: then it does not read either. undo is called when f succeeded and nobody waits any more.
func (s *session) rpc(ctx context.Context, f func() error, undo func()) error {
	done := make(chan error)
	started := s.spawn(func() {
		err := f()
		select {
		case done <- err:
		case <-ctx.Done():
			if err == nil {
				undo()
			}
		case <-s.gone:
		}
	})
	if !started {
		return errGone
	}
	tick := time.NewTicker(s.limit)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-s.gone:
			return errGone
		case <-tick.C:
			if !s.blocked.Load() {
				s.kill(fmt.Errorf("broker has not answered for %s", s.limit))
			}
		}
	}
}

// spawn runs f in a goroutine that wait waits for; false when the session is over.
func (s *session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.work.Go(f)
	return true
}
