package devenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	amqp "github.com/rabbitmq/amqp091-go"
)

// ConsumerOptions says what a Consumer reads.
type ConsumerOptions struct {
	URL      string // of the virtual host
	Exchange string // "outbox.events"; declared: topic, durable
	Queue    string // "orders"; declared: durable, bound with "#"
	Quorum   bool   // a quorum queue instead of a classic one
	Prefetch int    // messages that the broker gives out before the first of them is acknowledged; 1000
}

// Consumer takes every message of a queue and remembers it in the order of arrival, until Close. When the broker or the
// connection goes away it connects again; the queue is durable and keeps what was not acknowledged.
type Consumer struct {
	arrivals
	opt    ConsumerOptions
	cancel context.CancelFunc
	done   chan struct{}
	marks  map[string]mark // guarded by mu of the arrivals
	marker marker
}

// mark is a message of our own in the queue: what was in the queue before it has arrived before it.
type mark struct {
	after int           // deliveries before it
	flush pglogrepl.LSN // confirmed_flush_lsn read before it was sent; 0: none
}

// StartConsumer declares exchange and queue and consumes until Close.
func StartConsumer(ctx context.Context, opt ConsumerOptions) (*Consumer, error) {
	if opt.Exchange == "" {
		opt.Exchange = "outbox.events"
	}
	if opt.Queue == "" {
		opt.Queue = "orders"
	}
	opt.Prefetch = cmp.Or(opt.Prefetch, 1000)
	c := &Consumer{arrivals: newArrivals(), opt: opt, done: make(chan struct{}), marks: map[string]mark{}}
	session, err := c.connect()
	if err != nil {
		return nil, fmt.Errorf("start consumer: %w", err)
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	go c.run(life, session)
	return c, nil
}

// Close ends the consumer; what it has remembered can still be read.
func (c *Consumer) Close() {
	c.cancel()
	<-c.done
	c.marker.close()
}

// session is one connection with one consuming channel.
type session struct {
	conn       *amqp.Connection
	channel    *amqp.Channel
	deliveries <-chan amqp.Delivery
}

func (s *session) close() {
	_ = s.conn.CloseDeadline(time.Now().Add(2 * time.Second)) // it may have ended already
}

func (c *Consumer) connect() (_ *session, err error) {
	conn, err := dialAMQP(c.opt.URL)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.channel, err = conn.Channel(); err != nil {
		return nil, err
	}
	if err = s.channel.ExchangeDeclare(c.opt.Exchange, "topic", true, false, false, false, nil); err != nil {
		return nil, err
	}
	args := amqp.Table{}
	if c.opt.Quorum {
		args["x-queue-type"] = "quorum"
	}
	if _, err = s.channel.QueueDeclare(c.opt.Queue, true, false, false, false, args); err != nil {
		return nil, err
	}
	if err = s.channel.QueueBind(c.opt.Queue, "#", c.opt.Exchange, false, nil); err != nil {
		return nil, err
	}
	if err = s.channel.Qos(c.opt.Prefetch, 0, false); err != nil {
		return nil, err
	}
	s.deliveries, err = s.channel.Consume(c.opt.Queue, "", false, false, false, false, nil)
	return s, err
}

func dialAMQP(url string) (*amqp.Connection, error) {
	return amqp.DialConfig(url, amqp.Config{Heartbeat: 10 * time.Second, Dial: amqp.DefaultDial(5 * time.Second)})
}

const ackEvery = 200

// run consumes, over as many connections as it takes.
func (c *Consumer) run(ctx context.Context, s *session) {
	defer close(c.done)
	for {
		c.setConnected(true)
		c.consume(ctx, s)
		c.setConnected(false)
		s.close()
		err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
			next, err := c.connect()
			if err == nil {
				s = next
			}
			return err == nil, nil
		})
		if err != nil {
			return // closed
		}
	}
}

// consume remembers deliveries until the session or ctx ends. It acknowledges many at once, or all when none waits.
func (c *Consumer) consume(ctx context.Context, s *session) {
	unacked := 0
	for {
		select {
		case <-ctx.Done():
			return
		case d, ok := <-s.deliveries:
			if !ok {
				return
			}
			c.remember(&d)
			if unacked++; unacked >= ackEvery || len(s.deliveries) == 0 {
				if err := s.channel.Ack(d.DeliveryTag, true); err != nil {
					return
				}
				unacked = 0
			}
		}
	}
}

func (c *Consumer) remember(d *amqp.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.notify()
	if d.Type == markType {
		c.rememberMark(d)
		return
	}
	c.add(Delivery{
		ID: d.MessageId, Aggregate: c.names.of(header(d, "aggregate_type")), Key: c.names.of(header(d, "aggregate_id")),
		Position: parsePosition(header(d, "cdc_position")), Seq: seqOf(d.Body), At: time.Now().UnixNano(), Redelivered: d.Redelivered,
	})
}

// rememberMark keeps the first arrival of a mark; c.mu is locked.
func (c *Consumer) rememberMark(d *amqp.Delivery) {
	lsn, err := pglogrepl.ParseLSN(string(d.Body))
	if err != nil {
		return // not one of ours
	}
	if _, known := c.marks[d.MessageId]; !known {
		c.marks[d.MessageId] = mark{after: len(c.deliveries), flush: lsn}
	}
}

// markFlush puts a mark with confirmed_flush_lsn into the queue (FlushWatch).
func (c *Consumer) markFlush(ctx context.Context, flush pglogrepl.LSN) error {
	_, err := c.marker.send(ctx, c.opt, flush)
	return err
}

// Drain returns when everything that is in the queue at the moment of the call has arrived. It sends a mark through the
// queue and waits for it, again and again while the broker is away.
func (c *Consumer) Drain(ctx context.Context) error {
	for {
		id, err := c.marker.send(ctx, c.opt, 0)
		if err == nil {
			once, cancel := context.WithTimeoutCause(ctx, 5*time.Second, errMarkLost)
			err = c.wait(once, func() bool { _, ok := c.marks[id]; return ok })
			cancel()
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("drain queue: %w", errors.Join(err, context.Cause(ctx)))
		}
		pause, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		<-pause.Done()
		cancel()
	}
}
