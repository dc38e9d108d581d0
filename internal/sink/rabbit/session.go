package rabbit

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

const (
	heartbeat        = 10 * time.Second
	readSilence      = 15 * time.Second // three of the broker's heartbeats, which it sends every half interval
	handshakeTimeout = 10 * time.Second // per address: dial, TLS and AMQP together
	closeTimeout     = 3 * time.Second  // for the broker's close-ok
	frameSize        = 131072           // RabbitMQ's default frame_max; the broker may lower it
)

// session is one established connection, from open to its end. Its lanes' goroutines publish on channels of it; watch,
// a goroutine of its own, follows what the broker says of the connection as a whole.
type session struct {
	conn    *amqp.Connection
	wire    *wire
	address string
	limit   time.Duration // ConfirmTimeout

	onBlocked func(bool)
	closes    chan *amqp.Error
	blocks    chan amqp.Blocking
	work      sync.WaitGroup // goroutines that end with the session: flusher, watch, channel openers and closers

	blocked   atomic.Bool
	mu        sync.Mutex
	over      bool          // no goroutine may start any more
	unblocked chan struct{} // non-nil while blocked, closed at its end
	gone      chan struct{} // closed once the connection has ended, after end was set
	end       *amqp.Error   // why; nil after our own close. Server is true for the broker's connection.close

	// lastConfirm and lastUnblock are Unix nanoseconds. The first is written by the lanes from time to time, not at each
	// confirm; the confirm clock stands still while blocked, so it starts again at the second.
	lastConfirm, lastUnblock atomic.Int64
	asked                    atomic.Int64  // when the broker was asked for a sign of life, Unix nanoseconds
	writes                   atomic.Uint64 // rounds written so far
	read                     atomic.Uint64 // of these the broker is known to have read so many, in the order they ended
}

// dial tries the addresses in turn from a random one and returns the first session, or all their errors.
// onBlocked, which may be nil, is called when its broker blocks or unblocks.
func (s *Sink) dial(ctx context.Context, onBlocked func(bool)) (*session, error) {
	var failures []error
	first := rand.IntN(len(s.cfg.URLs))
	for i := range s.cfg.URLs {
		sess, err := s.dialOne(ctx, s.cfg.URLs[(first+i)%len(s.cfg.URLs)])
		if err == nil {
			s.tell(sess, failures)
			sess.onBlocked = onBlocked
			sess.work.Go(sess.watch)
			return sess, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

// errSilent is of an address where something takes connections and does not speak AMQP.
var errSilent = fmt.Errorf("no answer within %s", handshakeTimeout)

// dialOne opens a connection to one address, of the sink's cluster; watch is not started yet.
func (s *Sink) dialOne(ctx context.Context, url string) (*session, error) {
	uri, err := amqp.ParseURI(url)
	if err != nil {
		return nil, errors.New("parse broker URL") // its own words may quote the password
	}
	addr := net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()

	cfg, err := s.amqpConfig(uri)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	dialer := net.Dialer{KeepAlive: 15 * time.Second}
	raw, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	conn := raw
	if uri.Scheme == "amqps" {
		if conn, err = s.secure(ctx, raw, uri.Host); err != nil {
			_ = raw.Close()
			return nil, fmt.Errorf("connect to %s: %w", addr, err)
		}
	}
	sess, err := open(ctx, newWire(conn, raw, readSilence), cfg)
	if err != nil {
		if secure, is := conn.(*sink.TLSConn); is {
			err = cmp.Or(secure.Alert(), err) // amqp091 keeps only its text
		}
		if ctx.Err() == context.DeadlineExceeded { // amqp091 tells only of the connection that was closed over it
			err = errSilent
		}
		return nil, fmt.Errorf("log in to %s: %w", addr, err)
	}
	sess.address, sess.limit = addr, s.cfg.ConfirmTimeout
	if err := s.admit(sess); err != nil {
		sess.work.Go(sess.watch)
		sess.close(privateClose)
		return nil, err
	}
	return sess, nil
}

// amqpConfig asks for the credentials and fills in a configuration for one connect: amqp091 writes into the Properties.
func (s *Sink) amqpConfig(uri amqp.URI) (amqp.Config, error) {
	user, password := uri.Username, uri.Password
	if s.cfg.Credentials != nil {
		var err error
		if user, password, err = s.cfg.Credentials(); err != nil {
			return amqp.Config{}, fmt.Errorf("read credentials: %w", err)
		}
	}
	cfg := amqp.Config{
		SASL:       []amqp.Authentication{&amqp.PlainAuth{Username: user, Password: password}},
		Vhost:      uri.Vhost,
		FrameSize:  frameSize,
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
	cfg.Properties.SetClientConnectionName(s.cfg.ConnectionName)
	return cfg, nil
}

// secure does the TLS handshake.
func (s *Sink) secure(ctx context.Context, raw net.Conn, host string) (net.Conn, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.cfg.TLS != nil {
		given, err := s.cfg.TLS()
		if err != nil {
			return nil, fmt.Errorf("read TLS settings: %w", err)
		}
		cfg = given.Clone()
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

// open does the AMQP handshake on w and starts the session's goroutines.
func open(ctx context.Context, w *wire, cfg amqp.Config) (*session, error) {
	s := &session{
		wire: w, gone: make(chan struct{}),
		closes: make(chan *amqp.Error, 1), blocks: make(chan amqp.Blocking, 8),
	}
	s.work.Go(w.run)
	// amqp091's handshake knows no context: ending the wire ends it.
	stop := context.AfterFunc(ctx, func() { w.fail(ctx.Err()) })
	defer stop()
	conn, err := amqp.Open(line{w}, cfg)
	if err != nil {
		w.fail(err)
		s.work.Wait()
		return nil, err
	}
	s.conn = conn
	conn.NotifyClose(s.closes)
	conn.NotifyBlocked(s.blocks)
	s.lastUnblock.Store(time.Now().UnixNano())
	return s, nil
}

// watch follows the connection until its end. It ends a connection whose broker has stopped reading: a write that takes
// longer than limit while the broker has not said that it blocks.
func (s *session) watch() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	blocks := s.blocks
	for {
		select {
		case b, ok := <-blocks:
			if !ok {
				blocks = nil // closes follows
				continue
			}
			if s.setBlocked(b.Active) && s.onBlocked != nil {
				s.onBlocked(b.Active)
			}
		case err := <-s.closes:
			s.setBlocked(false) // who waits for its end goes on, and finds the connection gone
			s.end = err
			close(s.gone)
			return
		case now := <-tick.C:
			if s.wire.wasFrozen(now) {
				s.kill(errFrozen)
			}
			if d := s.wire.stalled(now); d > s.limit && !s.blocked.Load() {
				s.kill(fmt.Errorf("broker has not read for %s", d.Round(time.Second)))
			}
		}
	}
}

// setBlocked records what the broker says of its memory or disk alarm, and reports whether that is new.
func (s *session) setBlocked(on bool) (changed bool) {
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

// untilUnblocked is closed when the broker takes messages again; nil when it does.
func (s *session) untilUnblocked() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unblocked
}

// alive reports whether the connection is worth writing to.
func (s *session) alive() bool { return !s.conn.IsClosed() }

// kill ends a connection that is of no use any more, at once.
func (s *session) kill(err error) { s.wire.fail(err) }

// close ends the session in the protocol's order, within limit, and waits for its goroutines.
func (s *session) close(limit time.Duration) {
	_ = s.wire.SetDeadline(time.Now().Add(limit)) //nolint:errcheck // a dead connection is closed at once
	_ = s.conn.Close()                            //nolint:errcheck // whatever it says, the connection is closed
	s.wait()
}

// wait waits for the session's goroutines; the connection has ended or is about to.
func (s *session) wait() {
	<-s.gone
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.work.Wait()
}

// ephemeral is what differs at every connect in an error's text: the local end of a socket, and the clock beside a
// certificate that has expired.
var ephemeral = regexp.MustCompile(`[^ ]+:\d+->|current time \S+ is `)

// words is err in one line that is the same whenever the cause is.
func words(err error) string {
	return ephemeral.ReplaceAllString(err.Error(), "")
}
