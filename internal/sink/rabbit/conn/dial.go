// How a connection is opened: TCP, TLS and AMQP's handshake.

package conn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Dialer opens connections to one of several addresses.
type Dialer struct {
	// URLs are amqp:// or amqps:// addresses of one cluster, tried in turn from a random one. User
	// and password in them are used when Credentials is nil.
	URLs []string
	// Credentials is asked at every connect, so that a changed secret is picked up.
	Credentials func() (user, password string, err error)
	// TLS is asked at every connect to an amqps address. An empty ServerName becomes the address's
	// host.
	TLS func() (*tls.Config, error)
	// ConnectionName is shown by the broker's management.
	ConnectionName string
	// ConfirmTimeout is how long the broker may take to confirm, to answer or to read, while the
	// connection is up and not blocked.
	ConfirmTimeout time.Duration
	// Lanes is how many lanes share a connection.
	Lanes int
	// MaxChannels is how many channels a connection may have, beside what the broker names when it
	// begins; 0: any number. It may be nil.
	MaxChannels func() int
	// ChannelOpen is called for each channel that is opened; it may be nil.
	ChannelOpen func()
	// Admit refuses a broker by an error, for the name of its cluster.
	Admit func(cluster, address string) error
}

// Dial returns a session with the first address that accepts one, or all errors. onBlocked, which
// may be nil, is called when its broker blocks or unblocks.
func (d *Dialer) Dial(ctx context.Context, onBlocked func(bool)) (*Session, error) {
	var failures []error
	first := rand.IntN(len(d.URLs))
	for i := range d.URLs {
		sess, err := d.DialOne(ctx, d.URLs[(first+i)%len(d.URLs)], onBlocked)
		if err == nil {
			return sess, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

// ErrSilent is the error of an address that accepts connections and does not speak AMQP.
var ErrSilent = fmt.Errorf("no answer within %s", HandshakeTimeout)

// DialOne opens a connection to one address.
func (d *Dialer) DialOne(ctx context.Context, url string, onBlocked func(bool)) (*Session, error) {
	uri, err := amqp.ParseURI(url)
	if err != nil {
		return nil, errors.New("parse broker URL") // its own text may quote the password
	}
	addr := net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()

	login, err := d.login(uri)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	cfg := d.amqpConfig(uri, &login)
	netDialer := net.Dialer{KeepAlive: 15 * time.Second}
	raw, err := netDialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	conn := raw
	if uri.Scheme == "amqps" {
		if conn, err = d.secure(ctx, raw, uri.Host); err != nil {
			_ = raw.Close()
			return nil, fmt.Errorf("connect to %s: %w", addr, err)
		}
	}
	sess, err := open(ctx, newWire(conn, raw, readSilence), cfg, addr, d.ConfirmTimeout, onBlocked)
	if err != nil {
		if secure, is := conn.(*sink.TLSConn); is {
			err = cmp.Or(secure.Alert(), err) // amqp091 keeps only its text
		}
		// amqp091 reports only the connection that was closed over it
		if ctx.Err() == context.DeadlineExceeded {
			err = ErrSilent
		}
		return nil, fmt.Errorf("log in to %s: %w", addr, err)
	}
	if err := d.Admit(sess.ClusterName(), addr); err != nil {
		sess.Close(PrivateClose)
		return nil, err
	}
	sess.login, sess.onOpen = login, d.ChannelOpen
	sess.Allowed = sess.ChannelMax()
	if d.MaxChannels != nil {
		if most := d.MaxChannels(); most > 0 {
			sess.Allowed = min(sess.Allowed, most)
		}
	}
	sess.divide(sess.Allowed, d.Lanes)
	return sess, nil
}

// login asks for the credentials.
func (d *Dialer) login(uri amqp.URI) (amqp.PlainAuth, error) {
	if d.Credentials == nil {
		return amqp.PlainAuth{Username: uri.Username, Password: uri.Password}, nil
	}
	user, password, err := d.Credentials()
	if err != nil {
		return amqp.PlainAuth{}, fmt.Errorf("read credentials: %w", err)
	}
	return amqp.PlainAuth{Username: user, Password: password}, nil
}

// Renewed reads the credentials, and reports whether they are others than those that the session
// has logged in with. It is false when they cannot be read: a login would fail.
func (d *Dialer) Renewed(s *Session) bool {
	if d.Credentials == nil {
		return false
	}
	login, err := d.login(amqp.URI{})
	return err == nil && login != s.login
}

// amqpConfig fills in a configuration for one connect: amqp091 writes into the Properties.
func (d *Dialer) amqpConfig(uri amqp.URI, login *amqp.PlainAuth) amqp.Config {
	cfg := amqp.Config{
		SASL:       []amqp.Authentication{login},
		Vhost:      uri.Vhost,
		FrameSize:  FrameSize,
		Heartbeat:  heartbeat,
		Locale:     "en_US",
		Properties: amqp.NewConnectionProperties(),
	}
	for _, mechanism := range uri.AuthMechanism {
		if strings.EqualFold(mechanism, "external") {
			cfg.SASL = []amqp.Authentication{&amqp.ExternalAuth{}}
		}
	}
	cfg.Properties["product"] = "cdc-relay"
	cfg.Properties.SetClientConnectionName(d.ConnectionName)
	return cfg
}

// secure does the TLS handshake.
func (d *Dialer) secure(ctx context.Context, raw net.Conn, host string) (net.Conn, error) {
	cfg, err := d.TLS()
	if err != nil {
		return nil, fmt.Errorf("read TLS settings: %w", err)
	}
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return &sink.TLSConn{Conn: conn}, nil
}
