// The search for the event over which a channel or connection was closed.

package rabbit

import (
	"context"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// channelException finds the culprit of a closed channel. An exception that names its exchange, or
// the size it refuses, identifies them: those events are rejected and the others go together. After
// any other exception what was in flight is sent one by one. So it is after a size refused on a
// channel with an older limit than a probe has found.
func (l *lane) channelException(ch *conn.Channel, ex *amqp.Error) {
	outdated := sizeLimit(ex) > 0 && ch.Opened.UnixNano() < l.sink.paused.raised.Load()
	alone, rejected := l.alone(), 0
	for _, s := range l.sent {
		if l.outcomes[s.index].State != sink.Unknown {
			continue
		}
		ev := l.events[s.index]
		if _, ok := l.message.Destination(ev); !ok {
			continue // cannot be: it was sent
		}
		m := &l.message
		if outdated || !alone && !concerns(ex, m.Exchange, len(ev.Payload)) {
			continue
		}
		fault := refusal(m, ex, len(ev.Payload))
		l.sink.paused.pause(ex, fault, m.Exchange, m.RoutingKey)
		l.reject(s.index, fault)
		if fault.Class == sink.Transient {
			l.sink.fatalEvents.add(ev.Position, false)
		}
		rejected++
	}
	l.suspects = 0
	if rejected == 0 {
		l.suspects = len(l.events) // planNextRound lowers it to what is in doubt
	}
	l.planNextRound()
}

// concerns reports whether the exception alone shows that a message to exchange with a body of size
// bytes is refused.
func concerns(ex *amqp.Error, exchange string, size int) bool {
	switch ex.Code {
	case amqp.NotFound, amqp.AccessRefused:
		return !topicRight(ex) && names(ex, exchange)
	case amqp.PreconditionFailed:
		if limit := sizeLimit(ex); limit > 0 {
			return size > limit
		}
		return names(ex, exchange)
	}
	return false
}

// connectionException rejects an event over which its private connection was closed, and otherwise
// has what was in flight sent one by one on such a connection: the shared one carries other lanes,
// whose events are not to suffer.
func (l *lane) connectionException(ctx context.Context, ex *amqp.Error) error {
	if l.alone() && l.seeking {
		for _, s := range l.sent {
			if l.outcomes[s.index].State == sink.Unknown {
				l.reject(s.index, &sink.Fault{
					Class: sink.Transient, Reason: sink.BrokerException,
					Destination: l.Destination(s.index), Text: brokerText(ex),
				})
				l.sink.fatalEvents.add(l.events[s.index].Position, true)
			}
		}
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

// batch is what the next round sends: all that is left, or one suspect. An event that has closed a
// channel or a connection before goes alone, so that a retry does not affect others.
func (l *lane) batch(ctx context.Context) ([]int, error) {
	if l.suspects > 0 {
		return l.todo[:1], nil
	}
	if l.sink.fatalEvents.count.Load() == 0 {
		return l.todo, nil
	}
	for n, i := range l.todo {
		private, known := l.sink.fatalEvents.find(l.events[i].Position)
		if !known {
			continue
		}
		if n > 0 {
			return l.todo[:n], nil
		}
		if private {
			if err := l.seek(ctx); err != nil {
				return nil, err
			}
		}
		l.suspects = 1
		return l.todo[:1], nil
	}
	return l.todo, nil
}

// maxFatalEvents bounds the remembered events that were found by a search; beyond it they are
// searched for again.
const maxFatalEvents = 1024

// fatalEvents are the positions of events over which a channel or, private, a connection was
// closed.
type fatalEvents struct {
	count   atomic.Int32
	mu      sync.Mutex
	private map[event.Position]bool
}

func (k *fatalEvents) add(pos event.Position, private bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.private == nil || len(k.private) >= maxFatalEvents {
		k.private = map[event.Position]bool{}
	}
	k.private[pos] = private
	k.count.Store(int32(len(k.private)))
}

func (k *fatalEvents) find(pos event.Position) (private, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	private, known = k.private[pos]
	return private, known
}

func (k *fatalEvents) remove(pos event.Position) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.private, pos)
	k.count.Store(int32(len(k.private)))
}
