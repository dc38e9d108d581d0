// From the answers of the broker to the outcomes of a round.

package rabbit

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

// await waits until every message of the round is answered. It waits for the last one first:
// confirms mostly come in order and many at a time, so the lane is woken once instead of once per
// message.
func (l *lane) await(ctx context.Context, ch *conn.Channel) conn.End {
	if len(l.sent) == 0 {
		return conn.Answered
	}
	l.sink.pending.Add(int64(len(l.sent)))
	defer l.sink.pending.Add(-int64(len(l.sent)))
	defer l.timer.Stop()

	clock := conn.ConfirmClock{Sess: ch.Session, Round: l.round, Progress: time.Now(), Timeout: l.sink.cfg.ConfirmTimeout}
	clock.Ping = func() { ch.Session.Spawn(ch.Session.Ping) }
	armed := false
	for i := len(l.sent) - 1; i >= 0; i-- {
		done := l.sent[i].answer.Done()
		for waiting := true; waiting; {
			select {
			case <-done:
				waiting = false
				continue
			default:
			}
			if !armed {
				l.timer.Reset(clock.Timeout / 8)
				armed = true
			}
			select {
			case <-done:
				waiting = false
			case <-ch.Session.Gone:
				return conn.Answered
			case <-ctx.Done():
				return conn.Cancelled
			case now := <-l.timer.C:
				armed = false
				e := clock.Tick(now, l.readAnswers(), i < len(l.sent)-1)
				if e != conn.Answered && (e != conn.Late || (ch.Session.Shared() || clock.Unanswered(now) >= l.patience)) {
					return e
				}
			}
		}
	}
	return conn.Answered
}

// resolve turns the round's answers into outcomes; with an error all of it is in doubt. The broker
// acks a returned message too, although it was routed nowhere. amqp091 hands on the return before
// the ack, so resolve reads in the opposite order: first the answers, then the returns, and last
// whether the process was suspended, because a return may have been dropped then. An answer that
// arrives in between is not used: its message is in doubt.
func (l *lane) resolve(ch *conn.Channel) error {
	l.readAnswers()
	returned, err := l.returned(ch)
	if err == nil && ch.Session.Wire.WasFrozen(time.Now()) {
		err = conn.ErrFrozen
	}
	if err != nil {
		ch.Session.Kill(err)
		return fmt.Errorf("connection given up: %w", err)
	}
	l.decide(ch, returned)
	return nil
}

// readAnswers records which messages are answered by now, and counts them.
func (l *lane) readAnswers() (answered int) {
	for i := range l.sent {
		s := &l.sent[i]
		select {
		case <-s.answer.Done():
			s.answered, s.acked = true, s.answer.Acked()
			answered++
		default:
		}
	}
	return answered
}

// decide sets the outcomes of the messages that readAnswers found answered, and of returned ones. A
// negative answer on a closed channel is amqp091's, not the broker's.
func (l *lane) decide(ch *conn.Channel, returned map[int]amqp.Return) {
	confirmed := 0
	for _, s := range l.sent {
		if r, ok := returned[s.index]; ok {
			l.Returned++
			l.reject(s.index, unroutable(r, message.Pair(l.message.Layout.Shown(l.Events[s.index].Copy, r.Exchange, r.RoutingKey))))
			continue
		}
		switch {
		case !s.answered:
		case s.acked:
			confirmed++
			l.Outcomes[s.index] = sink.Outcome{State: sink.Confirmed}
		case ch.Usable():
			l.Nacks++
			l.reject(s.index, &sink.Fault{
				Class: sink.Destination, Reason: sink.Nacked, Destination: l.destination(s.index),
				Text: "the broker answered with a nack: a queue is full or has died",
			})
		}
	}
	l.Acks += confirmed
	if confirmed > 0 {
		ch.Session.Confirmed(time.Now(), l.round)
	}
	if limit := l.link.SizeLimit.Load(); limit > 0 && len(l.sent) == 1 && l.answeredAll() {
		if _, size := l.routeAndSize(l.sent[0].index); size > int(limit) {
			l.link.SizeLimit.Store(0)
		}
	}
}

// rejectUnanswered rejects what the broker has certainly read and not answered, while it answered
// something else: a queue is stuck, or has lost its majority. All of it at once, because nothing
// else of the lane goes while one of them is waited for.
func (l *lane) rejectUnanswered() {
	for _, s := range l.sent {
		if l.Outcomes[s.index].State != sink.Unknown {
			continue
		}
		l.Timeouts++
		l.reject(s.index, &sink.Fault{
			Class: sink.Destination, Reason: sink.Unconfirmed, Destination: l.destination(s.index),
			Text: fmt.Sprintf("no answer for %s while the broker answers", 2*l.sink.cfg.ConfirmTimeout),
		})
	}
	l.dropChannel()
}

// unroutable is the fault of a returned message, with its destination as it is shown.
func unroutable(r amqp.Return, destination string) *sink.Fault {
	return &sink.Fault{
		Class: sink.Destination, Reason: sink.Unroutable, Destination: destination,
		Text: fmt.Sprintf("%d %s: no queue is bound for this routing key", r.ReplyCode, r.ReplyText),
	}
}

// conclude plans the next round from how the last one ended. An error ends the call: the outcomes
// that are Unknown then are in doubt. When every message is answered after all, there is no error:
// however the wait ended, nothing is in doubt.
func (l *lane) conclude(ctx context.Context, ch *conn.Channel, e conn.End, doubt error) error {
	if l.answeredAll() {
		l.planNextRound()
		return nil
	}
	if doubt != nil {
		l.dropChannel()
		return doubt
	}
	switch e {
	case conn.Cancelled:
		l.dropChannel()
		return ctx.Err()
	case conn.Dead:
		l.dropChannel()
		return fmt.Errorf("no confirm for %s: connection given up", l.sink.cfg.ConfirmTimeout)
	case conn.Late:
		l.rejectUnanswered()
		l.planNextRound()
		return nil
	case conn.Answered: // or never to be
	}
	// Something is in doubt, so the channel or its connection has ended.
	ex := ch.Exception()
	l.dropChannel()
	switch classifyException(ex) {
	case channelScope:
		if err := l.sink.outdated(ch.Session, ex); err != nil {
			ch.Session.Kill(err)
			return fmt.Errorf("connection ended: %w", err)
		}
		return l.channelException(ch, ex)
	case connectionScope:
		return l.connectionException(ctx, ex)
	default:
		return fmt.Errorf("connection lost: %s", ch.Session.LossReason(ex))
	}
}

// answeredAll reports whether nothing of this round is in doubt.
func (l *lane) answeredAll() bool {
	for _, s := range l.sent {
		if l.Outcomes[s.index].State == sink.Unknown {
			return false
		}
	}
	return true
}
