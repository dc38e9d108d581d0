// What follows when the broker closed a channel or connection over an event.

package rabbit

import (
	"context"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// channelException finds the culprits of a closed channel. An exception that names an exchange, a
// routing key or a size identifies them: those events are rejected, sent or not, and the others go
// together. Any other exception rejects the event when the round had only this one: whatever the
// channel carried before is answered. Of several events nobody knows which it was. That is an
// error: the caller offers them again, one at first.
//
// A size counts only on a channel that was opened for this round: a channel keeps the limit of the
// time when it was opened, and the limit may have been raised since.
func (l *lane) channelException(ch *conn.Channel, ex *amqp.Error) error {
	limit := sizeLimit(ex)
	if limit > 0 {
		l.link.SizeLimit.Store(int64(limit))
	}
	alone, found := len(l.sent) == 1, false
	for _, i := range l.todo {
		switch l.Outcomes[i].State {
		case sink.Confirmed, sink.Rejected:
			continue
		case sink.Unsent:
			if l.IsBehindRejected(i) {
				continue
			}
		case sink.Unknown:
		}
		at, size := l.routeAndSize(i)
		if !provesRejection(ex, at, size) && !(alone && i == l.sent[0].index) {
			continue
		}
		found = true
		if limit == 0 || ch.Fresh {
			l.reject(i, refusal(&l.message, ex, size))
		}
	}
	if !found {
		return errOneOf("channel", ex)
	}
	l.planNextRound()
	return nil
}

// errOneOf says that the broker closed something over one of several events. What it quotes may be
// a name that was made from an ordering key.
func errOneOf(what string, ex *amqp.Error) error {
	text, _, _ := strings.Cut(brokerText(ex), "'")
	return fmt.Errorf("%s closed over one of several events: %s", what, text)
}

// provesRejection reports whether the exception alone shows that a message to a destination with a
// body of size bytes is refused. A size is compared with the limit of the channel, which keeps the
// one of the time when it was opened: see channelException.
func provesRejection(ex *amqp.Error, at pair, size int) bool {
	limit := sizeLimit(ex)
	switch {
	case limit > 0:
		return size > limit
	case topicRight(ex):
		return strings.Contains(ex.Reason, "access to topic '"+at.routingKey+"' in exchange '"+at.exchange+"'")
	}
	return (ex.Code == amqp.NotFound || ex.Code == amqp.AccessRefused || ex.Code == amqp.PreconditionFailed) && names(ex, at.exchange)
}

// connectionException rejects an event because of which its private connection was closed: nothing
// else was sent there. The shared connection carries other lanes, whose events must not be affected
// again. So what was in flight there is sent on a private one, and until all of it is answered each
// call has one. Of several events nobody knows which it was, as with a channel.
func (l *lane) connectionException(ctx context.Context, ex *amqp.Error) error {
	switch {
	case len(l.sent) > 1:
		l.planNextRound()
		l.wary = len(l.todo)
		return errOneOf("connection", ex)
	case l.right != nil:
		i := l.sent[0].index
		l.reject(i, &sink.Fault{
			Class: sink.Transient, Reason: sink.BrokerException, Destination: l.destination(i), Text: brokerText(ex),
		})
	default:
		if err := l.seek(ctx, l.sink.private); err != nil {
			return err
		}
	}
	l.planNextRound()
	return nil
}

// batch is what the next round sends: all that is left. An event over the limit of sizes that is
// known of the connection goes alone, so that it does not affect others.
func (l *lane) batch() []int {
	limit := int(l.link.SizeLimit.Load())
	if limit == 0 {
		return l.todo
	}
	for n, i := range l.todo {
		if _, size := l.routeAndSize(i); size <= limit {
			continue
		}
		if n > 0 {
			return l.todo[:n]
		}
		l.renew = true // a new channel has today's limit of sizes
		return l.todo[:1]
	}
	return l.todo
}
