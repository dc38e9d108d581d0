// Package admin is the relay's HTTP server: probes, metrics and the API. It changes only what
// operators ask for in the API.
package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
)

// Config is what the admin server needs.
type Config struct {
	Listen           string      // host:port; port 0 takes a free one
	Token, ReadToken TokenReader // either is good for reading; with neither, /api is open

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
	cfg      Config
	listener net.Listener
	http     *http.Server
}

// New listens at once, so that a taken port is known before anything else starts. The error is an
// *event.Stop. Run or Close releases the port.
func New(cfg Config) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", cfg.Listen)
	if err != nil {
		return nil, &event.Stop{
			Code: event.ExitFailure, Reason: "admin_listen", What: "listen on admin.listen " + cfg.Listen, Err: err,
			Fix: "end what uses the port, or set admin.listen (CDC_RELAY_ADMIN__LISTEN) to another host:port",
		}
	}
	s := &Server{cfg: cfg, listener: listener}
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      writeBound,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          zap.NewStdLog(cfg.Log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))),
	}
	return s, nil
}

// Addr is the address it listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// writeBound is how long an answer may take, from the request on.
const writeBound = 30 * time.Second

// closeTimeout is how long requests may take to end after ctx is done.
const closeTimeout = time.Second

// Run serves until ctx is done, and returns nil then.
func (s *Server) Run(ctx context.Context) error {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if s.http.Shutdown(within) != nil {
			_ = s.http.Close() //nolint:errcheck // requests that do not end are cut
		}
	})
	err := s.http.Serve(s.listener)
	if !stop() {
		<-closed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve admin.listen: %w", err)
}

// methods is what answers a path, by method.
type methods map[string]http.HandlerFunc

// paths are all that is answered. Those under /api need a token: see guard.
func (s *Server) paths() map[string]methods {
	all := map[string]methods{
		"/healthz":       {http.MethodGet: s.healthz},
		"/readyz":        {http.MethodGet: s.readyz},
		"/metrics":       {http.MethodGet: s.cfg.Metrics.Handler().ServeHTTP},
		"/api/v1/status": {http.MethodGet: s.status},
		"/api/v1/slots":  {http.MethodGet: s.slots},
	}
	maps.Copy(all, newAPI(s).routes())
	return all
}

// routes is the whole of the server. A browser's request of another site changes nothing.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for path, by := range s.paths() {
		mux.HandleFunc(path, s.guard(path, by))
	}
	notFound := func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, http.StatusNotFound, "there is no "+r.URL.Path)
	}
	mux.HandleFunc("/api/", s.authorize(func(*http.Request) rights { return reader }, notFound))
	mux.HandleFunc("/", notFound)
	sites := http.NewCrossOriginProtection()
	sites.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, http.StatusForbidden, "another site's page asks for this")
	}))
	return sites.Handler(mux)
}

// allowed lists the methods of a path, for the header Allow.
func (m methods) allowed() []string {
	var list []string
	for method := range m {
		list = append(list, method)
		if method == http.MethodGet {
			list = append(list, http.MethodHead)
		}
	}
	slices.Sort(list)
	return list
}

// guard lets a request through to its method: one that reads with either token, one that changes
// something with admin.token.
func (s *Server) guard(path string, by methods) http.HandlerFunc {
	next := func(w http.ResponseWriter, r *http.Request) {
		h := by[r.Method]
		if r.Method == http.MethodHead {
			h = by[http.MethodGet]
		}
		if h == nil {
			w.Header().Set("Allow", strings.Join(by.allowed(), ", "))
			what := " takes " + strings.Join(by.allowed(), ", ")
			if by[http.MethodGet] != nil && len(by) == 1 {
				what = " is only read"
			}
			writeProblem(w, http.StatusMethodNotAllowed, path+what)
			return
		}
		h(w, r)
	}
	if !strings.HasPrefix(path, "/api/") {
		return next
	}
	return s.authorize(func(r *http.Request) rights {
		if by[r.Method] == nil || r.Method == http.MethodGet {
			return reader
		}
		return operator
	}, next)
}

// Health is what /healthz answers.
func (s *Server) Health() ops.Health { return ops.HealthOf(s.cfg.Heartbeats, time.Now()) }

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	h := s.Health()
	writeJSON(w, okOr503(h.Healthy), h)
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	role := r.URL.Query().Get("role")
	if role != "" && role != ops.RoleLeader {
		writeProblem(w, http.StatusBadRequest, "role is leader, or left out")
		return
	}
	snapshot := s.cfg.Snapshot()
	ready := snapshot.Readiness(role == ops.RoleLeader)
	writeJSON(w, okOr503(ready.Ready), ready)
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Status())
}

// Status is what /api/v1/status answers.
func (s *Server) Status() ops.Status {
	snapshot, now := s.cfg.Snapshot(), time.Now().UTC()
	status := snapshot.Status(s.cfg.Metrics.Rates(now), s.cfg.Metrics.Totals(), now)
	status.Version, status.StartedAt = s.cfg.Version, s.cfg.StartedAt.UTC()
	return status
}

func (s *Server) slots(w http.ResponseWriter, _ *http.Request) {
	snapshot := s.cfg.Snapshot()
	items := snapshot.Slots(time.Now())
	writeJSON(w, http.StatusOK, ops.Slots{Items: items, Total: max(len(items), 1+snapshot.OtherTotal)})
}

func okOr503(ok bool) int {
	if ok {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}
