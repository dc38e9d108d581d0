// How the broker's answers to a round become the outcomes of its events, and what the next round
// sends.

package rabbit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// awaitAnswers waits until every message of the round is answered. It waits for the last one first:
// confirms mostly come in order and many at a time, so the lane is woken once instead of once per
// message.
func (l *lane) awaitAnswers(ctx context.Context, ch *conn.Channel) conn.RoundEnd {
	if len(l.sent) == 0 {
		return conn.Answered
	}
	l.sink.pendingConfirms.Add(int64(len(l.sent)))
	defer l.sink.pendingConfirms.Add(-int64(len(l.sent)))
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
			case r, ok := <-ch.Returns:
				ch.KeepReturn(&r, ok)
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

// resolveRound turns the round's answers into outcomes; with an error all of it is in doubt. The
// broker acks a returned message too, although it was routed nowhere. amqp091 hands on the return
// before the ack, so it reads in the opposite order: first the answers, then the returns, and
// last whether the process was suspended, because a return may have been dropped then. An answer
// that arrives in between is not used: its message is in doubt.
func (l *lane) resolveRound(ch *conn.Channel) error {
	l.readAnswers()
	returned, err := l.returnedEvents(ch)
	if err == nil && ch.Session.Wire.WasFrozen(time.Now()) {
		err = conn.ErrFrozen
	}
	if err != nil {
		ch.Session.Kill(err)
		return fmt.Errorf("connection given up: %w", err)
	}
	l.setOutcomes(ch, returned)
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

// setOutcomes sets the outcomes of the messages that readAnswers found answered, and of returned
// ones. A negative answer on a closed channel is amqp091's, not the broker's.
func (l *lane) setOutcomes(ch *conn.Channel, returned map[int]conn.Return) {
	confirmed := 0
	for _, s := range l.sent {
		if r, ok := returned[s.index]; ok {
			l.Returned++
			l.rejectEvent(s.index, unroutable(r, pairText(l.message.layout.shownNames(l.Events[s.index].Copy, r.Exchange, r.RoutingKey))))
			continue
		}
		switch {
		case !s.answered:
		case s.acked:
			confirmed++
			l.Outcomes[s.index] = sink.Outcome{State: sink.Confirmed}
		case ch.Usable():
			l.Nacks++
			l.rejectEvent(s.index, &sink.Fault{
				Class: sink.Destination, Reason: sink.Nacked, Destination: l.destination(s.index),
				Text: "the broker answered with a nack: a queue is full or has died",
			})
		}
	}
	l.Acks += confirmed
	if confirmed > 0 {
		ch.Session.Confirmed(time.Now(), l.round)
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
		l.rejectEvent(s.index, &sink.Fault{
			Class: sink.Destination, Reason: sink.Unconfirmed, Destination: l.destination(s.index),
			Text: fmt.Sprintf("no answer for %s while the broker answers", 2*l.sink.cfg.ConfirmTimeout),
		})
	}
	l.dropChannel()
}

// unroutable makes the fault of a message that was returned. destination is as people may see it.
func unroutable(r conn.Return, destination string) *sink.Fault {
	return &sink.Fault{
		Class: sink.Destination, Reason: sink.Unroutable, Destination: destination,
		Text: fmt.Sprintf("%d %s: no queue is bound for this routing key", r.Code, r.Text),
	}
}

// concludeRound plans the next round from how the last one ended. An error ends the call, and the
// outcomes that are Unknown then are in doubt. When every message is answered there is no error,
// however the wait ended.
func (l *lane) concludeRound(ctx context.Context, ch *conn.Channel, e conn.RoundEnd, doubt error) error {
	if l.isAllAnswered() {
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
	switch scopeOn(ch.Session, ex) {
	case channelScope:
		if err := l.sink.outdatedLogin(ctx, ch.Session, ex, l.use != conn.Lanes); err != nil {
			ch.Session.Kill(err)
			return fmt.Errorf("connection ended: %w", err)
		}
		return l.channelException(ex)
	case connectionScope:
		return l.connectionException(ctx, ex)
	default:
		return fmt.Errorf("connection lost: %s", ch.Session.LossReason(ex))
	}
}

// isAllAnswered reports whether no message of this round is in doubt. concludeRound asks it once
// resolveRound has set the outcomes.
func (l *lane) isAllAnswered() bool {
	for _, s := range l.sent {
		if l.Outcomes[s.index].State == sink.Unknown {
			return false
		}
	}
	return true
}

var errStrangeReturn = errors.New("the broker returned a message that was not sent")

// sentAs identifies a message of the round when it is returned: by the exchange and routing key to
// which it was sent, and by the position in its header. position is "" when the message's format
// has no such header.
type sentAs struct {
	position string
	pair
}

// returnedEvents takes the channel's returns, and gives each to its event, by the event's place in
// the call. The broker acks these messages too, so a returned event that is not found would be
// lost. All of the round that were sent as the return was count as returned:
//
//   - Messages in the relay's own format carry a position. Two of a round may have the same one: a
//     dead letter that is replayed, and the mirror's copy of it, which has another destination.
//   - Messages of another encoder have none, or what a row had under that name. An exchange that
//     routes by its name and the routing key has returned all that were sent with these two.
//     Another one (of type headers) may have routed some: they are sent again, which costs a
//     duplicate, where another guess would cost an event.
//
// A return of no event is an error: the whole round is in doubt.
func (l *lane) returnedEvents(ch *conn.Channel) (map[int]conn.Return, error) {
	returns := ch.TakeReturns()
	if len(returns) == 0 {
		return nil, nil
	}
	found, sent := map[int]conn.Return{}, l.eventsByContent()
	for _, r := range returns {
		all := sent[sentAs{r.Position, pair{r.Exchange, r.RoutingKey}}]
		if len(all) == 0 {
			return nil, errStrangeReturn
		}
		if l.sink.cfg.Unroutable.isIgnored(r.Exchange) { // the answer decides
			l.sink.ignoredReturns.Add(1)
			continue
		}
		for _, i := range all {
			found[i] = r
		}
	}
	return found, nil
}

// eventsByContent returns the events of the round by what identifies their messages.
func (l *lane) eventsByContent() map[sentAs][]int {
	sent := map[sentAs][]int{}
	for _, s := range l.sent {
		at, _ := l.routeAndSize(s.index)
		position, _ := l.message.pub.Headers[sink.HeaderPosition].(string)
		key := sentAs{strings.Clone(position), at.clone()}
		sent[key] = append(sent[key], s.index)
	}
	return sent
}

// pair is an exchange and a routing key.
type pair struct{ exchange, routingKey string }

// clone returns a pair with strings of its own, because the strings may alias an event.
func (p pair) clone() pair {
	return pair{strings.Clone(p.exchange), strings.Clone(p.routingKey)}
}

// channelException finds the culprits of a closed channel. An exception that names an exchange, a
// routing key or a size identifies them: those events are rejected, sent or not, and the others go
// together. Any other exception rejects the event when the round had only this one: whatever the
// channel carried before is answered. Of several events nobody knows which it was. That is an
// error: the caller offers them again, one at first.
//
// A size that the broker has named holds for all lanes until the next connection: what is larger is
// not sent any more, and closes no channel.
func (l *lane) channelException(ex *amqp.Error) error {
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
		l.rejectEvent(i, faultOfException(&l.message, ex, size))
	}
	if limit := sizeLimit(ex); limit > 0 {
		l.sink.limits.nameBody(limit, time.Now())
	}
	if !found {
		return oneOfSeveralError("channel", ex)
	}
	l.planNextRound()
	return nil
}

// oneOfSeveralError says that the broker closed something over one of several events. What it
// quotes may be a name that was made from an ordering key.
func oneOfSeveralError(what string, ex *amqp.Error) error {
	text, _, _ := strings.Cut(brokerText(ex), "'")
	return fmt.Errorf("%s closed over one of several events: %s", what, text)
}

// provesRejection reports whether an exception alone shows that the broker refuses a message to
// this destination with a body of size bytes.
func provesRejection(ex *amqp.Error, at pair, size int) bool {
	limit := sizeLimit(ex)
	switch {
	case limit > 0:
		return size > limit
	case isTopicRight(ex):
		return strings.Contains(ex.Reason, "access to topic '"+at.routingKey+"' in exchange '"+at.exchange+"'")
	}
	return (ex.Code == amqp.NotFound || ex.Code == amqp.AccessRefused || ex.Code == amqp.PreconditionFailed) && namesExchange(ex, at.exchange)
}

// connectionException rejects an event because of which its private connection was closed: nothing
// else was sent there. The shared connection carries other lanes, whose events must not be affected
// again. So what was in flight there is sent on a private one, and until all of it is answered each
// call has one. Of several events nobody knows which it was, as with a channel.
func (l *lane) connectionException(ctx context.Context, ex *amqp.Error) error {
	switch {
	case len(l.sent) > 1:
		l.planNextRound()
		l.privateEvents = len(l.todo)
		return oneOfSeveralError("connection", ex)
	case l.privateRight != nil:
		i := l.sent[0].index
		l.rejectEvent(i, &sink.Fault{
			Class: sink.Transient, Reason: sink.BrokerException, Destination: l.destination(i), Text: brokerText(ex),
		})
	default:
		if err := l.takePrivateRight(ctx, l.sink.privateRight); err != nil {
			return err
		}
	}
	l.planNextRound()
	return nil
}

// maxUnanswered is how many destinations are remembered that do not answer. When there are more,
// all are forgotten, and found again by their probes, which are then waited for as long as any
// call.
const maxUnanswered = 10_000

// unansweredDests are the destinations (sink.Place.Dest) that are known not to answer.
type unansweredDests struct {
	mu    sync.Mutex
	dests map[uint64]struct{}
}

// noteAnswer notes whether an event of a destination was left without an answer.
func (u *unansweredDests) noteAnswer(dest uint64, is bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !is {
		delete(u.dests, dest)
		return
	}
	if u.dests == nil || len(u.dests) >= maxUnanswered {
		u.dests = map[uint64]struct{}{}
	}
	u.dests[dest] = struct{}{}
}

func (u *unansweredDests) isUnanswered(dest uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, is := u.dests[dest]
	return is
}
