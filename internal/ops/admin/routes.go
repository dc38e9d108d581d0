// Which handler answers a path, who may ask, and how many requests are answered at once.

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

// methods are the handlers of a path by method.
type methods map[string]http.HandlerFunc

// probePaths returns the handlers that every TCP listener has: probes and metrics. New removes the
// metrics from admin.listen when they have a listener of their own.
func (s *Server) probePaths() map[string]methods {
	return map[string]methods{
		"/healthz": {http.MethodGet: s.healthz},
		"/readyz":  {http.MethodGet: s.readyz},
		"/metrics": {http.MethodGet: s.cfg.Metrics.Handler().ServeHTTP},
	}
}

// paths returns all handlers: those of the probes and the API. guard asks for a caller for paths
// below /api.
func (s *Server) paths() map[string]methods {
	all := s.probePaths()
	all["/api/v1/status"] = methods{http.MethodGet: s.status}
	all["/api/v1/slots"] = methods{http.MethodGet: s.slots}
	api := newAPI(s)
	maps.Copy(all, api.routes())
	maps.Copy(all, api.consoleRoutes())
	return all
}

// routes makes the server's handler of paths.
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

// withConsole adds the console's pages to the API. They need no token: see Config.Console.
func (s *Server) withConsole(api http.Handler) http.Handler {
	if s.cfg.Console == nil {
		return api
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", s.cfg.Console)
	mux.Handle("GET /console", s.cfg.Console)
	mux.Handle("GET /console/", s.cfg.Console)
	mux.Handle("/", api)
	return mux
}

// rooms bound how many requests are in work. Each kind has a room of its own, so that reads do not
// wait for changes, and neither probes nor what is known without the database waits for reads,
// which wait until their time is over while PostgreSQL does not answer. A place in large is needed
// to send an answer above largeAnswer: several large answers to clients that read slowly would need
// more memory than the relay has.
type rooms struct{ probes, metrics, known, reads, changes, large room }

const largeAnswer = 1 << 20

// room has as many places as requests may be in work at once.
type room chan struct{}

func newRooms() rooms {
	return rooms{
		probes: make(room, 32), metrics: make(room, 4), known: make(room, 16), reads: make(room, 16), changes: make(room, 16), large: make(room, 1),
	}
}

// knownPaths are answered from memory.
var knownPaths = []string{"/api/v1/status", "/api/v1/slots", "/api/v1/history", "/api/v1/config", "/api/v1/openapi.json"}

func (r *rooms) of(path, method string) room {
	switch {
	case path == "/metrics":
		return r.metrics
	case !strings.HasPrefix(path, "/api/"):
		return r.probes
	case slices.Contains(knownPaths, path):
		return r.known
	case method == http.MethodGet, method == http.MethodHead:
		return r.reads
	}
	return r.changes
}

// guard wraps the methods of a path. It refuses a method that the path does not have, a change that
// is no JSON, a caller without the right, and a request for which its room has no place.
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
		case path == streamPath: // the stream takes no place, and is sent while it is made
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

// held collects an answer until it is whole and sends it then. So a client that reads slowly does
// not keep its place in a room, and cannot keep Prometheus from its metrics.
type held struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (h *held) Header() http.Header               { return h.header }
func (h *held) WriteHeader(code int)              { h.code = code }
func (h *held) Write(content []byte) (int, error) { return h.body.Write(content) }

// fill lets next write the answer, and gives up the place in the room after that.
func (h *held) fill(next http.HandlerFunc, r *http.Request, place room) {
	defer func() { <-place }()
	if in, ok := r.Context().Value(openKey{}).(inWork); ok {
		in.of.working(in.conn, true)
		defer in.of.working(in.conn, false)
	}
	next(h, r)
}

// sendTo sends the answer. It sends one above largeAnswer only while no other such answer is being
// sent.
func (h *held) sendTo(w http.ResponseWriter, large room) {
	if h.body.Len() > largeAnswer {
		select {
		case large <- struct{}{}:
			defer func() { <-large }()
		default:
			h.body = bytes.Buffer{} // memory is what is short
			w.Header().Set("Retry-After", "1")
			writeProblem(w, http.StatusServiceUnavailable, "another large answer is being sent; try again")
			return
		}
	}
	w.WriteHeader(cmp.Or(h.code, http.StatusOK))
	_, _ = w.Write(h.body.Bytes()) //nolint:errcheck // the client has gone
}

// isJSON reports whether a request that needs it has the content type of JSON. A form of a web page
// cannot send that type, so a page of another site cannot make a browser change something.
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
	Type   string `json:"type"` // always about:blank, which means that Title is the text of Status
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

// writeBody writes JSON. It escapes characters that a terminal would obey, because curl prints an
// answer as it comes.
func writeBody(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(printable.JSON(w)).Encode(body) //nolint:errcheck // the client has gone
}

// problemStatus returns the status of an error that the request itself has caused, and 0 for any
// other error.
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

// writeError answers with an error. A change that was done before is no error and gets a note.
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

// The answers about the relay itself: the probes, the status and the slots. A probe answers
// everybody with one word, and callers who may read with the details.

// Health returns what /healthz answers to a caller who may read.
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

// Status returns what /api/v1/status answers.
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
