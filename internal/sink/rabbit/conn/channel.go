// Channels: those in confirm mode, and those for one question to the broker.

package conn

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Channel is a channel in confirm mode. It serves one call at a time, whose goroutine alone uses
// it. It is abandoned when a call leaves a message unanswered, so its answers always belong to the
// present call.
type Channel struct {
	Session *Session
	AMQP    *amqp.Channel
	Fresh   bool // it was opened for this call
	use     Use
	shares  bool // a probe has it, and Session.sharing
	// Returns has room for the most a call can have returned: amqp091 drops a return that finds it
	// full for 5 s. The broker sends a message's return before its confirm, and amqp091's reader
	// hands both on in order, so once a confirm is seen the return is in here.
	Returns chan amqp.Return
	closes  chan *amqp.Error
}

// openChannel opens a channel in confirm mode. A call of a probe has one event.
func (s *Session) openChannel(ctx context.Context, use Use) (*Channel, error) {
	most := 1
	if use == Lanes {
		most = sink.MaxCallEvents
	}
	c := &Channel{Session: s, use: use, Returns: make(chan amqp.Return, most), closes: make(chan *amqp.Error, 1)}
	err := s.rpc(ctx, func() (err error) {
		if c.AMQP, err = s.amqp.Channel(); err != nil {
			return fmt.Errorf("open channel: %w", err)
		}
		c.AMQP.NotifyReturn(c.Returns)
		c.AMQP.NotifyClose(c.closes)
		if err := c.AMQP.Confirm(false); err != nil {
			return fmt.Errorf("select confirms: %w", err)
		}
		return nil
	}, c.Close)
	if err != nil {
		return nil, err
	}
	if s.open.Add(1); s.onOpen != nil {
		s.onOpen()
	}
	return c, nil
}

// Close asks the broker to close the channel, and waits for the answer or the connection's end.
func (c *Channel) Close() {
	_ = c.AMQP.Close() //nolint:errcheck // an error says that the connection has ended, which closes the channel as well
}

// Usable reports whether a message may be written to the channel.
func (c *Channel) Usable() bool { return !c.AMQP.IsClosed() && c.Session.Alive() }

// Exception returns why the channel or its connection was closed; nil when that is not known.
func (c *Channel) Exception() *amqp.Error {
	select {
	case <-c.Session.Gone:
		return c.Session.end
	default:
	}
	select {
	case ex := <-c.closes:
		return ex
	default:
		return nil
	}
}

// HasRoom reports whether a message may be written now, as far as the broker and the wire go.
func (c *Channel) HasRoom() bool { return !c.Session.blocked.Load() && c.Session.Wire.hasRoom() }

// Ready waits until a message may be written: the broker does not block and the wire has room. It
// returns false when the channel is gone or ctx is done. If the broker blocks for hours, Ready
// waits for hours.
func (c *Channel) Ready(ctx context.Context) bool {
	for !c.HasRoom() {
		if unblocked := c.Session.UntilUnblocked(); unblocked != nil {
			select {
			case <-unblocked:
			case <-c.Session.Gone:
			case <-ctx.Done():
			}
		} else {
			c.Session.Wire.waitRoom(ctx, c.Session.Gone)
		}
		if ctx.Err() != nil || !c.Usable() {
			return false
		}
	}
	return true
}

// ThrowAway runs f on a channel that is closed afterwards. f's error is returned; so is ctx's, or
// that of a connection that does not answer, and f then ends with the connection.
func (s *Session) ThrowAway(ctx context.Context, f func(*amqp.Channel) error) error {
	return s.rpc(ctx, func() error { return s.ask(f) }, func() {})
}

// rpc runs f, which asks the broker something. amqp091's calls know no context and wait for ever,
// so f has a goroutine, which ends with the connection at the latest. If the broker does not answer
// within the confirm timeout, the connection is given up, unless the broker blocks: then it does
// not read either. undo is called when f succeeded after the caller stopped waiting.
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
