// A lane: it publishes one call at a time, in rounds, on a channel of the shared connection, or of
// a private one for a call that may have a message over which the broker closes connections.

package rabbit

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// lane publishes the calls of one lane, one call at a time. It belongs to the goroutine that calls
// publish.
//
// A call runs in rounds. A round writes what is still to be sent on one channel and waits for the
// answers. Almost always one round answers everything. When the broker closes the channel over a
// message and names its destination or size, the message is rejected and the next round sends the
// rest. When it names nobody, the call ends with an error, and the caller searches: it offers what
// is in doubt again, one event at first and twice as many after each confirm. A round of one event
// that loses its channel, or its private connection, has the culprit: it is rejected.
//
// Why order holds when something is sent again: a call has one event of a key (or, pipelined,
// several that are always sent in order on one channel), and each channel is first in, first out;
// so every sending of a key's events is in order, and so are their first arrivals, in whatever way
// the broker interleaves an abandoned channel with its successor.
type lane struct {
	sink    *Sink
	link    *link
	ch      *conn.Channel // of the call; nil, or possibly dead: openChannel checks
	message message
	timer   *time.Timer
	call
	use conn.Use
	// how many events have to be answered on private connections: the broker closed a connection
	// over one of them, perhaps
	privateEvents int
	// for so long an answer may be late, if the broker answers; 0: not at all
	patience time.Duration
}

// call is the state of the present publish call.
type call struct {
	sink.Call
	// the events still to be sent, in order: Unsent, or Unknown and to be resolved
	todo         []int
	sent         []sentEvent // this round's
	round        conn.Round
	privateRight chan struct{} // taken, to a private connection; nil: the link serves
	private      *conn.Session // that connection; nil until it is needed
	shared       bool          // the broker allows none: the link serves all the same
}

// sentEvent is an event written in this round.
type sentEvent struct {
	index           int
	answer          *amqp.DeferredConfirmation
	answered, acked bool // as readAnswers found it
}

func newLane(s *Sink, l *link) *lane {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	current := sink.NewCall(s.cfg.Confirms, func(ev *event.Event) uint64 {
		exchange, _ := s.layout.digestsOf(ev)
		return exchange
	})
	return &lane{sink: s, link: l, message: newMessage(&s.layout, &s.limits), timer: timer, call: call{Call: current}}
}

// publish is sink.Sink's Publish. It waits while the broker is away or blocks, and returns soon
// after ctx is done.
func (l *lane) publish(ctx context.Context, events []*event.Event, outcomes []sink.Outcome) error {
	l.beginCall(events, outcomes)
	defer l.endCall()
	if l.privateEvents > 0 {
		if err := l.takePrivateRight(ctx, l.sink.privateRight); err != nil {
			return l.Unavailable(err)
		}
	}
	err := l.runRounds(ctx)
	if err == nil {
		l.privateEvents = max(0, l.privateEvents-len(events))
	}
	return err
}

// runRounds sends until nothing is left to be sent.
func (l *lane) runRounds(ctx context.Context) error {
	for len(l.todo) > 0 {
		if ctx.Err() != nil {
			return l.Unavailable(ctx.Err())
		}
		ch, err := l.openChannel(ctx)
		if err != nil {
			return l.Unavailable(err)
		}
		if l.rejectUnbound() {
			continue
		}
		l.sendRound(ctx, ch)
		end := l.awaitAnswers(ctx, ch)
		if err := l.concludeRound(ctx, ch, end, l.resolveRound(ch)); err != nil {
			return l.Unavailable(err)
		}
	}
	return nil
}

// beginCall starts a call. What may not go where it is going is rejected before anything is asked
// of the broker: the verdict is the relay's own, whether the broker is there or not.
func (l *lane) beginCall(events []*event.Event, outcomes []sink.Outcome) {
	l.Begin(events, outcomes)
	l.todo, l.shared = l.todo[:0], false
	rejected := false
	for i := range events {
		if fault := l.message.notAllowed(events[i]); fault != nil && !l.IsBehindRejected(i) {
			l.Reject(i, fault)
			rejected = true
		}
		l.todo = append(l.todo, i)
	}
	if rejected {
		l.planNextRound()
	}
}

// endCall releases the call's events and the private connection.
func (l *lane) endCall() {
	l.leavePrivate()
	l.putChannel()
	l.End()
	clear(l.sent[:cap(l.sent)])
	l.message.forgetEvent()
}

// sendRound writes the messages of the round until one cannot be written, and rejects those that
// may not be sent. An event that could not be written stays Unsent and in todo.
func (l *lane) sendRound(ctx context.Context, ch *conn.Channel) {
	l.sent = l.sent[:0]
	l.round.Began = ch.Session.Writes.Load()
	defer func() {
		l.round.Ended = ch.Session.Writes.Add(1)
		l.message.forgetEvent() // the broker may take long to answer
	}()
	for _, i := range l.todo {
		if !l.IsBehindRejected(i) && !l.sendEvent(ctx, ch, i) {
			return
		}
	}
}

// sendEvent writes an event, or rejects it; false: nothing more can be written on this channel.
func (l *lane) sendEvent(ctx context.Context, ch *conn.Channel, i int) bool {
	m := &l.message
	for alone := m.layout.large.IsLarge(l.Events[i]); ; {
		m.beginMaking(alone, ch)
		fault := m.makeChecked(l.Events[i])
		switch {
		case fault != nil:
			if m.endMaking(alone) {
				alone = true
				continue
			}
			l.rejectEvent(i, fault)
			return true
		case alone && !ch.HasRoom(): // others are let in meanwhile, and this one is made again
			m.forgetEvent()
			m.endMaking(alone)
			if !ch.Ready(ctx) {
				return false
			}
			continue
		case !alone && !ch.Ready(ctx):
			return false
		}
		answer, err := ch.AMQP.PublishWithDeferredConfirm(m.exchange, m.routingKey, true, false, m.pub)
		if alone {
			m.forgetEvent()
		}
		m.endMaking(alone)
		if err != nil {
			if !errors.Is(err, amqp.ErrClosed) && !errors.Is(err, conn.ErrWireClosed) {
				// Not the connection's end, so amqp091 cannot encode the message; it ends the
				// connection then.
				l.rejectEvent(i, sink.PermanentFault(sink.Invalid, "the client cannot encode the message"))
			}
			return false
		}
		l.Outcomes[i].State = sink.Unknown
		l.sent = append(l.sent, sentEvent{index: i, answer: answer})
		return true
	}
}

// rejectEvent settles an event as refused.
func (l *lane) rejectEvent(i int, fault *sink.Fault) {
	l.Reject(i, fault)
	if fault.Class == sink.Destination {
		exchange, dest := l.sink.layout.digestsOf(l.Events[i])
		l.sink.noteRefusal(exchange, fault)
		l.sink.unanswered.noteAnswer(dest, fault.Reason == sink.Unconfirmed)
	}
}

// planNextRound makes todo of what a round has left: what was not sent, and what is Unknown and
// will be resolved by sending it again. Behind a rejected event nothing of its key and exchange is
// sent again, so those count as Unsent; what is in doubt before it is sent.
func (l *lane) planNextRound() {
	l.todo = l.todo[:0]
	for i := range l.Outcomes {
		state := &l.Outcomes[i].State
		if *state == sink.Confirmed || *state == sink.Rejected {
			continue
		}
		if l.IsBehindRejected(i) {
			*state = sink.Unsent
			continue
		}
		l.todo = append(l.todo, i)
	}
}

// routeAndSize makes the message of an event of the call again, and returns where it goes and the
// size of its body. The result is valid until the lane's next message. It is empty for an event of
// which there is no message.
func (l *lane) routeAndSize(i int) (at pair, size int) {
	m := &l.message
	m.beginMaking(true, nil)
	defer m.endMaking(true)
	if m.makeMessage(l.Events[i]) != nil {
		return pair{}, 0
	}
	return pair{m.exchange, m.routingKey}, len(m.pub.Body)
}

// destination names where an event goes; the caller owns the string.
func (l *lane) destination(i int) string {
	if l.message.setDestination(l.Events[i]) != nil {
		return ""
	}
	return l.message.destinationText()
}

// openChannel returns the channel for the next round, once there is one and the broker takes
// messages.
func (l *lane) openChannel(ctx context.Context) (*conn.Channel, error) {
	for {
		sess, err := l.currentSession(ctx)
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
		if l.ch != nil && l.ch.Session == sess && l.ch.Usable() {
			return l.ch, nil
		}
		l.dropChannel()
		ch, err := sess.TakeChannel(ctx, l.use)
		switch {
		case err == nil:
			l.ch = ch
			return ch, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, amqp.ErrChannelMax): // until the broker has closed one
			if !sleep(ctx, backoffMin) {
				return nil, ctx.Err()
			}
			continue
		case sess == l.private && !l.isPrivateRefused(ctx):
			return nil, err
		case sess == l.private:
			continue
		}
		// A connection that opens no channel is useless: have it re-created, with the link's
		// backoff.
		sess.Kill(err)
	}
}

// isPrivateRefused reports whether the broker allows this user no channel on a private connection:
// then the call has the shared one.
func (l *lane) isPrivateRefused(ctx context.Context) bool {
	if l.private.Alive() {
		return false
	}
	select {
	case <-l.private.Gone:
	case <-ctx.Done():
		return false
	}
	l.shared = channelLimit(l.private.EndError()) > 0
	return l.shared
}

// currentSession is the call's private one when it has one, else the link's. A broker that does not
// take another connection may be away: the next call waits for the link's. One that allows no
// further connection has the call on the shared one: then what is alone in its round is the
// culprit.
func (l *lane) currentSession(ctx context.Context) (*conn.Session, error) {
	if l.privateRight == nil || l.shared {
		return l.link.awaitSession(ctx)
	}
	if l.private != nil && l.private.Alive() {
		return l.private, nil
	}
	l.closePrivate()
	sess, err := l.sink.cfg.Dial(ctx, nil)
	if _, is := connectionLimit(err); is { // the shared one must do
		l.shared = true
		return l.link.awaitSession(ctx)
	}
	if err != nil {
		l.privateEvents = 0
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
	l.ch.PutBack()
	l.ch = nil
}

// takePrivateRight waits for a right to a private connection, unless the call has one:
// Sink.privateRight or Sink.stuckPrivateRight.
func (l *lane) takePrivateRight(ctx context.Context, right chan struct{}) error {
	if l.privateRight != nil {
		return nil
	}
	select {
	case right <- struct{}{}:
		l.privateRight = right
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leavePrivate goes back to the shared connection.
func (l *lane) leavePrivate() {
	if l.privateRight == nil {
		return
	}
	l.closePrivate()
	<-l.privateRight
	l.privateRight = nil
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

// stuckPatience is how long a probe of a destination that did not answer waits for its answer while
// the broker answers others, in confirm timeouts. Each one that is sent to a queue that is stuck is
// stored as one more copy in the end.
const stuckPatience = 10

// Probe sends an event on a channel apart, and for a fault of its own on a private connection. What
// the broker closes over it carries no other event, and nothing waits for its answer. There are
// channels for a few probes at a time. Those of destinations that did not answer are bounded apart:
// one queue may be behind thousands of them, and each probe keeps its channel for long.
func (s *Sink) Probe(ctx context.Context, ev *event.Event, suspect bool) (sink.Outcome, error) {
	l := newLane(s, s.links[ev.Hash%uint64(len(s.links))])
	var outcomes [1]sink.Outcome
	l.beginCall([]*event.Event{ev}, outcomes[:])
	defer l.endCall()
	if len(l.todo) == 0 { // it is not allowed: the broker is not asked
		return outcomes[0], nil
	}
	if fault, err := s.redeclareBindings(ctx, ev); err != nil {
		return sink.Outcome{State: sink.Unsent}, err
	} else if fault != nil {
		l.Reject(0, fault)
		return outcomes[0], nil
	}
	_, dest := s.layout.digestsOf(ev)
	if suspect {
		if err := l.takePrivateRightFor(ctx, dest); err != nil {
			return sink.Outcome{State: sink.Unsent}, err
		}
	} else if l.use = conn.Probes; s.unanswered.isUnanswered(dest) {
		// the right to a private connection is not kept for so long
		l.use, l.patience = conn.StuckProbes, stuckPatience*s.cfg.ConfirmTimeout
	}
	err := l.runRounds(ctx)
	if outcomes[0].State == sink.Confirmed {
		s.unanswered.noteAnswer(dest, false)
	}
	return outcomes[0], err
}

// takePrivateRightFor waits for the right to a private connection for an event to a destination.
// The others do not wait behind one that did not answer before.
func (l *lane) takePrivateRightFor(ctx context.Context, dest uint64) error {
	s := l.sink
	if !s.unanswered.isUnanswered(dest) {
		if err := l.takePrivateRight(ctx, s.privateRight); err != nil || !s.unanswered.isUnanswered(dest) {
			return err
		}
		l.leavePrivate() // it was found not to answer meanwhile
	}
	return l.takePrivateRight(ctx, s.stuckPrivateRight)
}
