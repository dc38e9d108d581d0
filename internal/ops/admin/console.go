// The routes of the API that the console needs beyond those of the commands: destinations, the sent
// set, the audit, the configuration and resends.

package admin

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// consoleRoutes returns handlers by path and method, like routes.
func (a *api) consoleRoutes() map[string]methods {
	return map[string]methods{
		streamPath:                        {http.MethodGet: a.stream},
		"/api/v1/history":                 {http.MethodGet: a.readHistory},
		"/api/v1/destinations":            {http.MethodGet: a.handle(a.destinations)},
		"/api/v1/destinations/{id}/retry": {http.MethodPost: a.handle(a.retryDestination)},
		"/api/v1/sent":                    {http.MethodGet: a.handle(a.sent)},
		"/api/v1/audit":                   {http.MethodGet: a.handle(a.audit)},
		"/api/v1/config":                  {http.MethodGet: a.config},
		"/api/v1/resend":                  {http.MethodPost: a.handle(a.resend)},
		"/api/v1/dead-letters/redact":     {http.MethodPost: a.bulk(dlq.Redact)},
		"/api/v1/deferred/retry":          {http.MethodPost: a.bulk(dlq.Retry)},
		"/api/v1/deferred/dead-letter":    {http.MethodPost: a.bulk(dlq.ToDeadLetter)},
	}
}

func (a *api) readHistory(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, a.cfg.History)
}

func (a *api) config(w http.ResponseWriter, _ *http.Request) {
	if a.cfg.API.Config == nil {
		writeProblem(w, http.StatusServiceUnavailable, "the configuration is not known")
		return
	}
	tables := []string{}
	for _, o := range a.cfg.API.Outboxes {
		tables = append(tables, o.Schema+"."+o.Table)
	}
	writeJSON(w, http.StatusOK, map[string]any{"items": a.cfg.API.Config(), "outbox_tables": tables})
}

// destination is a paused destination in the answer of /api/v1/destinations.
type destination struct {
	ID string `json:"id"` // the name in paths; "" when the destination cannot be named
	ops.Paused
}

// destinationID encodes the name of a destination for a path. No proxy changes it, whatever
// characters the name has.
var destinationID = base64.RawURLEncoding

func (a *api) destinations(ctx context.Context, _ http.ResponseWriter, _ *http.Request) (int, any, error) {
	snapshot := a.cfg.Snapshot()
	items := make([]destination, len(snapshot.Paused))
	for i, p := range snapshot.Paused {
		items[i] = destination{destinationID.EncodeToString([]byte(p.RetryName())), p}
	}
	holding, more, err := a.cfg.API.Operators.Holding(ctx)
	return http.StatusOK, map[string]any{
		"as_of": time.Now().UTC(), "items": items, "total": snapshot.PausedTotal, "holding": holding, "holding_more": more,
	}, err
}

func (a *api) retryDestination(ctx context.Context, w http.ResponseWriter, r *http.Request) (int, any, error) {
	name, err := destinationID.DecodeString(r.PathValue("id"))
	if err != nil || len(name) == 0 {
		return 0, nil, &badRequest{"the id is none of /api/v1/destinations"}
	}
	body, err := readAsk(r, dlq.Retry)
	if err != nil {
		return 0, nil, err
	}
	job, err := a.cfg.API.Operators.Start(ctx, dlq.Bulk{Kind: dlq.Retry, Filter: dlq.Filter{Destination: name}, By: dlq.Requester{Who: callerName(r), Why: body.Reason}})
	if err == nil && job.ID == 0 {
		err = &notThere{fmt.Sprintf("no deferred event waits for %s", name)}
	}
	if err != nil {
		return 0, nil, err
	}
	return jobStarted(w, job), job, nil
}

// jobStarted sets the header Location to a new job, and returns the status of the answer.
func jobStarted(w http.ResponseWriter, job dlq.Job) (status int) {
	w.Header().Set("Location", "/api/v1/jobs/"+strconv.FormatInt(job.ID, 10))
	return http.StatusAccepted
}

// unsentTable says how many rows of an outbox table are not known to be sent.
type unsentTable struct {
	Table  string `json:"table"`
	Rows   int64  `json:"rows"`
	OrMore bool   `json:"or_more"`
}

// unsentLimit is how many such rows of a table are counted at most; see ops.Status.UnsentRows.
const unsentLimit = 10_000

func (a *api) sent(ctx context.Context, _ http.ResponseWriter, _ *http.Request) (int, any, error) {
	snapshot := a.cfg.Snapshot()
	unsent := []unsentTable{}
	for table, rows := range snapshot.Unsent {
		unsent = append(unsent, unsentTable{table, rows, rows >= unsentLimit})
	}
	slices.SortFunc(unsent, func(a, b unsentTable) int { return strings.Compare(a.Table, b.Table) })
	gaps, err := a.cfg.API.Operators.Gaps(ctx)
	if err != nil {
		return 0, nil, err
	}
	tables, err := a.cfg.API.Operators.SentTables(ctx)
	return http.StatusOK, map[string]any{
		"as_of": time.Now().UTC(), "unsent_known": snapshot.Unsent != nil, "unsent": unsent, "unsent_command": "cdc-relay resend --unsent --dry-run",
		"gaps": gaps, "tables": tables,
	}, err
}

func (a *api) audit(ctx context.Context, _ http.ResponseWriter, r *http.Request) (int, any, error) {
	f, cursor, limit := dlq.AuditFilter{}, "", defaultLimit
	for name, given := range r.URL.Query() {
		err := readAudit(&f, &cursor, &limit, name, given)
		if err != nil {
			return 0, nil, &badRequest{"the parameter " + name + " " + err.Error()}
		}
	}
	page, err := a.cfg.API.Operators.Audit(ctx, f, cursor, limit)
	return http.StatusOK, page, err
}

// readAudit reads one parameter of a request for the audit.
func readAudit(f *dlq.AuditFilter, cursor *string, limit *int, name string, given []string) (err error) {
	if len(given) > 1 || given[0] == "" {
		return errors.New("is empty, or given twice")
	}
	switch value := given[0]; name {
	case "who":
		f.Who = value
	case "action":
		f.Action = value
	case "cursor":
		*cursor = value
	case "n":
		f.N = new(int64)
		*f.N, err = strconv.ParseInt(value, 10, 64)
	case "limit":
		*limit, err = strconv.Atoi(value)
	case "from":
		f.From, err = time.Parse(time.RFC3339, value)
	case "to":
		f.To, err = time.Parse(time.RFC3339, value)
	default:
		return errors.New("is not known")
	}
	if err != nil {
		return fmt.Errorf("is %q, want a number, or a time such as 2026-11-20T15:04:05Z", given[0])
	}
	return nil
}

// Counted is how many rows a resend would send, and in which order.
type Counted struct {
	Rows    int64    `json:"matched"`
	Order   string   `json:"order"`
	Unknown int64    `json:"rows_without_transaction"`
	Notes   []string `json:"notes"`
}

// resendBody is the body of a resend. It has the choices that repair something. Choices by key,
// time and SQL are only in the command `resend`, which may wait for as long as they take.
type resendBody struct {
	IDs       []string `json:"ids"`
	Gap       int64    `json:"gap"`
	None      bool     `json:"none"` // close the gap, and send nothing
	Unsent    bool     `json:"unsent"`
	Table     string   `json:"table"` // schema.name; "": every outbox table
	OrderBy   string   `json:"order_by"`
	Unordered bool     `json:"unordered"`
	DryRun    bool     `json:"dry_run"`
	Rate      int      `json:"rate"`
	Reason    string   `json:"reason"`
}

// maxResendIDs is how many ids a resend may name.
const maxResendIDs = 1000

// choice returns which rows are sent again, or what is wrong with the body. The command refuses the
// same combinations.
func (b *resendBody) choice() (c dlq.Choice, err error) {
	c = dlq.Choice{Gap: b.Gap, Unsent: b.Unsent, Table: b.Table, OrderBy: b.OrderBy, Unordered: b.Unordered}
	for _, id := range b.IDs {
		c.IDs = append(c.IDs, []byte(id))
	}
	chosen := 0
	for _, yes := range []bool{len(b.IDs) > 0, b.Gap > 0, b.Unsent} {
		if yes {
			chosen++
		}
	}
	var what string
	switch {
	case chosen != 1 || b.Gap < 0:
		what = "which rows? Give ids, the number of a gap, or unsent"
	case len(b.IDs) > maxResendIDs:
		what = fmt.Sprintf("ids are %d, want at most %d", len(b.IDs), maxResendIDs)
	case slices.Contains(b.IDs, ""):
		what = "ids has an empty one"
	case b.None && b.Table != "":
		what = "none closes the gap as a whole: leave out table"
	case b.None && (b.Gap == 0 || b.Reason == ""):
		what = "none needs gap and reason: nothing else says why the rows need not be sent"
	case b.OrderBy != "" && b.Unordered:
		what = "order_by and unordered exclude each other"
	case b.Rate < 0 || b.Rate > dlq.MaxRate:
		what = fmt.Sprintf("rate is %d, want 1 to %d rows per second", b.Rate, dlq.MaxRate)
	default:
		return c, nil
	}
	return c, &badRequest{what}
}

func (a *api) resend(ctx context.Context, w http.ResponseWriter, r *http.Request) (int, any, error) {
	var body resendBody
	parts, err := readAction(r, &body)
	ask := dlq.Resend{Rate: body.Rate, By: dlq.Requester{Who: callerName(r), Why: body.Reason}}
	if err == nil {
		err = ask.By.Check()
	}
	if err == nil {
		ask.Choice, err = body.choice()
	}
	if err == nil {
		ask.Route, err = parts.route(a.cfg.Snapshot().Sink.Kind)
	}
	if err != nil {
		return 0, nil, err
	}
	operators := a.cfg.API.Operators
	if body.None {
		if body.DryRun {
			return http.StatusOK, map[string]any{"dry_run": true, "gap": body.Gap}, operators.CheckGapIsOpen(ctx, body.Gap)
		}
		return http.StatusOK, map[string]any{"gap": body.Gap, "closed": true}, operators.CloseGap(ctx, body.Gap, ask.By)
	}
	counted, err := a.cfg.API.CountResend(ctx, &ask, body.DryRun)
	var stop *event.Stop
	switch {
	case errors.As(err, &stop) && stop.Code == event.ExitUsage:
		return 0, nil, &badRequest{stop.Error()}
	case err != nil && ctx.Err() != nil:
		return 0, nil, fmt.Errorf("to count the rows takes longer than %s: `cdc-relay resend` waits for it", apiBound)
	case err != nil:
		return 0, nil, err
	case body.DryRun:
		return http.StatusOK, struct {
			DryRun bool `json:"dry_run"`
			Counted
		}{true, counted}, nil
	case counted.Rows == 0 && body.Gap == 0:
		return http.StatusOK, map[string]any{"matched": 0}, nil
	}
	ask.Matched = counted.Rows
	job, err := operators.StartResend(ctx, ask)
	if err != nil {
		return 0, nil, err
	}
	return jobStarted(w, job), job, nil
}

// notThere is the error for a destination that no deferred event waits for.
type notThere struct{ what string }

func (e *notThere) Error() string { return e.what }
