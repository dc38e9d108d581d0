// RabbitMQ: the queue of a run, and the bare publisher.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	inboxrabbit "github.com/cdc-relay/cdc-relay/inbox/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

const (
	exchange  = "outbox.events"
	queueName = "bench"
)

// rabbit is a broker, a way to it, and one that is 2 ms longer.
type rabbit struct {
	server *rabbitserver.Rabbit
	near   *netproxy.Proxy
	proxy  *netproxy.Proxy // 1 ms later in each direction
}

func openRabbit(ctx context.Context) (_ broker, err error) {
	b := &rabbit{}
	if b.server, err = rabbitserver.Start(ctx, rabbitserver.Options{}); err != nil {
		return nil, err
	}
	if b.near, err = netproxy.Start(b.server.Addr()); err != nil {
		return nil, errors.Join(err, b.server.Close())
	}
	if b.proxy, err = netproxy.Start(b.server.Addr()); err != nil {
		b.near.Close()
		return nil, errors.Join(err, b.server.Close())
	}
	b.proxy.Delay(time.Millisecond)
	return b, nil
}

func (b *rabbit) close() error {
	b.near.Close()
	b.proxy.Close()
	return b.server.Close()
}

func (b *rabbit) version() (string, error) {
	conn, err := amqp.Dial(b.server.URL())
	if err != nil {
		return "", fmt.Errorf("connect to broker: %w", err)
	}
	defer conn.Close()
	return fmt.Sprintf("RabbitMQ %v", conn.Properties["version"]), nil
}

func (b *rabbit) url(l load) string {
	switch {
	case l.far:
		return strings.Replace(b.server.URL(), b.server.Addr(), b.proxy.Addr(), 1)
	case l.proxied:
		return strings.Replace(b.server.URL(), b.server.Addr(), b.near.Addr(), 1)
	}
	return b.server.URL()
}

// queue is the one queue of a run, bound to the one exchange, and a connection to it.
type queue struct {
	arrivals
	b        *rabbit
	conn     *amqp.Connection
	ch       *amqp.Channel
	consumed bool
	marked   chan struct{} // closed when the mark at the end has come
	inbox    *effects      // nil: this process consumes
}

// place makes the queue again.
func (b *rabbit) place(ctx context.Context, s *stand, l load) (_ place, err error) {
	q := &queue{arrivals: arrivals{load: l}, b: b, marked: make(chan struct{})}
	if q.conn, err = amqp.Dial(b.server.URL()); err != nil {
		return nil, fmt.Errorf("connect to broker: %w", err)
	}
	if q.ch, err = q.conn.Channel(); err == nil {
		err = q.ch.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil)
	}
	if err == nil {
		_, err = q.ch.QueueDelete(queueName, false, false, false)
	}
	if err == nil && l.inbox {
		q.inbox, err = newEffects(ctx, s, &q.arrivals, queueName, q.declareInbox)
	} else if err == nil {
		_, err = q.ch.QueueDeclare(queueName, true, false, false, false, nil)
	}
	if err == nil {
		err = q.bind()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make queue: %w", err), q.close())
	}
	return q, nil
}

// declareInbox has the inbox make its queue, a quorum queue.
func (q *queue) declareInbox(ctx context.Context, in *inbox.Inbox) (func(context.Context) error, error) {
	c, err := inboxrabbit.New(in, inboxrabbit.Config{URL: q.b.server.URL(), Bindings: []inboxrabbit.Binding{{Exchange: exchange, Key: "#"}}, Prefetch: inboxPrefetch})
	if err != nil {
		return nil, err
	}
	return c.Run, c.Declare(ctx)
}

func (q *queue) bind() error   { return q.ch.QueueBind(queueName, "#", exchange, false, nil) }
func (q *queue) unbind() error { return q.ch.QueueUnbind(queueName, "#", exchange, nil) }

// close deletes the queue with what is in it.
func (q *queue) close() error {
	_, err := q.ch.QueueDelete(queueName, false, false, false)
	_ = q.conn.CloseDeadline(time.Now().Add(5 * time.Second)) // nothing depends on it
	if q.inbox != nil {
		err = errors.Join(err, q.inbox.close())
	}
	return err
}

func (q *queue) sink(l load) string {
	if l.compat {
		return fmt.Sprintf("rabbitmq: {url: %q}", q.b.url(l))
	}
	return fmt.Sprintf("rabbitmq: {url: %q, exchange: %s}", q.b.url(l), exchange)
}

func (q *queue) routed() string { return "outbox" }

func (q *queue) way() *netproxy.Proxy { return q.b.near }

func (q *queue) debezium() map[string]string {
	return map[string]string{
		"debezium.sink.type": "rabbitmq", "debezium.sink.rabbitmq.connection.uri": strings.TrimSuffix(q.b.server.URL(), "/"),
		"debezium.sink.rabbitmq.exchange": exchange, "debezium.sink.rabbitmq.routingKey.source": "key",
		"debezium.format.key": "simplestring", "debezium.format.value": "simplestring", "debezium.format.header.schemas.enable": "false",
	}
}

// depth is the number of messages that have come or, when nobody consumes, wait in the queue.
func (q *queue) depth() (int, error) {
	if q.consumed {
		all, err := q.arrived(0)
		return len(all), err
	}
	state, err := q.ch.QueueDeclarePassive(queueName, true, false, false, false, nil)
	if err != nil {
		return 0, fmt.Errorf("ask for depth of queue: %w", err)
	}
	return state.Messages, nil
}

// consume notes every message as it comes.
func (q *queue) consume(ctx context.Context) error {
	q.consumed = true
	if q.inbox != nil {
		q.inbox.run(ctx)
		return nil
	}
	deliveries, err := q.ch.Consume(queueName, "", true, false, false, false, nil)
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	go func() {
		for d := range deliveries {
			q.take(&d)
		}
		q.fail(errors.New("consume: the broker closed the channel"))
	}()
	return nil
}

const mark = "bench.mark" // type of the message behind which nothing is in the queue

func (q *queue) take(d *amqp.Delivery) {
	text := func(name string) string {
		s, _ := d.Headers[name].(string)
		return s
	}
	switch {
	case d.Type == mark:
		close(q.marked)
	case q.load.compat:
		own := 0
		for name := range d.Headers {
			if !isContext(name) {
				own++
			}
		}
		shape := own == 2 && text("eventType") == compatType && d.DeliveryMode == amqp.Persistent
		q.add(unquoted(text("id")), d.RoutingKey, d.Body, shape)
	default:
		shape := len(d.Headers) == 4 && d.Type == "created" && d.DeliveryMode == amqp.Persistent && d.ContentType == "application/json" && !d.Timestamp.IsZero()
		q.add(d.MessageId, text("aggregate_id"), d.Body, shape)
	}
}

// compatType is the header eventType as Debezium Server has headers: JSON.
const compatType = `"created"`

// isContext is true of the headers that Debezium has of its own run, and the relay has not.
func isContext(header string) bool { return strings.HasPrefix(header, "__debezium.context.") }

// unquoted is the text of a header that is JSON.
func unquoted(s string) string { return strings.Trim(s, `"`) }

// settle puts a mark at the end of the queue and waits for it.
func (q *queue) settle(ctx context.Context) error {
	if !q.consumed {
		if err := q.consume(ctx); err != nil {
			return err
		}
	}
	if q.inbox != nil {
		return nil // it has all, or the run would not have ended
	}
	send, err := q.conn.Channel()
	if err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
	if err := send.PublishWithContext(ctx, "", queueName, false, false, amqp.Publishing{Type: mark}); err != nil {
		return fmt.Errorf("send mark: %w", err)
	}
	return await(ctx, watchEvery, "the mark at the end of the queue", func() (have int, done bool, err error) {
		all, err := q.arrived(0)
		select {
		case <-q.marked:
			return len(all), true, nil
		default:
			return len(all), false, err
		}
	})
}

// bareWindow is how many messages of a bare connection are unconfirmed at most.
const bareWindow = 2000

// publisher is one connection with one channel in confirm mode.
type publisher struct {
	conn    *amqp.Connection
	ch      *amqp.Channel
	unacked [bareWindow]*amqp.DeferredConfirmation
	message amqp.Publishing
}

// dialPublisher connects. gathered says that writes are gathered as the relay's are.
func dialPublisher(url string, gathered bool) (_ *publisher, err error) {
	cfg := amqp.Config{Heartbeat: 10 * time.Second, FrameSize: 131072, Locale: "en_US", Properties: amqp.NewConnectionProperties()}
	if gathered {
		cfg.Dial = dialGathered
	}
	p := &publisher{message: amqp.Publishing{ContentType: "application/json", DeliveryMode: amqp.Persistent, Type: "created", Headers: amqp.Table{}}}
	if p.conn, err = amqp.DialConfig(url, cfg); err != nil {
		return nil, fmt.Errorf("connect to broker: %w", err)
	}
	if p.ch, err = p.conn.Channel(); err == nil {
		err = p.ch.Confirm(false)
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("open channel: %w", err)
	}
	return p, nil
}

func (p *publisher) close() {
	_ = p.conn.CloseDeadline(time.Now().Add(5 * time.Second)) // nothing depends on it
}

// send publishes a message of the relay's shape.
func (p *publisher) send(id, key, position string, at time.Time, body []byte) (*amqp.DeferredConfirmation, error) {
	p.message.MessageId, p.message.Timestamp, p.message.Body = id, at, body
	h := p.message.Headers
	h["aggregate_type"], h["aggregate_id"], h["timestamp_in_ms"], h["cdc_position"] = "order", key, at.UnixMilli(), position
	answer, err := p.ch.PublishWithDeferredConfirm(exchange, "order.created", true, false, p.message)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	return answer, nil
}

func confirmed(answer *amqp.DeferredConfirmation) error {
	if answer != nil && !answer.Wait() {
		return errors.New("publish: not confirmed")
	}
	return nil
}

// publish publishes one connection's share of the events: share, share+of, share+2·of, …
func (p *publisher) publish(ctx context.Context, first int64, l load, share, of int) error {
	var body []byte
	n := 0
	for i := share; i < l.events && ctx.Err() == nil; i += of {
		slot := &p.unacked[n%bareWindow]
		if err := confirmed(*slot); err != nil {
			return err
		}
		var err error
		body = appendPayload(body[:0], i, l.payload)
		if *slot, err = p.send(uuid(first+int64(i)), keyPrefix+strconv.Itoa(i%l.keys), fmt.Sprintf("%016X-%08d", first, i%l.perTx), time.Now(), body); err != nil {
			return err
		}
		n++
	}
	for _, answer := range p.unacked {
		if err := confirmed(answer); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// bare publishes the events, which it has at hand, over as many connections as the relay has.
func (b *rabbit) bare(s *stand, l load) run {
	const connections = 2
	return func(ctx context.Context) (found outcome, err error) {
		to, err := b.place(ctx, s, l)
		if err != nil {
			return found, err
		}
		defer func() { err = errors.Join(err, to.close()) }()
		first := s.nextRun()
		ctx, cancel := context.WithCancelCause(ctx)
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel(nil)
		for i := range connections {
			p, err := dialPublisher(b.url(l), true)
			if err != nil {
				return found, err
			}
			context.AfterFunc(ctx, p.close) // ends its waits, too
			all.Go(func() {
				if err := p.publish(ctx, first, l, i, connections); err != nil {
					cancel(err)
				}
			})
		}
		return follow(ctx, to, l.events, self{func() error { return context.Cause(ctx) }}, time.Now())
	}
}

// self is this process where it does the work of a program. It runs as long as failed is nil.
type self struct{ failed func() error }

func (self) Pid() int                            { return os.Getpid() }
func (p self) Running() bool                     { return p.failed() == nil }
func (p self) Log() string                       { return fmt.Sprint(p.failed()) }
func (self) WaitStreaming(context.Context) error { return nil }
func (self) Stop(context.Context) error          { return nil }
func (self) Kill() error                         { return nil }

// dial connects a bare loop, which publishes a row and awaits the confirm.
func (b *rabbit) dial(place) (publish, error) {
	p, err := dialPublisher(b.server.URL(), false)
	if err != nil {
		return publish{}, err
	}
	send := func(_ context.Context, r *loopRow) error {
		answer, err := p.send(r.columns["id"], r.columns["aggregateid"], r.position, r.commitTime, []byte(r.columns["payload"]))
		if err != nil {
			return err
		}
		return confirmed(answer)
	}
	return publish{send: send, close: p.close}, nil
}

// gathered is a TCP connection whose writes are gathered, as the relay gathers its own: Write
// appends to a buffer and returns, one goroutine writes whatever has accumulated. amqp091 by itself
// makes a system call for each message, and a baseline that does so would flatter the relay. A
// write has no bound here: who publishes bounds what is unconfirmed.
type gathered struct {
	net.Conn
	mu      sync.Mutex
	pending []byte
	more    chan struct{} // something is pending
	closed  context.CancelFunc
}

// dialGathered is for amqp.Config.Dial. The flusher ends with Close, or when the connection breaks.
func dialGathered(network, addr string) (net.Conn, error) {
	socket, err := net.DialTimeout(network, addr, 10*time.Second)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	c := &gathered{Conn: socket, more: make(chan struct{}, 1)}
	var life context.Context
	life, c.closed = context.WithCancel(context.Background())
	go c.flush(life)
	return c, nil
}

// Write takes a copy of p.
func (c *gathered) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.pending = append(c.pending, p...)
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

// Close drops what is pending: the broker has answered the close of the connection before.
func (c *gathered) Close() error {
	c.closed()
	return c.Conn.Close()
}

func (c *gathered) flush(life context.Context) {
	var batch []byte
	for {
		select {
		case <-c.more:
		case <-life.Done():
			return
		}
		c.mu.Lock()
		batch, c.pending = c.pending, batch[:0]
		c.mu.Unlock()
		if _, err := c.Conn.Write(batch); err != nil {
			c.Conn.Close() // its reader says so
			return
		}
	}
}
