// Package rabbit receives messages from RabbitMQ for an inbox.
//
// A service has one queue, which it reads with manual acknowledgements, one queue for each pause
// before another attempt, and one for its dead letters. Consumer.Run declares them, and processes
// messages until it is told to stop. It needs RabbitMQ 3.10 or later: only quorum queues of these
// versions hand on messages without losing one.
//
// The id of an event is the property message_id. Messages that the relay makes with a Debezium
// profile have none: theirs is the header id. They have no key either, so they are handled one at a
// time, unless the profile places the key in the header aggregate_id.
package rabbit

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/internal/work"
)

// Binding names the messages that a service receives: those that an exchange gets with a routing
// key that Key matches.
type Binding struct {
	// Exchange is the exchange of the relay: sink.rabbitmq.exchange, "outbox.events" by default.
	// One that does not exist is declared as the relay does, as a durable topic exchange: either
	// may start first.
	Exchange string
	// Key is a routing key; on a topic exchange '*' stands for one word and '#' for any number of
	// them: "order.*", "#".
	Key string
}

// Config is the configuration of a Consumer. URL must be given.
type Config struct {
	// URL is amqp://user:password@host:port/vhost, or amqps:// for TLS. A virtual host of "/" is
	// written as "/" or "/%2F".
	URL string
	// TLS is for amqps://, by default the system's authorities and the URL's host. It is not
	// changed.
	TLS *tls.Config

	// Bindings of the service's queue, which is named as the service. Those that the queue has and
	// that are not listed stay: remove them yourself.
	Bindings []Binding
	// BoundElsewhere says that Bindings may be empty: somebody else binds the queue.
	BoundElsewhere bool
	// Shared lets all processes of the service receive at the same time. Then the order of a key is
	// kept in each of them, and not among them. By default one process receives and the others take
	// over when it is gone (x-single-active-consumer): the order of a key is kept.
	Shared bool
	// DeadLetterExchange is where messages go that are given up, with the service's name as the
	// routing key, by default "outbox.dlx". Services may share it.
	DeadLetterExchange string

	// Prefetch is how many messages the process may hold that are not acknowledged, by default 50
	// or twice inbox.Config.Concurrency if that is more, and at least Concurrency. The process
	// keeps no more than these in memory: Prefetch times the largest message bounds it. Let no
	// process of the service have less than one before it, or the order of a key may break: lower
	// it only while the queue is empty.
	Prefetch int
}

// Consumer receives the messages of one service. Its methods may be called concurrently, but Run
// only once at a time.
type Consumer struct {
	in       *inbox.Transport
	cfg      Config
	topology topology

	receiving, publishing, declaring *work.Journal

	// New sets these, and only tests change them.
	watchEvery    time.Duration // how often the topology is declared again: 15 s
	confirmWithin time.Duration // how long the broker may take to confirm a failed message: 1 min
	unwind        time.Duration // how long handlers may take to end after Grace: 5 s
}

// New makes a Consumer for an inbox. It does not connect, and starts nothing. An error names the
// field of the configuration that is wrong.
func New(in *inbox.Inbox, cfg Config) (*Consumer, error) {
	if in == nil {
		return nil, errors.New("rabbit: the inbox is nil")
	}
	t := in.Transport("rabbitmq")
	cfg.DeadLetterExchange = cmp.Or(cfg.DeadLetterExchange, "outbox.dlx")
	cfg.Prefetch = cmp.Or(cfg.Prefetch, min(max(defaultPrefetch, 2*t.Concurrency()), maxPrefetch))
	c := &Consumer{
		in: t, cfg: cfg, topology: newTopology(t, cfg),
		receiving:  work.NewJournal(t.Log(), "messages are not received", "messages are received again"),
		publishing: work.NewJournal(t.Log(), "failed messages cannot be published", "failed messages are published again"),
		declaring:  work.NewJournal(t.Log(), "the topology cannot be declared again", "the topology is declared again"),
		watchEvery: 15 * time.Second, confirmWithin: time.Minute, unwind: 5 * time.Second,
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("rabbit: %w", err)
	}
	return c, nil
}

// defaultPrefetch is the default of Prefetch. It does not depend on the machine, as the default of
// Concurrency does.
const defaultPrefetch = 50

// Limits of the protocol.
const (
	maxPrefetch    = 1<<16 - 1
	maxShortString = 255
)

// isReserved reports whether RabbitMQ refuses a name because it begins with amq., which it keeps
// for itself.
func isReserved(name string) bool { return strings.HasPrefix(name, "amq.") }

func (c *Consumer) validate() error {
	uri, err := amqp.ParseURI(c.cfg.URL)
	switch {
	case err != nil: // the error's text may have the password
		return errors.New("URL is not like amqp://user:password@host:port/vhost")
	case c.cfg.TLS != nil && uri.Scheme != "amqps":
		return errors.New("TLS is set, and URL is not amqps://")
	case c.cfg.Prefetch < c.in.Concurrency(), c.cfg.Prefetch > maxPrefetch:
		return fmt.Errorf("Prefetch is %d: want %d (Concurrency of the inbox) to %d", c.cfg.Prefetch, c.in.Concurrency(), maxPrefetch)
	case isReserved(c.in.Service()):
		return fmt.Errorf("Service of the inbox is %q: RabbitMQ keeps names that begin with amq. for itself", c.in.Service())
	case len(c.cfg.DeadLetterExchange) > maxShortString, isReserved(c.cfg.DeadLetterExchange):
		return fmt.Errorf("DeadLetterExchange is %.300q: want up to %d bytes, and not amq. in front", c.cfg.DeadLetterExchange, maxShortString)
	case c.cfg.DeadLetterExchange == c.topology.returnExchange:
		return fmt.Errorf("DeadLetterExchange is %q, from which messages come back to the service", c.topology.returnExchange)
	case len(c.cfg.Bindings) == 0 && !c.cfg.BoundElsewhere:
		return errors.New("Bindings is empty: nothing would be received; set BoundElsewhere if somebody else binds the queue")
	}
	for _, b := range c.cfg.Bindings {
		if b.Exchange == "" || len(b.Exchange) > maxShortString || len(b.Key) > maxShortString {
			return fmt.Errorf("Bindings has exchange %.300q, key %.300q: want the name of an exchange, and up to %d bytes each", b.Exchange, b.Key, maxShortString)
		}
	}
	return nil
}

const (
	// from both sides; after three missing ones a connection counts as lost
	heartbeat        = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	writeTimeout     = 30 * time.Second
	closeTimeout     = 3 * time.Second
)

// link is a connection that can be closed at once.
type link struct {
	*amqp.Connection
	raw net.Conn
}

// connect opens a connection. The broker's management shows role, which says what the connection is
// for.
func (c *Consumer) connect(ctx context.Context, role string) (*link, error) {
	dialing, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	l, notKilled := &link{}, func() bool { return true }
	cfg := amqp.Config{Heartbeat: heartbeat, Properties: amqp.NewConnectionProperties(), Dial: func(network, address string) (net.Conn, error) {
		raw, err := (&net.Dialer{}).DialContext(dialing, network, address)
		if err != nil {
			return nil, err
		}
		l.raw = raw
		notKilled = context.AfterFunc(dialing, l.kill) // amqp091's handshake knows no context
		return impatientConn{raw}, nil
	}}
	cfg.Properties["product"] = "cdc-relay inbox"
	cfg.Properties.SetClientConnectionName(c.in.Service() + " " + role)
	if c.cfg.TLS != nil {
		cfg.TLSClientConfig = c.cfg.TLS.Clone()
	}
	var err error
	l.Connection, err = amqp.DialConfig(c.cfg.URL, cfg)
	switch notKilled := notKilled(); {
	case err == nil && notKilled:
		return l, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case !notKilled:
		return nil, fmt.Errorf("connect to RabbitMQ: no answer within %s", handshakeTimeout)
	}
	return nil, fmt.Errorf("connect to RabbitMQ: %w", err)
}

// product returns the broker's name and version, for the log.
func (l *link) product() string {
	return fmt.Sprint(l.Properties["product"], " ", l.Properties["version"])
}

// close closes the connection with the protocol's handshake.
func (l *link) close() {
	_ = l.CloseDeadline(time.Now().Add(closeTimeout)) //nolint:errcheck // a dead connection is closed at once
}

// kill closes the connection at once, so that calls of amqp091 which wait return.
func (l *link) kill() { _ = l.raw.Close() }

// impatientConn ends a write that takes too long. amqp091 has no limit for a write, and meanwhile
// it holds a lock that it also needs to notice that the connection is lost.
type impatientConn struct{ net.Conn }

func (c impatientConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// isRefusal reports whether the broker has refused the login, the virtual host or a right.
func isRefusal(err error) bool {
	var refused *amqp.Error
	return errors.As(err, &refused) && (refused.Code == amqp.AccessRefused || refused.Code == amqp.NotAllowed)
}
