// A consumer at work: it runs one session with the broker after another. In a session messages are
// received, handled in the order of their keys, and acknowledged.

package rabbit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/internal/work"
)

// Run processes messages until ctx ends. Then it begins no more, lets the handlers that run end
// within inbox.Config.Grace, and returns nil. When handlers ignore that their context has ended, it
// returns an error 5 seconds later.
//
// While the broker or the database is away it waits, and says so in the log and in the metrics. It
// returns an error for what waiting does not cure: the topology differs from what the broker has,
// the table of processed messages is missing, or the broker refuses the login or a right before the
// consumer was ever connected. Later it waits for these as well: rights change.
func (c *Consumer) Run(ctx context.Context) error {
	if err := c.in.Ready(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &publisher{c: c}
	var jobs sync.WaitGroup
	jobs.Go(func() { c.in.Prune(ctx) })
	defer jobs.Wait()
	defer cancel()
	defer p.close()

	var pauses work.Backoff
	for connected := false; ; {
		began := time.Now()
		err := c.runSession(ctx, p, &connected)
		c.in.BrokerUp(false)
		var differs *differenceError
		var final *finalError
		var stuck *stuckError
		switch {
		case errors.As(err, &stuck):
			return err
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &differs), errors.As(err, &final), isRefusal(err) && !connected:
			return err
		}
		c.receiving.Failed(err)
		// When a session ends, the broker counts one more delivery of each message that it had
		// delivered, up to the delivery limit. So the pauses grow also while connecting works.
		if time.Since(began) > time.Minute {
			pauses.Reset()
		}
		if pauses.Pause(ctx) != nil {
			return nil
		}
	}
}

// stuckError says that Run was told to stop and has left handlers behind.
type stuckError struct{ handlers int }

func (e *stuckError) Error() string {
	return fmt.Sprintf("stop: %d handlers still run after Grace and the end of their context: their messages come again", e.handlers)
}

// finalError is an error that waiting does not cure, so Run returns it.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// session lasts from a connection to its end, or to the first message that could neither be
// processed nor published for later.
//
// Why nothing is lost: a message is acknowledged only after Handle has returned nil. All others are
// still the broker's, which delivers them again when the connection ends.
//
// Why the order of a key holds, also to the next session and to another process: the broker gives
// back what was not acknowledged in its old order, and with a single active consumer to one
// process, after this one's channel is closed. That one takes all of it at once, as its Prefetch is
// no smaller: of a part, what it does not acknowledge either would be put behind the rest. And the
// consumer is never cancelled while handlers run: the next process would get later messages of
// their keys. When the connection is lost, handlers may still run here while the broker delivers
// their messages to another process. That one waits in the database for the record of the event
// that this one inserted, before it goes on to the next of the key; and here no later message is
// begun.
type session struct {
	c              *Consumer
	publisher      *publisher
	ch             *amqp.Channel
	runContext     context.Context // the context of Run; after its end no message is begun
	handlerContext context.Context // the context of the handlers; it ends Grace after the session

	once sync.Once
	over chan struct{}
	err  error // why the session is over; read it after over is closed
}

// runSession runs one session and returns why it ended.
func (c *Consumer) runSession(ctx context.Context, p *publisher, connected *bool) error {
	if err := c.in.Ready(ctx); err != nil {
		return &finalError{err}
	}
	l, err := c.connect(ctx, "consume")
	if err != nil {
		return err
	}
	defer l.close()
	if err := c.declare(ctx, l); err != nil {
		return err
	}
	*connected = true
	s := &session{c: c, publisher: p, runContext: ctx, over: make(chan struct{})}
	deliveries, ended, err := s.startConsuming(ctx, l)
	if err != nil {
		return err
	}
	if !c.receiving.Works() {
		c.in.Log().Info("messages are received", "queue", c.topology.service, "broker", l.product())
	}
	c.in.BrokerUp(true)
	var jobs sync.WaitGroup
	jobs.Go(func() { s.watchTopology(l) })
	left := s.handleDeliveries(ctx, deliveries, ended)
	l.close()
	jobs.Wait()
	if left > 0 {
		return &stuckError{left}
	}
	return s.err
}

// startConsuming begins to receive messages. Once deliveries is closed, ended returns why there are
// no more.
func (s *session) startConsuming(ctx context.Context, l *link) (deliveries <-chan amqp.Delivery, ended func() error, err error) {
	defer context.AfterFunc(ctx, l.kill)()
	if s.ch, err = l.Channel(); err != nil {
		return nil, nil, fmt.Errorf("open a channel: %w", err)
	}
	if err = s.ch.Qos(s.c.cfg.Prefetch, 0, false); err != nil {
		return nil, nil, fmt.Errorf("set the prefetch: %w", err)
	}
	closed, cancelled := s.ch.NotifyClose(make(chan *amqp.Error, 1)), s.ch.NotifyCancel(make(chan string, 1))
	queue := s.c.topology.service
	if deliveries, err = s.ch.Consume(queue, "", false, false, false, false, nil); err != nil {
		return nil, nil, fmt.Errorf("consume queue %q: %w", queue, err)
	}
	return deliveries, func() error {
		if _, byBroker := <-cancelled; byBroker {
			return fmt.Errorf("the broker has cancelled the consumer of queue %q: was it deleted?", queue)
		}
		if err := <-closed; err != nil {
			return fmt.Errorf("receive from queue %q: %w", queue, err)
		}
		return fmt.Errorf("receive from queue %q: %w", queue, amqp.ErrClosed)
	}, nil
}

// handleDeliveries gives deliveries to the workers until the session is over, and then waits for
// the workers. It returns how many handlers have not ended in time.
func (s *session) handleDeliveries(ctx context.Context, deliveries <-chan amqp.Delivery, ended func() error) (left int) {
	var stop context.CancelFunc
	s.handlerContext, stop = context.WithCancel(context.WithoutCancel(ctx))
	workers := work.Start(s.c.in.Concurrency(), s.c.cfg.Prefetch, s.processDelivery)
	for !s.isOver() {
		select {
		case d, ok := <-deliveries:
			if !ok {
				s.endSession(ended())
				continue
			}
			task := &task{session: s, delivery: d, message: newMessage(&d, s.c.topology.service)}
			if err := workers.Add(s.handlerContext, orderingKey(&d, &task.message), task); err != nil {
				s.endSession(err)
			}
		case <-ctx.Done():
			s.endSession(context.Cause(ctx))
		case <-s.over:
		}
	}
	defer stop()
	defer time.AfterFunc(s.c.in.Grace(), stop).Stop()
	return s.awaitHandlers(ctx, workers)
}

// awaitHandlers waits for the handlers that run, because the next session must not begin a message
// of the same keys before. Only when the process is told to stop does it leave handlers behind that
// do not end with their context. The transactions of these hold the records of their events, and
// other processes wait for them.
func (s *session) awaitHandlers(ctx context.Context, workers *work.Workers[*task]) (left int) {
	patience := s.c.in.Grace() + s.c.unwind
	defer time.AfterFunc(patience, func() {
		if ctx.Err() == nil {
			s.c.in.Log().Error("handlers do not end with their context: nothing is received until they do", "waited", patience)
		}
	}).Stop()
	waiting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(patience, giveUp) })()
	return workers.Close(waiting)
}

// watchTopology declares the topology again from time to time, until the session is over. Without
// it a binding that was removed, by hand or with an exchange that was deleted and made again, would
// leave the service without messages, and nothing would say so.
//
// Only a difference ends the session: it has no topology to work with. All other errors are of a
// connection, which ends the session by itself, or of a right that the session does not need.
func (s *session) watchTopology(l *link) {
	ticker := time.NewTicker(s.c.watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.over:
			return
		}
		err := s.c.declareAll(l)
		var differs *differenceError
		switch {
		case errors.As(err, &differs):
			s.endSession(err)
		case err == nil:
			s.c.declaring.Works()
		case !l.IsClosed():
			s.c.declaring.Failed(err)
		}
	}
}

// endSession ends the session, and reports it before the handlers have ended. Only the first reason
// counts.
func (s *session) endSession(why error) {
	s.once.Do(func() {
		s.err = why
		close(s.over)
		s.c.in.BrokerUp(false)
		if s.runContext.Err() != nil {
			s.c.in.Log().Info("no further message is begun: told to stop", "grace", s.c.in.Grace())
		} else {
			s.c.receiving.Failed(why)
		}
	})
}

func (s *session) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// task is one delivery on its way through a worker. It implements inbox.Publisher for the case that
// its handler fails.
type task struct {
	session  *session
	delivery amqp.Delivery
	message  inbox.Message
	rejected bool // the broker is to make a dead letter of it
}

// processDelivery handles one message and acknowledges it. After an error the session begins no
// more messages, because the next message of this worker may have the same key.
func (s *session) processDelivery(t *task) {
	if s.isOver() || s.runContext.Err() != nil {
		return
	}
	err := s.c.in.Handle(s.handlerContext, t.message, t)
	switch {
	case err != nil:
	case t.rejected:
		err = s.ch.Reject(t.delivery.DeliveryTag, false)
	default:
		err = s.ch.Ack(t.delivery.DeliveryTag, false)
	}
	if err != nil {
		s.endSession(err)
	}
}

// Retry implements inbox.Publisher: it publishes the message to the queue of its level.
func (t *task) Retry(ctx context.Context, _ inbox.Message, f inbox.Failure) error {
	to := &t.session.c.topology
	return t.session.publisher.publishUntilConfirmed(ctx, to.returnExchange, to.retryQueue(f.Level), retryOf(&t.delivery, f))
}

// DeadLetter implements inbox.Publisher: it publishes the message to the dead letters. The broker
// may not take the message again, because its limit was lowered or because the headers have no room
// for more. Such a message is rejected: the broker makes a dead letter of it without any limit, and
// keeps it until the dead letters have it.
func (t *task) DeadLetter(ctx context.Context, _ inbox.Message, f inbox.Failure) error {
	to := &t.session.c.topology
	err := t.session.publisher.publishUntilConfirmed(ctx, to.deadLetterExchange, to.service, deadLetterOf(&t.delivery, f, to.service))
	if t.rejected = errors.Is(err, errUnpublishable); t.rejected {
		return nil
	}
	return err
}
