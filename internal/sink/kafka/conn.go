// One connection to a broker: how it is opened, and one request and its answer at a time.

package kafka

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

const (
	dialTimeout = 10 * time.Second // TCP, TLS, versions and login together
	// A broker drops a connection that was idle for connections.max.idle.ms (10 minutes), load balancers sooner (4 minutes
	// on some clouds). One that idled for so long is not used again: a request lost on it would be in doubt.
	maxIdle = 3 * time.Minute
	// maxAnswer is far above any answer, in bytes. What claims more does not speak Kafka, and is not read.
	maxAnswer = 64 << 20
)

// conn is a connection to one broker, logged in. It carries one request at a time, from one goroutine at a time; close may
// be called from any. It has a goroutine of its own only while it is watched.
type conn struct {
	addr     string
	clientID string
	net      net.Conn
	reader   *bufio.Reader
	gather   gather
	body     []byte           // of the last produce answer
	produced produce.Response // the answer
	versions map[protocol.ApiKey]int16
	last     int32     // correlation id of the last request
	used     time.Time // of the last answer
	expires  time.Time // when the broker wants a new login; zero: never
	closed   atomic.Bool
}

// dial connects, within ctx and dialTimeout. The error wraps errLogin when the broker refuses the login.
func dial(ctx context.Context, cfg *Config, addr string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dialer := net.Dialer{KeepAlive: 15 * time.Second}
	raw, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to broker %s: %w", addr, err)
	}
	c := &conn{
		addr: addr, clientID: cfg.ClientID, net: raw, used: time.Now(),
		versions: map[protocol.ApiKey]int16{protocol.ApiVersions: 0},
	}
	if err := c.open(ctx, cfg); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// open makes a TCP connection one that carries requests.
func (c *conn) open(ctx context.Context, cfg *Config) error {
	if cfg.TLS != nil {
		if err := c.encrypt(ctx, cfg.TLS); err != nil {
			return fmt.Errorf("open TLS with broker %s: %w", c.addr, err)
		}
	}
	c.reader = bufio.NewReader(c.net)
	if err := c.negotiate(ctx); err != nil {
		return err
	}
	if cfg.SASL == nil {
		return nil
	}
	credentials, err := cfg.SASL()
	if err != nil {
		return fmt.Errorf("read credentials: %w", err)
	}
	if credentials == nil {
		return nil
	}
	if err := c.login(ctx, credentials); err != nil {
		return fmt.Errorf("log in at broker %s: %w", c.addr, err)
	}
	return nil
}

func (c *conn) encrypt(ctx context.Context, config func() (*tls.Config, error)) error {
	cfg, err := config()
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(c.addr)
		if err != nil {
			return fmt.Errorf("read host: %w", err)
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	secure := tls.Client(c.net, cfg)
	c.net = &sink.TLSConn{Conn: secure}
	err = secure.HandshakeContext(ctx)
	var header tls.RecordHeaderError
	if errors.Is(err, io.EOF) || errors.As(err, &header) {
		return fmt.Errorf("the port may take no TLS: %w", err)
	}
	return err
}

// usable reports whether a request may be sent: the connection stands as far as is known, has not idled for long, and
// the login is good for a while.
func (c *conn) usable() bool {
	now := time.Now()
	return !c.closed.Load() && now.Sub(c.used) < maxIdle && (c.expires.IsZero() || now.Before(c.expires))
}

// ask is roundTrip for an answer of type R.
func ask[R protocol.Message](ctx context.Context, c *conn, timeout time.Duration, req protocol.Message) (res R, err error) {
	answer, err := c.roundTrip(ctx, timeout, req)
	if err != nil {
		return res, err
	}
	res, ok := answer.(R)
	if !ok {
		c.close()
		return res, fmt.Errorf("send %v to broker %s: the answer is a %T", req.ApiKey(), c.addr, answer)
	}
	return res, nil
}

// roundTrip sends a request and waits for its answer, at most for timeout. The end of ctx breaks it at once; the error then
// wraps ctx's. Any error closes the connection, and whether the broker had the request is not known.
func (c *conn) roundTrip(ctx context.Context, timeout time.Duration, req protocol.Message) (protocol.Message, error) {
	answer, err := c.exchange(ctx, timeout, req)
	if err != nil {
		c.close()
		if ended := ctx.Err(); ended != nil {
			err = ended // the cause: the deadline that broke the exchange was set by its end
		}
		return nil, fmt.Errorf("send %v to broker %s: %w", req.ApiKey(), c.addr, err)
	}
	c.used = time.Now()
	return answer, nil
}

func (c *conn) exchange(ctx context.Context, timeout time.Duration, req protocol.Message) (protocol.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key := req.ApiKey()
	version, ok := c.versions[key]
	if !ok {
		return nil, errors.New("the broker has no version of this request in common with the relay")
	}
	if err := c.net.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = c.net.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // a dead connection has failed the exchange already
	})
	defer func() {
		if !stop() {
			c.close() // the deadline in the past may come at any time from now on
		}
	}()
	c.last++
	c.gather = gather{to: c.net, pages: c.gather.pages[:0]}
	if err := protocol.WriteRequest(&c.gather, version, c.last, c.clientID, req); err != nil {
		return nil, err
	}
	if err := c.checkFrame(key); err != nil {
		return nil, err
	}
	if key == protocol.Produce {
		return c.readProduced(version)
	}
	_, answer, err := protocol.ReadResponse(c.reader, key, version)
	if res, ok := answer.(*metadata.Response); ok && version < 7 {
		forgetEpochs(res)
	}
	return answer, err
}

// close ends the connection. A request under way fails.
func (c *conn) close() {
	if !c.closed.Swap(true) {
		c.net.Close()
	}
}
