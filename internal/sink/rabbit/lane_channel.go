// The channel of a lane: on the shared connection, or on a private one for a call that may have a
// message over which the broker closes connections.

package rabbit

import (
	"context"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// open returns the channel for the next round, once there is one and the broker takes messages.
func (l *lane) open(ctx context.Context) (*conn.Channel, error) {
	for {
		sess, err := l.session(ctx)
		if err != nil {
			return nil, err
		}
		if unblocked := sess.UntilUnblocked(); unblocked != nil {
			select {
			case <-unblocked:
			case <-sess.Gone:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			continue
		}
		if l.ch != nil && l.ch.Session == sess && l.ch.Usable() && !l.renew {
			l.ch.Fresh = false
			return l.ch, nil
		}
		l.dropChannel()
		ch, err := sess.Take(ctx, l.use, l.renew)
		switch {
		case err == nil:
			l.ch, l.renew = ch, false
			return ch, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, amqp.ErrChannelMax): // until the broker has closed one
			if !conn.Sleep(ctx, conn.BackoffMin) {
				return nil, ctx.Err()
			}
			continue
		case sess == l.private && !l.refusedApart(ctx):
			return nil, err
		case sess == l.private:
			continue
		}
		// A connection that opens no channel is useless: have it re-created, with the link's
		// backoff.
		sess.Kill(err)
	}
}

// refusedApart reports whether the broker allows this user no channel on a private connection: then
// the call has the shared one.
func (l *lane) refusedApart(ctx context.Context) bool {
	if l.private.Alive() {
		return false
	}
	select {
	case <-l.private.Gone:
	case <-ctx.Done():
		return false
	}
	l.shared = channelLimit(l.private.End()) > 0
	return l.shared
}

// session is the call's private one when it has one, else the link's. A broker that does not take
// another connection may be away: the next call waits for the link's. One that allows no further
// connection has the call on the shared one: then what is alone in its round is the culprit.
func (l *lane) session(ctx context.Context) (*conn.Session, error) {
	if l.right == nil || l.shared {
		return l.link.Session(ctx)
	}
	if l.private != nil && l.private.Alive() {
		return l.private, nil
	}
	l.closePrivate()
	sess, err := l.sink.cfg.Dial(ctx, nil)
	if _, is := connectionLimit(err); is { // the shared one must do
		l.shared = true
		return l.link.Session(ctx)
	}
	if err != nil {
		l.wary = 0
		return nil, errors.New(conn.ErrorText(err))
	}
	l.private = sess
	return sess, nil
}

// dropChannel forgets the channel; answers to what was in flight on it are lost.
func (l *lane) dropChannel() {
	if l.ch == nil {
		return
	}
	l.ch.Abandon()
	l.ch = nil
}

// putChannel gives the channel back, on which all is answered.
func (l *lane) putChannel() {
	if l.ch == nil {
		return
	}
	l.ch.Put()
	l.ch = nil
}

// seek waits for a right to a private connection, unless the call has one: Sink.private or
// Sink.privateStuck.
func (l *lane) seek(ctx context.Context, right chan struct{}) error {
	if l.right != nil {
		return nil
	}
	select {
	case right <- struct{}{}:
		l.right = right
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leavePrivate goes back to the shared connection.
func (l *lane) leavePrivate() {
	if l.right == nil {
		return
	}
	l.closePrivate()
	<-l.right
	l.right = nil
}

// closePrivate closes the private connection, if there is one.
func (l *lane) closePrivate() {
	if l.private == nil {
		return
	}
	if l.ch != nil && l.ch.Session == l.private {
		l.dropChannel()
	}
	l.private.Close(conn.PrivateClose)
	l.private = nil
}
