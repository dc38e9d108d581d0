// A lane: it publishes one call at a time, in rounds.

package rabbit

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
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
	link    *conn.Link
	ch      *conn.Channel // of the call; nil, or possibly dead: open checks
	message message.Message
	timer   *time.Timer
	call
	use   conn.Use
	renew bool // the next round needs a channel that is opened for it
	// how many events have to be answered on private connections: the broker closed a connection
	// over one of them, perhaps
	wary int
	// for so long an answer may be late, if the broker answers; 0: not at all
	patience time.Duration
}

// call is the state of the present publish call.
type call struct {
	sink.Call
	// the events still to be sent, in order: Unsent, or Unknown and to be resolved
	todo    []int
	sent    []sent // this round's
	round   conn.Round
	right   chan struct{} // taken, to a private connection; nil: the link serves
	private *conn.Session // that connection; nil until it is needed
	shared  bool          // the broker allows none: the link serves all the same
}

// sent is an event written in this round.
type sent struct {
	index           int
	answer          *amqp.DeferredConfirmation
	answered, acked bool // as readAnswers found it
}

func newLane(s *Sink, l *conn.Link) *lane {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	current := sink.NewCall(s.cfg.Confirms, func(ev *event.Event) uint64 {
		exchange, _ := s.layout.Place(ev)
		return exchange
	})
	return &lane{sink: s, link: l, message: message.New(&s.layout, &s.limits), timer: timer, call: call{Call: current}}
}

// publish is sink.Sink's Publish. It waits while the broker is away or blocks, and returns soon
// after ctx is done.
func (l *lane) publish(ctx context.Context, events []*event.Event, outcomes []sink.Outcome) error {
	l.begin(events, outcomes)
	defer l.finish()
	if l.wary > 0 {
		if err := l.seek(ctx, l.sink.private); err != nil {
			return l.Unavailable(err)
		}
	}
	err := l.rounds(ctx)
	if err == nil {
		l.wary = max(0, l.wary-len(events))
	}
	return err
}

// rounds sends until nothing is left to be sent.
func (l *lane) rounds(ctx context.Context) error {
	for len(l.todo) > 0 {
		if ctx.Err() != nil {
			return l.Unavailable(ctx.Err())
		}
		batch := l.batch()
		ch, err := l.open(ctx)
		if err != nil {
			return l.Unavailable(err)
		}
		if l.rejectUnbound() {
			continue
		}
		l.send(ctx, ch, batch)
		end := l.await(ctx, ch)
		if err := l.conclude(ctx, ch, end, l.resolve(ch)); err != nil {
			return l.Unavailable(err)
		}
	}
	return nil
}

// begin starts a call. What may not go where it is going is rejected before anything is asked of
// the broker: the verdict is the relay's own, whether the broker is there or not.
func (l *lane) begin(events []*event.Event, outcomes []sink.Outcome) {
	l.Begin(events, outcomes)
	l.todo, l.renew, l.shared = l.todo[:0], false, false
	rejected := false
	for i := range events {
		if fault := l.message.NotAllowed(events[i]); fault != nil && !l.IsBehindRejected(i) {
			l.Reject(i, fault)
			rejected = true
		}
		l.todo = append(l.todo, i)
	}
	if rejected {
		l.planNextRound()
	}
}

// finish releases the call's events and the private connection.
func (l *lane) finish() {
	l.leavePrivate()
	l.putChannel()
	l.End()
	clear(l.sent[:cap(l.sent)])
	l.message.Forget()
}

// send writes the batch as far as it gets, and rejects what may not be sent. An event that could
// not be written stays Unsent and in todo.
func (l *lane) send(ctx context.Context, ch *conn.Channel, batch []int) {
	l.sent = l.sent[:0]
	l.round.Began = ch.Session.Writes.Load()
	defer func() {
		l.round.Ended = ch.Session.Writes.Add(1)
		l.message.Forget() // the broker may take long to answer
	}()
	for _, i := range batch {
		if !l.IsBehindRejected(i) && !l.sendOne(ctx, ch, i) {
			return
		}
	}
}

// sendOne writes an event, or rejects it; false: nothing more can be written on this channel.
func (l *lane) sendOne(ctx context.Context, ch *conn.Channel, i int) bool {
	m := &l.message
	for alone := m.Layout.Large.Alone(l.Events[i]); ; {
		m.Enter(alone)
		fault := m.Build(l.Events[i])
		switch {
		case fault != nil:
			if m.Leave(alone) {
				alone = true
				continue
			}
			l.reject(i, fault)
			return true
		case alone && !ch.HasRoom(): // others are let in meanwhile, and this one is made again
			m.Forget()
			m.Leave(alone)
			if !ch.Ready(ctx) {
				return false
			}
			continue
		case !alone && !ch.Ready(ctx):
			return false
		}
		answer, err := ch.AMQP.PublishWithDeferredConfirm(m.Exchange, m.RoutingKey, true, false, m.Pub)
		if alone {
			m.Forget()
		}
		m.Leave(alone)
		if err != nil {
			if !errors.Is(err, amqp.ErrClosed) && !errors.Is(err, conn.ErrWireClosed) {
				// Not the connection's end, so amqp091 cannot encode the message; it ends the
				// connection then.
				l.reject(i, sink.PermanentFault(sink.Invalid, "the client cannot encode the message"))
			}
			return false
		}
		l.Outcomes[i].State = sink.Unknown
		l.sent = append(l.sent, sent{index: i, answer: answer})
		return true
	}
}
