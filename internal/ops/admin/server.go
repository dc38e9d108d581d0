// Package admin is the relay's HTTP server: probes, metrics and the API. It changes only what
// operators ask for in the API.
package admin

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
)

// Config is what the admin server needs.
type Config struct {
	Listen        string // host:port; port 0 takes a free one; "" means no such listener
	MetricsListen string // for metrics and probes alone; "" leaves the metrics on Listen
	Socket        string // path of the Unix socket; "" means no socket
	TLS           TLSFiles
	Tokens        []Token // without one only Socket opens /api

	Version    string
	StartedAt  time.Time
	Metrics    *metrics.Metrics
	Snapshot   func() ops.Snapshot // must be safe for concurrent use
	Heartbeats []*ops.Heartbeat
	RecentLog  func() []string // lines for the status; nil means that none are kept
	History    *ops.History    // what the server fills and shows; nil means one of its own
	API        API
	// the console's pages, served only on Listen and to everybody, because they hold no data and
	// ask the API; nil means no console
	Console http.Handler
	Log     *zap.Logger
}

// Server answers /healthz, /readyz, /metrics and /api/v1.
type Server struct {
	cfg         Config
	listener    net.Listener // nil when admin.listen is empty
	metrics     net.Listener // nil when metrics have no listener of their own
	api, probes http.Handler
	socketEvery time.Duration

	broken   faults // of tokens and the socket
	refusals sparing

	listeners               listeners
	lookEvery, recheckEvery time.Duration
}

// New opens the ports at once, so that a port that is taken is known before anything else of the
// relay starts. Its error is an *event.Stop. Run closes the ports.
func New(cfg Config) (*Server, error) {
	if cfg.History == nil {
		cfg.History = new(ops.History)
	}
	s := &Server{cfg: cfg, socketEvery: socketEvery, lookEvery: lookEvery, recheckEvery: recheckEvery}
	var err error
	if cfg.Listen != "" {
		if s.listener, err = listen("admin.listen", "CDC_RELAY_ADMIN__LISTEN", cfg.Listen); err != nil {
			return nil, err
		}
	}
	all := s.paths()
	if cfg.MetricsListen != "" {
		if s.metrics, err = listen("admin.metrics_listen", "CDC_RELAY_ADMIN__METRICS_LISTEN", cfg.MetricsListen); err != nil {
			if s.listener != nil {
				_ = s.listener.Close()
			}
			return nil, err
		}
		delete(all, "/metrics")
	}
	if cfg.TLS.Cert != "" && s.listener != nil {
		c := &certificate{files: cfg.TLS, log: cfg.Log, now: time.Now}
		_, _ = c.config(nil) //nolint:errcheck // it has logged what is wrong, and tries again at a handshake
		s.listener = tls.NewListener(s.listener, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: c.config})
	}
	s.api, s.probes = s.routes(all), s.routes(s.probePaths())
	return s, nil
}

func listen(key, variable, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, &event.Stop{
			Code: event.ExitFailure, Reason: "admin_listen", What: "listen on " + key + " " + address, Err: err,
			Fix: "end what uses the port, or set " + key + " (" + variable + ") to another host:port",
		}
	}
	return l, nil
}

// Addr returns the address that the server listens on, or "" without admin.listen.
func (s *Server) Addr() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Run serves the ports and the socket until ctx is done, and returns nil then.
func (s *Server) Run(ctx context.Context) error {
	for i := range s.cfg.Tokens { // a token that cannot be read is logged before somebody needs it
		_, err := s.cfg.Tokens[i].Read()
		s.broken.report(s.cfg.Log, "token "+s.cfg.Tokens[i].Name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	if s.cfg.Socket != "" {
		others.Go(func() { s.runSocket(ctx) })
	}
	failed := make(chan error, 2)
	serve := func(handler http.Handler, l net.Listener) {
		failed <- s.serve(ctx, s.newHTTP(handler, withConn), l)
	}
	if s.metrics != nil {
		others.Go(func() { serve(s.probes, s.metrics) })
	}
	if s.listener != nil {
		others.Go(func() { serve(s.withConsole(s.api), s.listener) })
	}
	if s.listener != nil || s.cfg.Socket != "" {
		others.Go(func() { s.lookAround(ctx) })
	}
	if s.listener == nil && s.metrics == nil {
		<-ctx.Done()
		return nil
	}
	if err := <-failed; err != nil {
		return fmt.Errorf("serve admin.listen: %w", err)
	}
	return nil
}

// writeBound is how long a request may take, until its answer is written.
const writeBound = 30 * time.Second

// newHTTP makes the http.Server of one listener. Each listener has its own, with bounds of its own.
func (s *Server) newHTTP(handler http.Handler, connected func(context.Context, net.Conn) context.Context) *http.Server {
	open := &connections{open: map[net.Conn]*list.Element{}}
	server := &http.Server{
		Handler:           open.serve(handler),
		ConnState:         open.state,
		ConnContext:       connected,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      writeBound,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    32 << 10,
	}
	logSparingly(server, s.cfg.Log)
	return server
}

// closeTimeout is how long requests may take to end once ctx is done.
const closeTimeout = time.Second

// serve serves one listener until ctx is done, and returns nil then.
func (s *Server) serve(ctx context.Context, server *http.Server, l net.Listener) error {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if server.Shutdown(within) != nil {
			_ = server.Close() //nolint:errcheck // requests that do not end in time are cut off
		}
	})
	err := server.Serve(patient{l})
	if !stop() {
		<-closed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// patient is a listener that accepts again after an error, such as one about memory in the kernel.
// Otherwise such an error would end the server and with it the relay.
type patient struct{ net.Listener }

// Accept implements net.Listener.
func (p patient) Accept() (net.Conn, error) {
	for {
		conn, err := p.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		time.Sleep(acceptAgain)
	}
}

const acceptAgain = 100 * time.Millisecond

// maxConnections is how many connections a listener has open at once. They use file descriptors and
// memory of the relay.
const maxConnections = 256

// connections bounds the open connections of a listener. When there are too many, it closes the one
// that has been idle longest. If it refused the newest one instead, a client with many idle
// connections would keep out the probes, and an orchestrator would restart a relay that works. A
// connection is idle unless its request has a place in a room, so also while a client sends a
// request slowly or reads an answer slowly.
type connections struct {
	mu      sync.Mutex
	open    map[net.Conn]*list.Element // the place in waiting; nil while a request is in work
	waiting list.List                  // idle connections (net.Conn), the longest idle first
}

// connKey is the key of the connection in a request's context.
type connKey struct{}

// openKey is the key of inWork in a request's context.
type openKey struct{}

// inWork lets a handler mark its connection as in work.
type inWork struct {
	of   *connections
	conn net.Conn
}

// state is the server's ConnState: net/http calls it when a connection changes its state.
func (c *connections) state(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open[conn] = c.waiting.PushBack(conn)
		if oldest := c.waiting.Front(); len(c.open) > maxConnections {
			c.forget(oldest.Value.(net.Conn))
			hangUp(oldest.Value.(net.Conn))
		}
	case http.StateIdle: // its answer was sent
		if at, open := c.open[conn]; open && at == nil {
			c.open[conn] = c.waiting.PushBack(conn)
		}
	case http.StateClosed, http.StateHijacked:
		c.forget(conn)
	default: // working keeps the account of the other states
	}
}

// working marks a connection as in work or idle again. A connection in work is never closed for a
// newer one; there are fewer places in rooms than maxConnections. It becomes idle before its answer
// is sent, and before net/http reads the rest of a body that nobody asked for.
func (c *connections) working(conn net.Conn, yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch at, open := c.open[conn]; {
	case yes && at != nil:
		c.waiting.Remove(at)
		c.open[conn] = nil
	case !yes && open && at == nil:
		c.open[conn] = c.waiting.PushBack(conn)
	}
}

func (c *connections) forget(conn net.Conn) {
	if at := c.open[conn]; at != nil {
		c.waiting.Remove(at)
	}
	delete(c.open, conn)
}

// hangUp closes a connection without TLS's closing alert, which could wait for the other end.
func hangUp(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close()
}

// serve lets guard tell which connection is in work, and no browser guess what an answer is.
func (c *connections) serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(connKey{}).(net.Conn)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), openKey{}, inWork{c, conn})))
	})
}

// withConn puts the connection into the context of its requests, for serve.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}
