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
	Listen        string // host:port; port 0 takes a free one; "": none
	MetricsListen string // of metrics and probes alone; "": they are on Listen
	Socket        string // path of the Unix socket; "": none
	TLS           TLSFiles
	Tokens        []Token // none: only Socket opens /api

	Version    string
	StartedAt  time.Time
	Metrics    *metrics.Metrics
	Snapshot   func() ops.Snapshot // may be called by several goroutines at once
	Heartbeats []*ops.Heartbeat
	RecentLog  func() []string // for the status; nil: none is kept
	API        API
	Console    http.Handler // its pages, on Listen alone: they are open, and ask the API; nil: none
	Log        *zap.Logger
}

// Server answers /healthz, /readyz, /metrics and /api/v1.
type Server struct {
	cfg         Config
	listener    net.Listener // nil: admin.listen is ""
	metrics     net.Listener // nil: they are on listener, if there is one
	api, probes http.Handler
	socketEvery time.Duration

	broken   faults // tokens and the socket
	refusals sparing

	history                 ops.History
	listeners               listeners
	lookEvery, recheckEvery time.Duration
}

// New listens at once, so that a taken port is known before anything else starts. The error is an
// *event.Stop. Run releases the ports.
func New(cfg Config) (*Server, error) {
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

// Addr is the address it listens on; "" without admin.listen.
func (s *Server) Addr() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Run serves until ctx is done, and returns nil then.
func (s *Server) Run(ctx context.Context) error {
	for i := range s.cfg.Tokens { // a broken one is known before it is needed
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

// writeBound is how long an answer may take, from the request on.
const writeBound = 30 * time.Second

// newHTTP is a server of its own for one listener, with bounds of its own.
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

// closeTimeout is how long requests may take to end after ctx is done.
const closeTimeout = time.Second

// serve serves one listener until ctx is done, and returns nil then.
func (s *Server) serve(ctx context.Context, server *http.Server, l net.Listener) error {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if server.Shutdown(within) != nil {
			_ = server.Close() //nolint:errcheck // requests that do not end are cut
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

// patient accepts again after an error, such as no memory of the kernel: delivery does not end for
// it.
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

// maxConnections is how many a listener has open at once: file descriptors and memory are the
// relay's, too.
const maxConnections = 256

// connections closes the connection that has waited longest without a request in work, when one too
// many is open. To refuse the newest instead would let a client with many idle connections keep out
// the probes, upon which an orchestrator restarts a relay that works. A request is in work while it
// has a place in a room: a client that sends it slowly, or reads its answer slowly, is idle.
type connections struct {
	mu      sync.Mutex
	open    map[net.Conn]*list.Element // nil: a request is in work
	waiting list.List                  // of net.Conn, the longest first
}

type connKey struct{}

type openKey struct{}

// inWork is what a request holds on to while it is in work.
type inWork struct {
	of   *connections
	conn net.Conn
}

// state is a http.Server's ConnState.
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
	case http.StateIdle: // its answer is sent
		if at, open := c.open[conn]; open && at == nil {
			c.open[conn] = c.waiting.PushBack(conn)
		}
	case http.StateClosed, http.StateHijacked:
		c.forget(conn)
	default: // working knows
	}
}

// working keeps a connection while its request has a place in a room, of which there are fewer than
// maxConnections. It is given up before the answer is sent, and before net/http reads the rest of a
// body that nobody asked for.
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

// hangUp closes without TLS's farewell, which could wait for the other end.
func hangUp(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close()
}

// serve lets guard tell which connection is in work.
func (c *connections) serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(connKey{}).(net.Conn)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), openKey{}, inWork{c, conn})))
	})
}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}
