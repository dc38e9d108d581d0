// The search for the event because of which a channel or connection was closed.

package rabbit

import (
	"context"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// channelException finds the culprits of a closed channel. An exception that names an exchange, a
// routing key or a size identifies them: those events are rejected, sent or not, and the others go
// together. After any other exception what was in flight is sent one by one.
//
// A size counts only when the event was alone, on a channel that was opened for it: a channel keeps
// the limit of the time when it was opened, and the limit may have been raised since.
func (l *lane) channelException(ctx context.Context, ch *conn.Channel, ex *amqp.Error) {
	if l.sink.cfg.Declare && ex.Code == amqp.NotFound {
		l.sink.declare(ctx, ch.Session) // the next attempt finds it
	}
	limit := sizeLimit(ex)
	if limit > 0 {
		l.limit = limit
	}
	alone, found := l.alone(), false
	for _, i := range l.todo {
		switch l.outcomes[i].State {
		case sink.Confirmed, sink.Rejected:
			continue
		case sink.Unsent:
			if l.isBehindRejected(i) {
				continue
			}
		case sink.Unknown:
		}
		at, size := l.routeAndSize(i)
		if !provesRejection(ex, at, size) && !(alone && i == l.sent[0].index) {
			continue
		}
		found = true
		if limit == 0 || alone {
			l.reject(i, refusal(&l.message, ex, size))
		}
	}
	l.suspects = 0
	if !found {
		l.suspects = len(l.events) // planNextRound lowers it to what is in doubt
	}
	l.planNextRound()
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

// connectionException rejects an event because of which its private connection was closed.
// Otherwise the events in flight are sent one by one on a private connection: the shared one
// carries other lanes, whose events must not be affected.
func (l *lane) connectionException(ctx context.Context, ex *amqp.Error) error {
	if l.alone() && l.seeking {
		i := l.sent[0].index
		l.reject(i, &sink.Fault{
			Class: sink.Transient, Reason: sink.BrokerException, Destination: l.destination(i), Text: brokerText(ex),
		})
		l.suspects = 0
		l.planNextRound()
		return nil
	}
	if err := l.seek(ctx); err != nil {
		return err
	}
	l.suspects = len(l.events) // planNextRound lowers it to what is in doubt
	l.planNextRound()
	return nil
}

// alone reports whether this round carries a single suspect.
func (l *lane) alone() bool { return l.suspects > 0 && len(l.sent) == 1 }

// batch is what the next round sends: all that is left, or one suspect. An event over the limit of
// sizes goes alone, so that it does not affect others.
func (l *lane) batch() []int {
	if l.suspects > 0 {
		return l.todo[:1]
	}
	if l.limit == 0 {
		return l.todo
	}
	for n, i := range l.todo {
		if _, size := l.routeAndSize(i); size <= l.limit {
			continue
		}
		if n > 0 {
			return l.todo[:n]
		}
		l.dropChannel() // a new one has today's limit of sizes
		l.suspects = 1
		return l.todo[:1]
	}
	return l.todo
}
