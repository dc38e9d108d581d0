// Which path is answered by what, for whom, and how many at once.

package admin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/printable"
)

// methods is what answers a path, by method.
type methods map[string]http.HandlerFunc

// probePaths are answered on every listener; metrics too, unless they have one of their own.
func (s *Server) probePaths() map[string]methods {
	return map[string]methods{
		"/healthz": {http.MethodGet: s.healthz},
		"/readyz":  {http.MethodGet: s.readyz},
		"/metrics": {http.MethodGet: s.cfg.Metrics.Handler().ServeHTTP},
	}
}

// paths are all that is answered. Those under /api need a caller: see guard.
func (s *Server) paths() map[string]methods {
	all := s.probePaths()
	all["/api/v1/status"] = methods{http.MethodGet: s.status}
	all["/api/v1/slots"] = methods{http.MethodGet: s.slots}
	api := newAPI(s)
	maps.Copy(all, api.routes())
	maps.Copy(all, api.consoleRoutes())
	return all
}

// routes answers the paths.
func (s *Server) routes(paths map[string]methods) http.Handler {
	mux := http.NewServeMux()
	rooms := newRooms()
	for path, by := range paths {
		mux.HandleFunc(path, s.guard(path, by, rooms))
	}
	notFound := func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, http.StatusNotFound, "there is no "+r.URL.Path)
	}
	mux.HandleFunc("/api/", s.authorize(func(*http.Request) rights { return reader }, notFound))
	mux.HandleFunc("/", notFound)
	return mux
}

// withConsole answers the pages of the console beside the API.
func (s *Server) withConsole(api http.Handler) http.Handler {
	if s.cfg.Console == nil {
		return api
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", s.cfg.Console)
	mux.Handle("GET /console/", s.cfg.Console)
	mux.Handle("/", api)
	return mux
}

// rooms bound the requests in work. They are apart, so that reads do not wait for changes, nor
// probes for either.
// In large an answer of more than largeAnswer is sent: many that are read slowly would be more
// memory than the relay has.
type rooms struct{ probes, metrics, reads, changes, large room }

const largeAnswer = 1 << 20

// room is as many requests at once as it has places.
type room chan struct{}

func newRooms() rooms {
	return rooms{
		probes: make(room, 32), metrics: make(room, 4), reads: make(room, 16), changes: make(room, 16), large: make(room, 1),
	}
}

func (r *rooms) of(path, method string) room {
	switch {
	case path == "/metrics":
		return r.metrics
	case !strings.HasPrefix(path, "/api/"):
		return r.probes
	case method == http.MethodGet, method == http.MethodHead:
		return r.reads
	}
	return r.changes
}

// guard lets a request through to its method: with the rights that it needs, in a place of its
// room, and as JSON when it has a body.
func (s *Server) guard(path string, by methods, rooms rooms) http.HandlerFunc {
	next := func(w http.ResponseWriter, r *http.Request) {
		h := by[r.Method]
		if r.Method == http.MethodHead {
			h = by[http.MethodGet]
		}
		switch {
		case h == nil:
			by.refuse(w, path)
			return
		case !isJSON(r):
			writeProblem(w, http.StatusUnsupportedMediaType, "send the header Content-Type: application/json")
			return
		case path == streamPath: // it keeps no place, and is not held until it is whole
			h(w, r)
			return
		}
		place := rooms.of(path, r.Method)
		select {
		case place <- struct{}{}:
			page := held{header: w.Header()}
			page.fill(h, r, place)
			page.sendTo(w, rooms.large)
		default:
			w.Header().Set("Retry-After", "1")
			writeProblem(w, http.StatusServiceUnavailable, "too many requests at once; try again")
		}
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

// held is an answer that is not sent before it is whole: a client that reads slowly keeps no place
// from the others, and Prometheus not from its metrics.
type held struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (h *held) Header() http.Header               { return h.header }
func (h *held) WriteHeader(code int)              { h.code = code }
func (h *held) Write(content []byte) (int, error) { return h.body.Write(content) }

// fill lets next answer, in a place that is given up when it has.
func (h *held) fill(next http.HandlerFunc, r *http.Request, place room) {
	defer func() { <-place }()
	if in, ok := r.Context().Value(openKey{}).(inWork); ok {
		in.of.working(in.conn, true)
		defer in.of.working(in.conn, false)
	}
	next(h, r)
}

func (h *held) sendTo(w http.ResponseWriter, large room) {
	if h.body.Len() > largeAnswer {
		select {
		case large <- struct{}{}:
			defer func() { <-large }()
		default:
			h.body = bytes.Buffer{} // memory is what there is too little of
			w.Header().Set("Retry-After", "1")
			writeProblem(w, http.StatusServiceUnavailable, "another large answer is being sent; try again")
			return
		}
	}
	w.WriteHeader(cmp.Or(h.code, http.StatusOK))
	_, _ = w.Write(h.body.Bytes()) //nolint:errcheck // the client has gone
}

// isJSON is false for a change that a form of a web page could send as well.
func isJSON(r *http.Request) bool {
	if r.Method != http.MethodPost && (r.Method != http.MethodDelete || r.ContentLength == 0) {
		return true
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// refuse answers a request with a method that the path does not have.
func (m methods) refuse(w http.ResponseWriter, path string) {
	w.Header().Set("Allow", strings.Join(m.allowed(), ", "))
	what := " takes " + strings.Join(m.allowed(), ", ")
	if m[http.MethodGet] != nil && len(m) == 1 {
		what = " is only read"
	}
	writeProblem(w, http.StatusMethodNotAllowed, path+what)
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

// problem is an error answer in the form of RFC 9457.
type problem struct {
	Type   string `json:"type"` // about:blank: Title says what Status says
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	writeBody(w, status, problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	writeBody(w, status, body)
}

// writeBody writes what a terminal may show as it comes: curl prints it raw.
func writeBody(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(printable.JSON(w)).Encode(body) //nolint:errcheck // the client has gone
}

// problemStatus is the status of an error that is the request's own; 0 for any other.
func problemStatus(err error) int {
	var bad *dlq.BadInput
	var body *badRequest
	var missing *dlq.NotFound
	var none *notThere
	var not *dlq.NotNow
	var busy *dlq.Busy
	switch {
	case errors.As(err, &bad), errors.As(err, &body):
		return http.StatusBadRequest
	case errors.As(err, &missing), errors.As(err, &none):
		return http.StatusNotFound
	case errors.As(err, &not), errors.As(err, &busy):
		return http.StatusConflict
	}
	return 0
}

func writeError(w http.ResponseWriter, err error) {
	var done *dlq.Done
	status := problemStatus(err)
	switch {
	case errors.As(err, &done):
		writeJSON(w, http.StatusOK, map[string]string{"note": done.Error()})
	case status != 0:
		writeProblem(w, status, err.Error())
	default:
		writeProblem(w, http.StatusServiceUnavailable, "the database: "+err.Error())
	}
}

// What the relay says of itself: the probes, a word for everybody and details for those who may
// read, the status and the slots.

// Health is what /healthz answers.
func (s *Server) Health() ops.Health { return ops.HealthOf(s.cfg.Heartbeats, time.Now()) }

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	h := s.Health()
	var body any = struct {
		Healthy bool `json:"healthy"`
	}{h.Healthy}
	if s.knows(r) {
		body = h
	}
	writeJSON(w, okOr503(h.Healthy), body)
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	role := r.URL.Query().Get("role")
	if role != "" && role != ops.RoleLeader {
		writeProblem(w, http.StatusBadRequest, "role is leader, or left out")
		return
	}
	snapshot := s.cfg.Snapshot()
	ready := snapshot.Readiness(role == ops.RoleLeader)
	var body any = struct {
		Ready bool   `json:"ready"`
		Role  string `json:"role"`
	}{ready.Ready, ready.Role}
	if s.knows(r) {
		body = ready
	}
	writeJSON(w, okOr503(ready.Ready), body)
}

func okOr503(ok bool) int {
	if ok {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Status())
}

// Status is what /api/v1/status answers.
func (s *Server) Status() ops.Status {
	snapshot, now := s.cfg.Snapshot(), time.Now().UTC()
	status := snapshot.Status(s.cfg.Metrics.Rates(now), s.cfg.Metrics.Totals(), now)
	status.Version, status.StartedAt, status.Log = s.cfg.Version, s.cfg.StartedAt.UTC(), []string{}
	if s.cfg.RecentLog != nil {
		status.Log = s.cfg.RecentLog()
	}
	return status
}

func (s *Server) slots(w http.ResponseWriter, _ *http.Request) {
	snapshot := s.cfg.Snapshot()
	items := snapshot.Slots(time.Now())
	writeJSON(w, http.StatusOK, ops.Slots{Items: items, Total: max(len(items), 1+snapshot.OtherTotal)})
}
