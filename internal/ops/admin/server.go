// Package admin is the relay's HTTP server: probes, metrics and the API. It changes only what
// operators ask for in the API.
package admin

import (
	"context"
	"crypto/tls"
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
	Listen        string // host:port; port 0 takes a free one
	MetricsListen string // of metrics and probes alone; "": they are on Listen
	Socket        string // path of the Unix socket; "": none
	TLS           TLSFiles
	Tokens        []Token // none: only Socket opens /api

	Version    string
	StartedAt  time.Time
	Metrics    *metrics.Metrics
	Snapshot   func() ops.Snapshot // may be called by several goroutines at once
	Heartbeats []*ops.Heartbeat
	API        API
	Log        *zap.Logger
}

// Server answers /healthz, /readyz, /metrics and /api/v1.
type Server struct {
	cfg         Config
	listener    net.Listener
	metrics     net.Listener // nil: they are on listener
	api, probes http.Handler
	socketEvery time.Duration

	broken   faults // tokens and the socket
	refusals sparing
}

// New listens at once, so that a taken port is known before anything else starts. The error is an
// *event.Stop. Run releases the ports.
func New(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, socketEvery: socketEvery}
	var err error
	if s.listener, err = listen("admin.listen", "CDC_RELAY_ADMIN__LISTEN", cfg.Listen); err != nil {
		return nil, err
	}
	all := s.paths()
	if cfg.MetricsListen != "" {
		if s.metrics, err = listen("admin.metrics_listen", "CDC_RELAY_ADMIN__METRICS_LISTEN", cfg.MetricsListen); err != nil {
			_ = s.listener.Close()
			return nil, err
		}
		delete(all, "/metrics")
	}
	if cfg.TLS.Cert != "" {
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

// Addr is the address it listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

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
	others.Go(func() { serve(s.api, s.listener) })
	if err := <-failed; err != nil {
		return fmt.Errorf("serve admin.listen: %w", err)
	}
	return nil
}
