// The routes of the API about events, dead letters, deferred events, requests and jobs: what each
// takes, and whom it asks.

package admin

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

// API is what the routes of the API need of the relay.
type API struct {
	Operators    *dlq.Admin
	Outboxes     []dlq.Outbox // the tables in which the row of an event may be
	ShowPayloads bool

	// what `check` does; called once at a time
	Check func(ctx context.Context) (findings any, err error)

	Config      func() any // the effective configuration without secrets, as a list
	CountResend func(ctx context.Context, r *dlq.Resend, dryRun bool) (Counted, error)
}

// apiBound is how long the database may take for one request of the API.
const apiBound = 10 * time.Second

// api answers the routes that ask the database. It uses at most two connections of the relay's
// pool, so that many requests cannot starve the relay: one for requests that read, and one for
// requests that change something, so that a read does not wait for a bulk change.
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

// routes returns the handlers by path and method. guard lets a token of the role read use GET, and
// asks for the role operate for every other method.
func (a *api) routes() map[string]methods {
	return map[string]methods{
		"/api/v1/openapi.json":     {http.MethodGet: a.openAPI},
		"/api/v1/check":            {http.MethodGet: a.check},
		"/api/v1/events":           {http.MethodGet: a.handle(a.events)},
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

// handler answers a request with a status and a body, or with an error. It may set headers of the
// answer.
type handler func(ctx context.Context, w http.ResponseWriter, r *http.Request) (status int, body any, err error)

// do calls a handler once one of the two connections is free, and writes its answer.
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

// handle makes an http.HandlerFunc of a handler.
func (a *api) handle(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { a.do(w, r, h) }
}

// ofNumber makes a handler that answers with what find returns for the number in the path.
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

// relay returns how far this relay has read, or why it has stopped. The database alone cannot say
// whether an event is still on its way.
func (a *api) relay(context.Context) dlq.Relay {
	snapshot := a.cfg.Snapshot()
	if snapshot.Phase != ops.Streaming {
		if snapshot.Finding != "" {
			return dlq.Relay{Stops: snapshot.Why}
		}
		return dlq.Relay{}
	}
	return dlq.Relay{Streaming: true, InFlight: snapshot.InFlightEvents + snapshot.WaitingEvents, Settled: snapshot.Settled}
}

func (a *api) event(ctx context.Context, _ http.ResponseWriter, r *http.Request) (int, any, error) {
	e, err := a.cfg.API.Operators.Event(ctx, r.PathValue("id"), a.cfg.API.Outboxes, a.relay)
	return http.StatusOK, e, err
}

// eventParameters are the query parameters of a list of events.
var eventParameters = []string{"key", "aggregate", "type", "state", "from", "to", "limit"}

func (a *api) events(ctx context.Context, _ http.ResponseWriter, r *http.Request) (int, any, error) {
	values := r.URL.Query()
	for name := range values {
		if !slices.Contains(eventParameters, name) {
			return 0, nil, &badRequest{"the parameter " + name + " is not known"}
		}
	}
	q, err := readQuery(values)
	if err != nil {
		return 0, nil, err
	}
	f, err := q.Events(q.Limit)
	if err != nil {
		return 0, nil, err
	}
	list, err := a.cfg.API.Operators.Events(ctx, f, a.cfg.API.Outboxes, a.relay)
	return http.StatusOK, list, err
}

func (a *api) list(of *dlq.Table) http.HandlerFunc {
	return a.handle(func(ctx context.Context, _ http.ResponseWriter, r *http.Request) (int, any, error) {
		q, err := readQuery(r.URL.Query())
		if err != nil {
			return 0, nil, err
		}
		if q.Group != nil {
			groups, err := a.groups(ctx, of, q)
			return http.StatusOK, groups, err
		}
		f, err := q.Filter(ctx, a.cfg.API.Operators)
		if err != nil {
			return 0, nil, err
		}
		page, err := a.cfg.API.Operators.List(ctx, of, f, q.Cursor, q.Limit)
		return http.StatusOK, page, err
	})
}

// groups answers a list with the parameter group: the number of rows for each value. It refuses
// other filters than the state, because it counts all rows of a state.
func (a *api) groups(ctx context.Context, of *dlq.Table, q query) (*dlq.Groups, error) {
	f, err := q.Filter(ctx, nil)
	if err == nil {
		err = f.Check(of)
	}
	if err != nil {
		return nil, err
	}
	if q.FilterInput != (dlq.FilterInput{State: q.State}) || q.Cursor != "" || q.limited {
		return nil, &badRequest{"the parameter group counts all rows of a state: leave out the other filters, cursor and limit"}
	}
	return a.cfg.API.Operators.Groups(ctx, of, *q.Group, f.State)
}

func (a *api) show(of *dlq.Table) http.HandlerFunc {
	return a.ofNumber(func(ctx context.Context, _ *http.Request, n int64) (any, error) {
		return a.cfg.API.Operators.Show(ctx, of, n, a.cfg.API.ShowPayloads)
	})
}

// maxJobs is how many jobs are listed: those that run are counted at each request.
const maxJobs = 100

func (a *api) jobs(ctx context.Context, _ http.ResponseWriter, r *http.Request) (int, any, error) {
	limit := maxJobs
	for name, given := range r.URL.Query() {
		var err error
		if limit, err = strconv.Atoi(given[0]); name != "limit" || len(given) > 1 || err != nil || limit < 1 || limit > maxJobs {
			return 0, nil, &badRequest{fmt.Sprintf("the parameter %s is not known, or not one number from 1 to %d", name, maxJobs)}
		}
	}
	list, err := a.cfg.API.Operators.Jobs(ctx, limit)
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
		return jobStarted(w, job), job, nil
	})
}

func rowNumber(r *http.Request) (int64, error) {
	n, err := strconv.ParseInt(r.PathValue("n"), 10, 64)
	if err != nil || n <= 0 {
		return 0, &badRequest{"there is no number " + strconv.Quote(r.PathValue("n"))}
	}
	return n, nil
}

// One check at a time asks the database and the broker, and requests within checkFresh get the same
// answer, so that frequent requests cannot keep either busy. checkTurn, checkBound and the time
// that a check takes to close its connections are together less than writeBound.
const (
	checkFresh = 10 * time.Second
	checkBound = 20 * time.Second
	checkTurn  = 5 * time.Second
)

// findings are the answer of a check, with its time.
type findings struct {
	CheckedAt time.Time `json:"checked_at"`
	Findings  any       `json:"findings"`
}

// checks keeps the newest answer of a check, and lets one check run at a time.
type checks struct {
	turn   chan struct{} // of capacity 1: who is in it runs the check and owns newest
	newest findings
}

func (a *api) check(w http.ResponseWriter, r *http.Request) {
	if a.cfg.API.Check == nil {
		writeProblem(w, http.StatusServiceUnavailable, "there is nothing to check")
		return
	}
	wait, cancel := context.WithTimeout(r.Context(), checkTurn)
	defer cancel()
	select {
	case a.checks.turn <- struct{}{}:
		defer func() { <-a.checks.turn }()
	case <-wait.Done():
		w.Header().Set("Retry-After", "10")
		writeProblem(w, http.StatusServiceUnavailable, "another check is under way and takes long; try again")
		return
	}
	if time.Since(a.checks.newest.CheckedAt) >= checkFresh {
		// A client that hangs up does not end the check: if it did, the client could start another
		// one at once.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), checkBound)
		defer cancel()
		found, err := a.cfg.API.Check(ctx)
		if err != nil {
			writeProblem(w, http.StatusServiceUnavailable, "check: "+err.Error())
			return
		}
		a.checks.newest = findings{time.Now().UTC(), found}
	}
	writeJSON(w, http.StatusOK, a.checks.newest)
}

// badRequest is a request that cannot be understood.
type badRequest struct{ what string }

func (e *badRequest) Error() string { return e.what }

// query is the parameters of a list.
type query struct {
	dlq.FilterInput
	Cursor  string
	Limit   int
	limited bool    // Limit was given
	Group   *string // the column to count rows by; nil means that rows are listed
}

// defaultLimit is the number of rows in a page when the request has no limit.
const defaultLimit = 50

// readQuery reads the parameters of a list. It refuses a parameter that is unknown or given twice:
// a list whose filter is misspelt would otherwise have every row.
func readQuery(values url.Values) (query, error) {
	q := query{Limit: defaultLimit}
	for name, given := range values {
		var err error
		switch {
		case len(given) > 1:
			err = errors.New("is given twice")
		case name == "cursor":
			q.Cursor = given[0]
		case name == "group":
			q.Group = &given[0]
		case name == "limit":
			q.limited = true
			if q.Limit, err = strconv.Atoi(given[0]); err != nil {
				err = fmt.Errorf("is %q, want a number", given[0])
			}
		default:
			known, bad := q.Set(name, given[0])
			if bad != nil {
				return q, bad
			}
			if !known {
				err = errors.New("is not known")
			}
		}
		if err != nil {
			return q, &badRequest{"the parameter " + name + " " + err.Error()}
		}
	}
	return q, nil
}

// routeInput is the other destination that a replay may have: the parts of a route that the body
// gives, by their keys.
type routeInput map[string]string

// route makes the route of the parts. It refuses parts that belong to another sink than the
// configured one.
func (t routeInput) route(kind string) (r event.Route, err error) {
	if len(t) == 0 {
		return r, nil
	}
	d := drivers.ByName(kind)
	if other := drivers.OwnerOfForeignPart(d, t); other != nil {
		var keys []string
		for _, p := range other.Route {
			keys = append(keys, p.Key)
		}
		is := " is "
		if len(keys) > 1 {
			is = " are "
		}
		return r, &badRequest{strings.Join(keys, " and ") + is + other.Broker + "'s, and sink." + other.Name + " is not configured"}
	}
	return d.RouteOf(t), nil
}

// notForReplay refuses the parts of a route in a request that does not ask for a replay.
func (t routeInput) notForReplay(kind dlq.Kind) error {
	if kind == dlq.Replay || len(t) == 0 {
		return nil
	}
	keys := drivers.PartKeys()
	last := len(keys) - 1
	return &badRequest{strings.Join(keys[:last], ", ") + " and " + keys[last] + " are for a replay"}
}

// readAction reads the body of a change. It separates the parts of a route, whose names depend on
// the sinks, from the rest, which it decodes into the struct.
func readAction(r *http.Request, into any) (routeInput, error) {
	var given map[string]json.RawMessage
	if err := readBody(r, &given); err != nil {
		return nil, err
	}
	parts := routeInput{}
	for name, value := range given {
		key := strings.ToLower(name)
		if drivers.ByRoutePart(key) == nil {
			continue
		}
		delete(given, name)
		var text *string
		if err := json.Unmarshal(value, &text); err != nil {
			return nil, &badRequest{"the body: " + name + ": " + err.Error()}
		}
		if text != nil {
			parts[key] = *text
		}
	}
	rest, err := json.Marshal(given)
	if err != nil {
		return nil, err
	}
	return parts, decode(bytes.NewReader(rest), into)
}

// askBody is the body of a change of one row. A request may leave it out.
type askBody struct {
	routeInput `json:"-"`
	Reason     string `json:"reason"`
}

func readAsk(r *http.Request, kind dlq.Kind) (*askBody, error) {
	var b askBody
	parts, err := readAction(r, &b)
	if err != nil {
		return nil, err
	}
	b.routeInput = parts
	return &b, b.notForReplay(kind)
}

// readReason reads why something is cancelled: from the body, or from the parameter reason, because
// the body of a DELETE may be lost on the way.
func readReason(r *http.Request) (string, error) {
	var b struct {
		Reason string `json:"reason"`
	}
	if err := readBody(r, &b); err != nil {
		return "", err
	}
	for name, given := range r.URL.Query() {
		switch {
		case name != "reason":
			return "", &badRequest{"the parameter " + name + " is not known"}
		case len(given) > 1 || b.Reason != "":
			return "", &badRequest{"the reason is given twice"}
		}
		b.Reason = given[0]
	}
	return b.Reason, nil
}

// bulkBody is the body of a change of all rows that a filter chooses.
type bulkBody struct {
	dlq.FilterInput
	routeInput `json:"-"`
	All        bool   `json:"all"` // must be true when the filter is empty
	DryRun     bool   `json:"dry_run"`
	Rate       int    `json:"rate"` // rows per second
	Reason     string `json:"reason"`
}

func readBulk(r *http.Request, kind dlq.Kind) (*bulkBody, error) {
	var b bulkBody
	parts, err := readAction(r, &b)
	if err != nil {
		return nil, err
	}
	if b.FilterInput == (dlq.FilterInput{}) && !b.All {
		return nil, &badRequest{`which? Give a filter, or "all": true`}
	}
	b.routeInput = parts
	return &b, b.notForReplay(kind)
}

// maxBody is how many bytes of a body are read. It is generous because a key may be long.
const maxBody = 1 << 20

// readBody reads one JSON object and refuses names that are not known. An empty body counts as an
// empty object.
func readBody(r *http.Request, into any) error {
	return decode(http.MaxBytesReader(nil, r.Body, maxBody), into)
}

func decode(body io.Reader, into any) error {
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	switch err := dec.Decode(into); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return &badRequest{"the body: " + err.Error()}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return &badRequest{"the body has more than one JSON object"}
	}
	return nil
}
