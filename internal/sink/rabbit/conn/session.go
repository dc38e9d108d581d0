// Package conn is one AMQP connection as the relay needs it. Writes are gathered, a call to amqp091
// ends with its context, and a broker that stops reading or answering is noticed.
package conn

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient/socket"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

const (
	heartbeat = 10 * time.Second
	// readSilence is three of the broker's heartbeats, which it sends every half interval.
	readSilence      = 15 * time.Second
	HandshakeTimeout = 10 * time.Second // per address: dial, TLS and AMQP together
	CloseTimeout     = 3 * time.Second  // for the broker's close-ok
	FrameSize        = 131072           // RabbitMQ's default frame_max; the broker may lower it
)

// PrivateClose is how long closing a private connection may take. A call that is cancelled takes so
// much longer.
const PrivateClose = 300 * time.Millisecond

// Dialer opens connections to one of several addresses.
type Dialer struct {
	// URLs are amqp:// or amqps:// addresses of one cluster, tried in turn from a random one. User
	// and password in them are used when Logins is nil.
	URLs []string
	// Logins is asked at every connect, so that a changed secret is used. A connection whose login
	// is a token gets each new one before its own ends.
	Logins *sink.Logins
	// TLS is called at every connect to an amqps address. An empty ServerName becomes the address's
	// host.
	TLS func() (*tls.Config, error)
	// ConnectionName is shown by the broker's management.
	ConnectionName string
	// ConfirmTimeout is how long the broker may take to confirm, to answer or to read, while the
	// connection is up and not blocked.
	ConfirmTimeout time.Duration
	// Lanes is how many lanes share a connection.
	Lanes int
	// MaxChannels returns how many channels a connection may have, besides what the broker says at
	// the beginning; 0 means any number. The function may be nil.
	MaxChannels func() int
	// ChannelOpen is called for each channel that is opened; it may be nil.
	ChannelOpen func()
	// Admit returns an error to refuse a broker because of the name of its cluster.
	Admit func(cluster, address string) error
}

// Dial opens a session at the first address that accepts one, beginning with a random one. It
// returns all errors when no address does. onBlocked, which may be nil, is called when the broker
// blocks or unblocks.
func (d *Dialer) Dial(ctx context.Context, onBlocked func(bool)) (*Session, error) {
	var failures []error
	unfit := 0
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
		if errors.As(err, new(*UnfitError)) {
			unfit++
		}
	}
	if unfit == len(failures) {
		return nil, fmt.Errorf("%w: %w", ErrUnfit, errors.Join(failures...))
	}
	return nil, errors.Join(failures...)
}

// ErrSilent says that an address accepts connections and does not speak AMQP.
var ErrSilent = fmt.Errorf("no answer within %s", HandshakeTimeout)

// DialOne opens a connection to one address.
func (d *Dialer) DialOne(ctx context.Context, url string, onBlocked func(bool)) (*Session, error) {
	uri, err := amqp.ParseURI(url)
	if err != nil {
		return nil, errors.New("parse broker URL") // the error's own text may quote the password
	}
	addr := net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()

	login, err := d.readLogin(ctx, uri)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	cfg := d.amqpConfig(uri, login)
	netDialer := net.Dialer{KeepAlive: 15 * time.Second}
	raw, err := netDialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	raw = socket.Quiet(raw)
	conn := raw
	if uri.Scheme == "amqps" {
		if conn, err = d.handshakeTLS(ctx, raw, uri.Host); err != nil {
			_ = raw.Close()
			return nil, fmt.Errorf("connect to %s: %w", addr, err)
		}
	}
	wire := newWire(conn, raw, readSilence)
	sess, err := openSession(ctx, wire, cfg, addr, d.ConfirmTimeout, onBlocked)
	if err != nil {
		if secure, is := conn.(*sink.TLSConn); is {
			err = cmp.Or(secure.Alert(), err) // amqp091 keeps only the text of the error
		}
		// amqp091 only reports that the connection was closed
		if ctx.Err() == context.DeadlineExceeded {
			err = ErrSilent
		}
		if greeting := wire.greeting.Load(); greeting != nil {
			err = explainGreeting(err, *greeting, cfg.SASL[0].Mechanism(), uri.Scheme)
		}
		if ex := (*amqp.Error)(nil); errors.As(err, &ex) && ex.Code == amqp.AccessRefused {
			err = d.Logins.Refused(login, err)
		}
		return nil, fmt.Errorf("log in to %s: %w", addr, err)
	}
	if err := d.Admit(sess.ClusterName(), addr); err != nil {
		sess.Close(PrivateClose)
		return nil, err
	}
	sess.onOpen = d.ChannelOpen
	sess.loginAt = time.Now()
	sess.login.Store(&login)
	sess.Allowed = sess.ChannelMax()
	if d.MaxChannels != nil {
		if most := d.MaxChannels(); most > 0 {
			sess.Allowed = min(sess.Allowed, most)
		}
	}
	sess.divideChannels(sess.Allowed, d.Lanes)
	if d.Logins != nil && d.Logins.Tokens != nil {
		sess.Spawn(func() { sess.renewToken(d.Logins.Tokens) })
	}
	return sess, nil
}

func (d *Dialer) readLogin(ctx context.Context, uri amqp.URI) (sink.Login, error) {
	if d.Logins == nil {
		return sink.Login{User: uri.Username, Password: uri.Password}, nil
	}
	return d.Logins.Read(ctx)
}

// How long a login counts as the present one where each would be another: an exchange that stays
// forbidden ends a connection no more often than that. Its probes go on for ever.
const (
	unsteadyLogin = time.Minute
	unsteadyProbe = time.Hour
)

// Renewed reads the login, and reports whether it differs from the one that the session has logged
// in with. When it cannot be read it returns false, because a new login would fail. Of tokens it
// reports whether the session's has ended, or is about to be replaced. probe says that a probe
// asks. It runs no command.
func (d *Dialer) Renewed(ctx context.Context, s *Session, probe bool) bool {
	switch l := d.Logins; {
	case l == nil:
		return false
	case l.Tokens != nil:
		return l.Tokens.UntilRenewal(s.login.Load().Password) == 0
	case l.Runs != nil && l.Runs():
		present := unsteadyLogin
		if probe {
			present = unsteadyProbe
		}
		return time.Since(s.loginAt) > present
	}
	login, err := d.Logins.Read(ctx)
	return err == nil && login != *s.login.Load()
}

const external = "EXTERNAL" // the mechanism whose login is the client certificate

// amqpConfig makes the configuration for one connect. It cannot be shared, because amqp091 writes
// into the Properties.
func (d *Dialer) amqpConfig(uri amqp.URI, login sink.Login) amqp.Config {
	cfg := amqp.Config{
		SASL:       []amqp.Authentication{&amqp.PlainAuth{Username: login.User, Password: login.Password}},
		Vhost:      uri.Vhost,
		FrameSize:  FrameSize,
		Heartbeat:  heartbeat,
		Locale:     "en_US",
		Properties: amqp.NewConnectionProperties(),
	}
	for _, mechanism := range uri.AuthMechanism {
		if strings.EqualFold(mechanism, external) {
			cfg.SASL = []amqp.Authentication{&amqp.ExternalAuth{}}
		}
	}
	cfg.Properties["product"] = "cdc-relay"
	cfg.Properties.SetClientConnectionName(d.ConnectionName)
	return cfg
}

func (d *Dialer) handshakeTLS(ctx context.Context, raw net.Conn, host string) (net.Conn, error) {
	cfg, err := d.TLS()
	if err != nil {
		return nil, fmt.Errorf("read TLS settings: %w", err)
	}
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	conn := tls.Client(raw, cfg)
	var plain tls.RecordHeaderError
	switch err := conn.HandshakeContext(ctx); {
	case errors.As(err, &plain) && bytes.HasPrefix(plain.RecordHeader[:], []byte("AMQP")):
		return nil, errNoTLS
	case errors.As(err, &plain): // a proxy that has no broker may answer in plain text
		return nil, fmt.Errorf("the port may not speak TLS: %w", err)
	case err != nil:
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return &sink.TLSConn{Conn: conn}, nil
}

// Session is one connection, from open to its end. The goroutines of its lanes publish on its
// channels. Its own goroutine watchConnection follows the broker's notifications about the
// connection.
type Session struct {
	amqp    *amqp.Connection
	Wire    *wire
	Address string
	login   atomic.Pointer[sink.Login] // with which DialOne has logged in
	loginAt time.Time
	// renewing is true from when a new token is offered to the broker until it takes it.
	renewing atomic.Bool
	limit    time.Duration // the ConfirmTimeout

	channelTurns
	onOpen    func() // called for each channel that is opened; may be nil
	onBlocked func(bool)
	closes    chan *amqp.Error
	blocks    chan amqp.Blocking
	// work waits for the goroutines that end with the session: flusher, watchConnection, and those
	// that open or close channels.
	work sync.WaitGroup

	blocked          atomic.Bool
	mu               sync.Mutex
	noMoreGoroutines bool          // no more goroutines may start
	unblocked        chan struct{} // not nil while the broker blocks; closed when it no longer does
	Gone             chan struct{} // closed once the connection has ended, after end was set
	// end is why the connection has ended; nil after our own close. Its Server is true for the
	// broker's connection.close.
	end *amqp.Error

	// Unix nanoseconds. The lanes write lastConfirm from time to time, not at each confirm. The
	// confirm clock stops while the broker blocks, and starts again at lastUnblock.
	lastConfirm, lastUnblock atomic.Int64
	// pingedAt is when the broker was last asked for a sign of life, in Unix nanoseconds.
	pingedAt atomic.Int64
	Writes   atomic.Uint64 // rounds that were written so far
	// readRounds is how many of these rounds the broker has certainly read, in the order in which
	// they ended.
	readRounds atomic.Uint64
}

// openSession does the AMQP handshake on w and starts the session's goroutines. limit is how long a
// broker may take to answer or to read.
func openSession(ctx context.Context, w *wire, cfg amqp.Config, address string, limit time.Duration, onBlocked func(bool)) (*Session, error) {
	s := &Session{
		Wire: w, Address: address, limit: limit, onBlocked: onBlocked, Gone: make(chan struct{}),
		closes: make(chan *amqp.Error, 1), blocks: make(chan amqp.Blocking, 8),
	}
	s.work.Go(w.runFlusher)
	// amqp091's handshake knows no context, so the end of ctx ends the wire.
	stop := context.AfterFunc(ctx, func() { w.fail(ctx.Err()) })
	defer stop()
	conn, err := amqp.Open(w, cfg)
	if err != nil {
		w.fail(err)
		s.work.Wait()
		return nil, err
	}
	s.amqp = conn
	conn.NotifyClose(s.closes)
	conn.NotifyBlocked(s.blocks)
	s.lastUnblock.Store(time.Now().UnixNano())
	s.work.Go(s.watchConnection)
	return s, nil
}

// watchConnection follows the connection until its end. It ends the connection when the broker has
// stopped reading: a write takes longer than limit although the broker has not reported that it
// blocks.
func (s *Session) watchConnection() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	blocks := s.blocks
	for {
		select {
		case b, ok := <-blocks:
			if !ok {
				blocks = nil // closes has the reason
				continue
			}
			if s.setBlocked(b.Active) && s.onBlocked != nil {
				s.onBlocked(b.Active)
			}
		case err := <-s.closes:
			// goroutines that wait for the end of blocking go on, and find the connection gone
			s.setBlocked(false)
			s.end = err
			close(s.Gone)
			return
		case now := <-tick.C:
			if s.Wire.WasFrozen(now) {
				s.Kill(ErrFrozen)
			}
			if d := s.Wire.writingFor(now); d > s.limit && !s.blocked.Load() {
				s.Kill(fmt.Errorf("broker has not read for %s", d.Round(time.Second)))
			}
		}
	}
}

// setBlocked notes whether the broker has a memory or disk alarm, and reports whether that is new.
func (s *Session) setBlocked(on bool) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on == (s.unblocked != nil) {
		return false
	}
	if on {
		s.unblocked = make(chan struct{})
	} else {
		s.lastUnblock.Store(time.Now().UnixNano())
		close(s.unblocked)
		s.unblocked = nil
	}
	s.blocked.Store(on)
	return true
}

// UntilUnblocked returns a channel that is closed when the broker takes messages again, or nil when
// it does so now.
func (s *Session) UntilUnblocked() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unblocked
}

// Alive reports whether the connection may still be written to.
func (s *Session) Alive() bool { return !s.amqp.IsClosed() }

// ChannelMax returns how many channels both sides allow on the connection.
func (s *Session) ChannelMax() int { return int(s.amqp.Config.ChannelMax) }

// Kill ends a connection that is of no use any more, at once.
func (s *Session) Kill(err error) { s.Wire.fail(err) }

// Close ends the session in the protocol's order, at most within limit, and waits for its
// goroutines.
func (s *Session) Close(limit time.Duration) {
	_ = s.Wire.SetDeadline(time.Now().Add(limit)) //nolint:errcheck // a dead connection is closed at once
	_ = s.amqp.Close()                            //nolint:errcheck // whatever it says, the connection is closed
	s.waitForGoroutines()
}

// waitForGoroutines waits for the session's goroutines. The connection must have ended, or be about
// to.
func (s *Session) waitForGoroutines() {
	<-s.Gone
	s.mu.Lock()
	s.noMoreGoroutines = true
	s.mu.Unlock()
	s.work.Wait()
}

// Reason says why an ended session has ended.
func (s *Session) Reason() string {
	select {
	case <-s.Gone:
	default:
		return "ending"
	}
	if s.end == nil {
		return "closed"
	}
	if s.end.Server {
		return fmt.Sprintf("broker %s closed the connection: %d %s", s.Address, s.end.Code, s.end.Reason)
	}
	return fmt.Sprintf("connection to %s lost: %s", s.Address, s.LossReason(s.end))
}

// EndError returns the error with which the session ended. It is nil when the session goes on, or
// when we have closed it.
func (s *Session) EndError() *amqp.Error {
	select {
	case <-s.Gone:
		return s.end
	default:
		return nil
	}
}

// LossReason says why a connection ended without a close frame: what has ended it on this side, or
// what amqp091 has met.
func (s *Session) LossReason(end *amqp.Error) string {
	if err := s.Wire.failure(); err != nil {
		return ErrorText(err)
	}
	if end == nil {
		return "closed"
	}
	return ErrorText(errors.New(end.Reason))
}

// Product returns the broker's product name and version.
func (s *Session) Product() string {
	product, _ := s.amqp.Properties["product"].(string)
	version, _ := s.amqp.Properties["version"].(string)
	return product + " " + version
}

// ClusterName returns the name that the broker gives its cluster, or "" when it gives none.
func (s *Session) ClusterName() string {
	name, _ := s.amqp.Properties["cluster_name"].(string)
	return name
}

// FrameMax returns the largest frame that both sides take, in bytes.
func (s *Session) FrameMax() int { return s.amqp.Config.FrameSize }

// Spawn runs f in a goroutine that waitForGoroutines waits for. It returns false when the session
// is over.
func (s *Session) Spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noMoreGoroutines {
		return false
	}
	s.work.Go(f)
	return true
}

// ErrGone says that the connection has ended.
var ErrGone = errors.New("connection lost")

// ErrFrozen says that a connection was given up because an answer may have been missed on it.
var ErrFrozen = errors.New("the process was suspended for seconds: answers of the broker may have been missed")

// ephemeral matches the parts of an error's text that differ at every connect: the local end of a
// socket, and the time in the error about an expired certificate.
var ephemeral = lazy.Regexp(`[^ ]+:\d+->|current time \S+ is `)

// ErrorText returns err in one line, of several addresses too. It is the same whenever the cause
// is the same.
func ErrorText(err error) string {
	return strings.ReplaceAll(ephemeral().ReplaceAllString(err.Error(), ""), "\n", "; ")
}
