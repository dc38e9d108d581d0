// A connection to the broker.

package rabbit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	heartbeat        = 10 * time.Second // of both sides; after three a connection is lost
	handshakeTimeout = 10 * time.Second
	writeTimeout     = 30 * time.Second
	closeTimeout     = 3 * time.Second
)

// link is a connection that can be ended at once.
type link struct {
	*amqp.Connection
	raw net.Conn
}

// connect opens a connection. role is what it is for, as the broker's management shows it.
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

// product is the broker's name and version.
func (l *link) product() string {
	return fmt.Sprint(l.Properties["product"], " ", l.Properties["version"])
}

// close ends the connection as the protocol has it.
func (l *link) close() {
	_ = l.CloseDeadline(time.Now().Add(closeTimeout)) //nolint:errcheck // a dead connection is closed at once
}

// kill ends the connection at once. Whoever waits in amqp091 is freed.
func (l *link) kill() { _ = l.raw.Close() }

// impatientConn ends a write that takes too long. amqp091 has no limit for it, and holds a lock
// meanwhile that also its end of a lost connection needs.
type impatientConn struct{ net.Conn }

func (c impatientConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// isRefusal is whether the broker has refused the login, the virtual host or a right.
func isRefusal(err error) bool {
	var refused *amqp.Error
	return errors.As(err, &refused) && (refused.Code == amqp.AccessRefused || refused.Code == amqp.NotAllowed)
}
