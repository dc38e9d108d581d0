package devenv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// ConsumerOptions says what a Consumer reads.
type ConsumerOptions struct {
	URL      string // of the virtual host
	Exchange string // "outbox.events"; declared: topic, durable
	Queue    string // "orders"; declared: durable, bound with "#"
	Quorum   bool   // a quorum queue instead of a classic one
}

// Consumer takes every message of a queue and remembers it in the order of arrival, until Close. When the broker or the
// connection goes away it connects again; the queue is durable and keeps what was not acknowledged.
type Consumer struct {
	opt    ConsumerOptions
	cancel context.CancelFunc
	done   chan struct{}

	mu         sync.Mutex
	deliveries []Delivery
	distinct   map[string]struct{}
	copies     int // deliveries, not flagged redelivered, of an id that had arrived
	keys       interned
	marks      map[string]mark
	changed    chan struct{} // closed and replaced when anything above changes
	connected  bool

	marker marker
}

// Delivery is a message as it arrived. Absent properties and headers are zero.
type Delivery struct {
	ID          string
	Aggregate   string
	Key         string
	Position    outbox.Position
	Seq         int64 // "seq" of the payload; 0 when there is none
	At          int64 // arrival, Unix nanoseconds
	Redelivered bool  // the broker says it may have sent it before
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
	c := &Consumer{
		opt: opt, done: make(chan struct{}), distinct: map[string]struct{}{}, keys: interned{},
		marks: map[string]mark{}, changed: make(chan struct{}),
	}
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
	if err = s.channel.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	s.deliveries, err = s.channel.Consume(c.opt.Queue, "", false, false, false, false, nil)
	return s, err
}

func dialAMQP(url string) (*amqp.Connection, error) {
	return amqp.DialConfig(url, amqp.Config{Heartbeat: 10 * time.Second, Dial: amqp.DefaultDial(5 * time.Second)})
}

const (
	prefetch = 1000
	ackEvery = 200
)

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
	_, known := c.distinct[d.MessageId]
	if known && !d.Redelivered {
		c.copies++
	}
	c.distinct[d.MessageId] = struct{}{}
	c.deliveries = append(c.deliveries, Delivery{
		ID: d.MessageId, Aggregate: c.keys.of(header(d, "aggregate_type")), Key: c.keys.of(header(d, "aggregate_id")),
		Position: position(d), Seq: seqOf(d.Body), At: time.Now().UnixNano(), Redelivered: d.Redelivered,
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

func (c *Consumer) setConnected(up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connected = up
	c.notify()
}

// notify wakes whoever waits for a change; c.mu is locked.
func (c *Consumer) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Connected reports whether the consumer has a connection to the broker.
func (c *Consumer) Connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connected
}

// Count is how many distinct ids have arrived, and how many deliveries were of an id that had arrived before. What the
// broker sent again for want of an acknowledgement, and says so, does not count as such.
func (c *Consumer) Count() (distinct, duplicates int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.distinct), c.copies
}

// Deliveries is a copy of all that has arrived, in order.
func (c *Consumer) Deliveries() []Delivery { return c.DeliveriesFrom(0) }

// DeliveriesFrom is a copy of all that has arrived after the first n, in order.
func (c *Consumer) DeliveriesFrom(n int) []Delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.deliveries[n:])
}

// WaitCount returns when n distinct ids have arrived.
func (c *Consumer) WaitCount(ctx context.Context, n int) error {
	err := c.wait(ctx, func() bool { return len(c.distinct) >= n })
	if err != nil {
		have, _ := c.Count()
		return fmt.Errorf("wait for %d messages, have %d: %w", n, have, err)
	}
	return nil
}

// WaitIDs returns when all of the ids have arrived.
func (c *Consumer) WaitIDs(ctx context.Context, ids []string) error {
	missing := slices.Clone(ids)
	err := c.wait(ctx, func() bool {
		missing = slices.DeleteFunc(missing, func(id string) bool { _, ok := c.distinct[id]; return ok })
		return len(missing) == 0
	})
	if err != nil {
		return fmt.Errorf("wait for %d of %d messages (%s): %w", len(missing), len(ids), firstOf(missing), err)
	}
	return nil
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

// wait returns when done, called with c.mu locked, says true.
func (c *Consumer) wait(ctx context.Context, done func() bool) error {
	for {
		c.mu.Lock()
		ok, changed := done(), c.changed
		c.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
