// How a connection to a broker is opened: TCP, TLS, the versions of requests, and the login.

package conn

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// DialTimeout is for TCP, TLS, versions and login together.
const DialTimeout = 10 * time.Second

// Options say how a connection is opened.
type Options struct {
	// SASL is asked at every connect; nil means no login.
	SASL func() (*SASL, error)
	// TLS is asked at every connect; nil means plaintext. An empty ServerName becomes the broker's
	// host.
	TLS func() (*tls.Config, error)
	// ClientID is the client.id that brokers log and set quotas for.
	ClientID string
}

// Dial connects, within ctx and dialTimeout. The error wraps errLogin when the broker refuses the
// login.
func Dial(ctx context.Context, opts *Options, addr string) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	dialer := net.Dialer{KeepAlive: 15 * time.Second}
	raw, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to broker %s: %w", addr, err)
	}
	c := &Conn{
		Addr: addr, clientID: opts.ClientID, net: raw, used: time.Now(),
		Versions: map[protocol.ApiKey]int16{protocol.ApiVersions: 0},
	}
	if err := errors.Join(c.idle.at(raw), c.open(ctx, opts)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// open makes a TCP connection one that carries requests.
func (c *Conn) open(ctx context.Context, opts *Options) error {
	if opts.TLS != nil {
		if err := c.encrypt(ctx, opts.TLS); err != nil {
			return fmt.Errorf("open TLS with broker %s: %w", c.Addr, err)
		}
	}
	c.reader = bufio.NewReader(c.net)
	if err := c.negotiate(ctx); err != nil {
		return err
	}
	if opts.SASL == nil {
		return nil
	}
	credentials, err := opts.SASL()
	if err != nil {
		return fmt.Errorf("read credentials: %w", err)
	}
	if credentials == nil {
		return nil
	}
	if err := c.login(ctx, credentials); err != nil {
		return fmt.Errorf("log in at broker %s: %w", c.Addr, err)
	}
	return nil
}

func (c *Conn) encrypt(ctx context.Context, config func() (*tls.Config, error)) error {
	cfg, err := config()
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(c.Addr)
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
