// Package consumers reads what a relay publishes and notes every arrival, for the checker.
package consumers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// ConsumerOptions says what a Consumer reads.
type ConsumerOptions struct {
	URL      string // of the virtual host
	Exchange string // "outbox.events"; declared: topic, durable
	Queue    string // "orders"; declared: durable, bound with "#"
	Quorum   bool   // a quorum queue instead of a classic one
	// messages that the broker gives out before the first of them is acknowledged; 1000
	Prefetch int
}

// Consumer takes every message of a queue and remembers it in the order of arrival, until Close.
// When the broker or the connection goes away it connects again; the queue is durable and keeps
// what was not acknowledged.
type Consumer struct {
	arrivals
	opt    ConsumerOptions
	life   context.Context //nolint:containedctx // of the readers, until Close
	cancel context.CancelFunc
	all    sync.WaitGroup
	queues []string        // guarded by mu of the arrivals
	marks  map[string]mark // guarded by mu of the arrivals
	marker marker
}

// mark is a message of our own in the queue: what was in the queue before it has arrived before it.
type mark struct {
	after    int           // deliveries before it
	flush    pglogrepl.LSN // confirmed_flush_lsn read before it was sent; 0: none
	snapshot *checker.Snapshot
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
	c := &Consumer{arrivals: newArrivals(), opt: opt, marks: map[string]mark{}}
	c.life, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := c.read(&reader{c: c, queue: opt.Queue}); err != nil {
		c.cancel()
		return nil, fmt.Errorf("start consumer: %w", err)
	}
	return c, nil
}

// Also takes the messages of one queue more, which must be there. Their order is that of their
// queue alone (Delivery.From), and marks say nothing of them.
func (c *Consumer) Also(queue string) error {
	if err := c.read(&reader{c: c, queue: queue, from: kafkaserver.TopicPartition{Topic: queue}}); err != nil {
		return fmt.Errorf("consume queue %s: %w", queue, err)
	}
	return nil
}

func (c *Consumer) read(r *reader) error {
	s, err := r.connect(c.life)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.queues = append(c.queues, r.queue)
	c.mu.Unlock()
	c.all.Go(func() { r.run(c.life, s) })
	return nil
}

// Close ends the consumer; what it has remembered can still be read.
func (c *Consumer) Close() {
	c.cancel()
	c.all.Wait()
	c.marker.close()
}

// reader takes the messages of one queue.
type reader struct {
	c     *Consumer
	queue string
	from  kafkaserver.TopicPartition // zero: the queue of the options
}

// session is one connection with one consuming channel.
type session struct {
	conn       *amqp.Connection
	channel    *amqp.Channel
	deliveries <-chan amqp.Delivery
	keep       func() bool // ends the wait for the end of ctx
}

func (s *session) close() {
	s.keep()
	_ = s.conn.CloseDeadline(time.Now().Add(2 * time.Second)) // it may have ended already
}

func (r *reader) connect(ctx context.Context) (_ *session, err error) {
	conn, err := dialAMQP(r.c.opt.URL)
	if err != nil {
		return nil, err
	}
	// A queue that is out of order keeps a request waiting for ever.
	s := &session{conn: conn, keep: context.AfterFunc(ctx, func() { _ = conn.CloseDeadline(time.Now()) })}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.channel, err = conn.Channel(); err != nil {
		return nil, err
	}
	if r.from == (kafkaserver.TopicPartition{}) {
		if err = r.declare(s.channel); err != nil {
			return nil, err
		}
	}
	if err = s.channel.Qos(r.c.opt.Prefetch, 0, false); err != nil {
		return nil, err
	}
	s.deliveries, err = s.channel.Consume(r.queue, "", false, false, false, false, nil)
	return s, err
}

func (r *reader) declare(channel *amqp.Channel) error {
	if err := channel.ExchangeDeclare(r.c.opt.Exchange, "topic", true, false, false, false, nil); err != nil {
		return err
	}
	args := amqp.Table{}
	if r.c.opt.Quorum {
		args["x-queue-type"] = "quorum"
	}
	if _, err := channel.QueueDeclare(r.queue, true, false, false, false, args); err != nil {
		return err
	}
	return channel.QueueBind(r.queue, "#", r.c.opt.Exchange, false, nil)
}

const ackEvery = 200

// run consumes, over as many connections as it takes.
func (r *reader) run(ctx context.Context, s *session) {
	usual := r.from == (kafkaserver.TopicPartition{})
	for {
		if usual {
			r.c.setConnected(true)
		}
		r.consume(ctx, s)
		if usual {
			r.c.setConnected(false)
		}
		s.close()
		err := processes.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
			next, err := r.connect(ctx)
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

// consume remembers deliveries until the session or ctx ends. It acknowledges many at once, or all
// when none waits.
func (r *reader) consume(ctx context.Context, s *session) {
	unacked := 0
	for {
		select {
		case <-ctx.Done():
			return
		case d, ok := <-s.deliveries:
			if !ok {
				return
			}
			r.c.remember(&d, r.from)
			if unacked++; unacked >= ackEvery || len(s.deliveries) == 0 {
				if err := s.channel.Ack(d.DeliveryTag, true); err != nil {
					return
				}
				unacked = 0
			}
		}
	}
}

func (c *Consumer) remember(d *amqp.Delivery, from kafkaserver.TopicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.notify()
	if d.Type == markType {
		c.rememberMark(d)
		return
	}
	_, replay := d.Headers[replayHeader]
	c.add(checker.Delivery{
		ID: cmp.Or(d.MessageId, plainText(header(d, "id"))), Aggregate: c.names.Of(header(d, "aggregate_type")), Key: c.names.Of(header(d, "aggregate_id")),
		Exchange: c.names.Of(d.Exchange),
		Position: ParsePosition(header(d, "cdc_position")), Seq: seqOf(d.Body), At: time.Now().UnixNano(), Redelivered: d.Redelivered,
		Traceparent: header(d, "traceparent"), Replay: replay, From: from, Aside: from != kafkaserver.TopicPartition{},
	})
}

// replayHeader marks what was a dead letter and is published again.
const replayHeader = "cdc_replay"

// rememberMark keeps the first arrival of a mark; c.mu is locked.
func (c *Consumer) rememberMark(d *amqp.Delivery) {
	flush, snapshot, err := readMark(string(d.Body))
	if err != nil {
		return // not one of ours
	}
	if _, known := c.marks[d.MessageId]; !known {
		c.marks[d.MessageId] = mark{after: len(c.deliveries), flush: flush, snapshot: snapshot}
	}
}

// MarkFlush puts a mark into the queue with what was read before it (FlushWatch).
func (c *Consumer) MarkFlush(ctx context.Context, m checker.Mark) error {
	_, err := c.marker.send(ctx, c.opt.URL, c.opt.Queue, m)
	return err
}

// Drain returns when everything that is in the queues at the moment of the call has arrived. It
// sends a mark through each queue and waits for it, again and again while the broker is away.
func (c *Consumer) Drain(ctx context.Context) error {
	c.mu.Lock()
	queues := slices.Clone(c.queues)
	c.mu.Unlock()
	for _, queue := range queues {
		if err := c.drain(ctx, queue); err != nil {
			return fmt.Errorf("drain queue %s: %w", queue, err)
		}
	}
	return nil
}

func (c *Consumer) drain(ctx context.Context, queue string) error {
	for {
		id, err := c.marker.send(ctx, c.opt.URL, queue, checker.Mark{})
		if err == nil {
			once, cancel := context.WithTimeoutCause(ctx, 5*time.Second, errMarkLost)
			err = c.Wait(once, func() bool { _, ok := c.marks[id]; return ok })
			cancel()
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		pause, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		<-pause.Done()
		cancel()
	}
}
