// The API of deferred events, dead letters, requests and jobs: routes and handlers.

package admin

import (
	"context"
	_ "embed"
	"net/http"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// API is what the API shows of deferred rows and dead letters, and does about them.
type API struct {
	Operators    *dlq.Admin
	Outboxes     []dlq.Outbox // where an event's row is looked for
	ShowPayloads bool

	Check func(ctx context.Context) (findings any, err error) // what `check` asks; one at a time
}

// apiBound is how long the database may take for one request of the API.
const apiBound = 10 * time.Second

// api answers the routes about deferred events and dead letters. It uses two connections of the
// relay's pool at most, so that many requests cannot starve the relay: one that reads, and one that
// changes something, so that a read does not wait for a bulk change.
type api struct {
	*Server
	reading, changing chan struct{}
	checks            checks
}

func newAPI(s *Server) *api {
	return &api{Server: s, reading: make(chan struct{}, 1), changing: make(chan struct{}, 1), checks: checks{turn: make(chan struct{}, 1)}}
}

//go:embed openapi.json
var openAPI []byte

// routes are the paths of the API with what answers each method. A path that only reads is good
// with the read token.
func (a *api) routes() map[string]methods {
	return map[string]methods{
		"/api/v1/openapi.json":     {http.MethodGet: a.openAPI},
		"/api/v1/check":            {http.MethodGet: a.check},
		"/api/v1/events/{id}":      {http.MethodGet: a.handle(a.event)},
		"/api/v1/dead-letters":     {http.MethodGet: a.list(dlq.DeadLetters)},
		"/api/v1/deferred":         {http.MethodGet: a.list(dlq.Deferred)},
		"/api/v1/jobs":             {http.MethodGet: a.handle(a.jobs)},
		"/api/v1/requests/{n}":     {http.MethodGet: a.ofNumber(a.request), http.MethodDelete: a.ofNumber(a.withdraw)},
		"/api/v1/jobs/{n}":         {http.MethodGet: a.ofNumber(a.job), http.MethodDelete: a.ofNumber(a.cancel)},
		"/api/v1/deferred/{n}":     {http.MethodGet: a.show(dlq.Deferred)},
		"/api/v1/dead-letters/{n}": {http.MethodGet: a.show(dlq.DeadLetters)},

		"/api/v1/dead-letters/{n}/replay":  {http.MethodPost: a.ask(dlq.Replay)},
		"/api/v1/dead-letters/{n}/discard": {http.MethodPost: a.ask(dlq.Discard)},
		"/api/v1/dead-letters/{n}/redact":  {http.MethodPost: a.ask(dlq.Redact)},
		"/api/v1/deferred/{n}/retry":       {http.MethodPost: a.ask(dlq.Retry)},
		"/api/v1/deferred/{n}/dead-letter": {http.MethodPost: a.ask(dlq.ToDeadLetter)},
		"/api/v1/dead-letters/replay":      {http.MethodPost: a.bulk(dlq.Replay)},
		"/api/v1/dead-letters/discard":     {http.MethodPost: a.bulk(dlq.Discard)},
		"/api/v1/dead-letters/purge":       {http.MethodPost: a.bulk(dlq.Purge)},
	}
}

// handler answers a request with a status and a body, or with an error. It may set headers.
type handler func(ctx context.Context, w http.ResponseWriter, r *http.Request) (status int, body any, err error)

// do calls a handler when it is its turn, and writes what it says.
func (a *api) do(w http.ResponseWriter, r *http.Request, h handler) {
	if a.cfg.API.Operators == nil {
		writeProblem(w, http.StatusServiceUnavailable, "the relay has no database yet")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), apiBound)
	defer cancel()
	turn := a.reading
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		turn = a.changing
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		writeProblem(w, http.StatusServiceUnavailable, "other requests of the API take long; try again")
		return
	}
	status, body, err := h(ctx, w, r)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, status, body)
}

func (a *api) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI) //nolint:errcheck // the client has gone
}

// handle is a handler as net/http wants it.
func (a *api) handle(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { a.do(w, r, h) }
}

// ofNumber answers with what is known of the number in the path.
func (a *api) ofNumber(find func(ctx context.Context, r *http.Request, n int64) (any, error)) http.HandlerFunc {
	return a.handle(func(ctx context.Context, _ http.ResponseWriter, r *http.Request) (int, any, error) {
		n, err := rowNumber(r)
		if err != nil {
			return 0, nil, err
		}
		body, err := find(ctx, r, n)
		return http.StatusOK, body, err
	})
}

func (a *api) event(ctx context.Context, _ http.ResponseWriter, r *http.Request) (int, any, error) {
	ask := func(context.Context) dlq.Relay {
		snapshot := a.cfg.Snapshot()
		if snapshot.Phase != ops.Streaming {
			return dlq.Relay{}
		}
		return dlq.Relay{Streaming: true, InFlight: snapshot.InFlightEvents + snapshot.WaitingEvents, Settled: snapshot.Settled}
	}
	e, err := a.cfg.API.Operators.Event(ctx, r.PathValue("id"), a.cfg.API.Outboxes, ask)
	return http.StatusOK, e, err
}

func (a *api) list(of *dlq.Table) http.HandlerFunc {
	return a.handle(func(ctx context.Context, _ http.ResponseWriter, r *http.Request) (int, any, error) {
		q, err := readQuery(r.URL.Query())
		if err != nil {
			return 0, nil, err
		}
		f, err := q.Filter(ctx, a.cfg.API.Operators)
		if err != nil {
			return 0, nil, err
		}
		page, err := a.cfg.API.Operators.List(ctx, of, f, q.Cursor, q.Limit)
		return http.StatusOK, page, err
	})
}

func (a *api) show(of *dlq.Table) http.HandlerFunc {
	return a.ofNumber(func(ctx context.Context, _ *http.Request, n int64) (any, error) {
		return a.cfg.API.Operators.Show(ctx, of, n, a.cfg.API.ShowPayloads)
	})
}

func (a *api) jobs(ctx context.Context, _ http.ResponseWriter, _ *http.Request) (int, any, error) {
	list, err := a.cfg.API.Operators.Jobs(ctx, 100)
	return http.StatusOK, map[string]any{"items": append([]dlq.Job{}, list...)}, err
}

func (a *api) job(ctx context.Context, _ *http.Request, n int64) (any, error) {
	return a.cfg.API.Operators.Job(ctx, n)
}

func (a *api) cancel(ctx context.Context, r *http.Request, n int64) (any, error) {
	why, err := readReason(r)
	if err != nil {
		return nil, err
	}
	return a.cfg.API.Operators.Cancel(ctx, n, dlq.Requester{Who: callerName(r), Why: why})
}

func (a *api) request(ctx context.Context, _ *http.Request, n int64) (any, error) {
	return a.cfg.API.Operators.RequestByID(ctx, n)
}

func (a *api) withdraw(ctx context.Context, r *http.Request, n int64) (any, error) {
	return a.cfg.API.Operators.Withdraw(ctx, n, dlq.Requester{Who: callerName(r)})
}

func (a *api) ask(kind dlq.Kind) http.HandlerFunc {
	return a.handle(func(ctx context.Context, w http.ResponseWriter, r *http.Request) (int, any, error) {
		n, err := rowNumber(r)
		if err != nil {
			return 0, nil, err
		}
		body, err := readAsk(r, kind)
		if err != nil {
			return 0, nil, err
		}
		route, err := body.route(a.cfg.Snapshot().Sink.Kind)
		if err != nil {
			return 0, nil, err
		}
		q, err := a.cfg.API.Operators.Request(ctx, dlq.Action{Kind: kind, N: n, Route: route, By: dlq.Requester{Who: callerName(r), Why: body.Reason}})
		if err == nil {
			w.Header().Set("Location", "/api/v1/requests/"+strconv.FormatInt(q.ID, 10))
		}
		return http.StatusAccepted, q, err
	})
}

func (a *api) bulk(kind dlq.Kind) http.HandlerFunc {
	return a.handle(func(ctx context.Context, w http.ResponseWriter, r *http.Request) (int, any, error) {
		body, err := readBulk(r, kind)
		if err != nil {
			return 0, nil, err
		}
		b := dlq.Bulk{Kind: kind, Rate: body.Rate, By: dlq.Requester{Who: callerName(r), Why: body.Reason}}
		if b.Route, err = body.route(a.cfg.Snapshot().Sink.Kind); err != nil {
			return 0, nil, err
		}
		if b.Filter, err = body.Filter(ctx, a.cfg.API.Operators); err != nil {
			return 0, nil, err
		}
		if body.DryRun {
			matched, err := a.cfg.API.Operators.Match(ctx, b)
			return http.StatusOK, map[string]any{"dry_run": true, "matched": matched}, err
		}
		job, err := a.cfg.API.Operators.Start(ctx, b)
		if err != nil || job.ID == 0 {
			return http.StatusOK, map[string]any{"matched": 0}, err
		}
		w.Header().Set("Location", "/api/v1/jobs/"+strconv.FormatInt(job.ID, 10))
		return http.StatusAccepted, job, nil
	})
}

func rowNumber(r *http.Request) (int64, error) {
	n, err := strconv.ParseInt(r.PathValue("n"), 10, 64)
	if err != nil || n <= 0 {
		return 0, &badRequest{"there is no number " + strconv.Quote(r.PathValue("n"))}
	}
	return n, nil
}
