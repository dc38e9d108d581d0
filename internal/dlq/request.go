// Requests about one row: what operators may ask for, how a request is stored, and why it may be
// refused.

package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Kind says what a request asks for.
type Kind string

// The kinds of requests. Replay, Discard, Redact and Purge are about dead letters, Retry and
// ToDeadLetter about deferred rows. A Purge of a key is about both.
const (
	Replay       Kind = "replay"      // publish it again
	Discard      Kind = "discard"     // close it unpublished
	Redact       Kind = "redact"      // remove its contents, keep its row
	Retry        Kind = "retry"       // try it now, whatever its backoff
	ToDeadLetter Kind = "dead_letter" // make it a dead letter
	Purge        Kind = "purge"       // remove all of it, even if it was never published
)

// table returns the table whose rows the kind is about. A deferred row may still be delivered, so a
// mistyped number must not purge it: only a purge of its key does.
func (k Kind) table() *Table {
	if k == Retry || k == ToDeadLetter {
		return Deferred
	}
	return DeadLetters
}

// Action is an operator's request about one row.
type Action struct {
	Kind  Kind
	N     int64
	Route event.Route // of Replay: where it goes; a nil part stays as it was
	By    Requester
}

// The states of a request.
const (
	RequestWaits     = "waiting"
	RequestDone      = "done"
	RequestFailed    = "failed"    // Result says why
	RequestCancelled = "cancelled" // with its job
)

// Request is a stored request about one row, and its result.
type Request struct {
	ID     int64      `json:"id"`
	Kind   Kind       `json:"kind"`
	N      int64      `json:"n"` // of the row
	Job    *int64     `json:"job"`
	Who    string     `json:"who"`
	Why    string     `json:"why"`
	At     time.Time  `json:"at"`
	State  string     `json:"state"`
	Result string     `json:"result"`
	DoneAt *time.Time `json:"done_at"`

	// Of a replay that goes to another place than the event did.
	RouteName  *string `json:"route_name,omitempty"`
	RoutingKey *string `json:"routing_key,omitempty"`

	// Again says that the same request waits already, so nothing was stored. Who is the one who
	// requested it first.
	Again bool `json:"again,omitempty"`
}

// NotNow is the error for a request that the state of a row does not allow.
type NotNow struct {
	Kind Kind
	N    int64
	Why  string
}

func (e *NotNow) Error() string { return fmt.Sprintf("%s %d: %s", e.Kind, e.N, e.Why) }

// Done is the error for a request that was carried out before, so that there is nothing to do.
type Done struct {
	N     int64
	State string
	At    time.Time
}

func (e *Done) Error() string {
	if e.At.IsZero() {
		return fmt.Sprintf("dead letter %d was %s already", e.N, e.State)
	}
	return fmt.Sprintf("dead letter %d was %s already, at %s", e.N, e.State, e.At.Format(time.RFC3339))
}

// Request stores a request. When the same request waits already, it returns that one. When the row
// does not allow the request, its error is a *NotNow, *Done or *NotFound.
func (a *Admin) Request(ctx context.Context, action Action) (Request, error) {
	if err := action.check(); err != nil {
		return Request{}, err
	}
	t := action.Kind.table()
	column, value, who := action.By.column(7)
	sql := `INSERT INTO cdc_relay.request (slot, system_id, kind, n, route_name, routing_key, reason` + column + `)
		SELECT $1, t.system_id, $3, $2, $4, $5, $6` + value + ` FROM ` + t.name + ` t WHERE t.n = $2 AND ` + mine + ` AND ` + action.Kind.allowed(t) + `
		ON CONFLICT (slot, system_id, n) WHERE state = 'waiting' DO NOTHING RETURNING ` + requestColumns
	args := append([]any{a.slot, action.N, action.Kind, action.Route.Name, action.Route.RoutingKey, action.By.Why}, who...)
	// Nothing is stored when no such row is in a state that allows the request, or when a request
	// waits already. Between the two statements the row can change its state, or get a request of
	// somebody else. Then both are repeated.
	for range 3 {
		r, err := scanRequest(a.db.QueryRow(ctx, sql, args...))
		if !errors.Is(err, pgx.ErrNoRows) {
			return r, explain("write cdc_relay.request", err)
		}
		if r, err = a.whyNot(ctx, action); !errors.Is(err, pgx.ErrNoRows) {
			return r, err
		}
	}
	return Request{}, &NotNow{action.Kind, action.N, "it changes faster than it can be asked for; try again"}
}

// allowed returns the condition that the state of a row of a table allows the request.
func (k Kind) allowed(t *Table) string {
	switch {
	case k == Replay:
		return "t.state = 'open' AND t.redacted_at IS NULL"
	case k == Discard:
		return "t.state = 'open'"
	case k == Redact:
		return "t.state <> 'purged' AND t.redacted_at IS NULL"
	case t == DeadLetters:
		return "t.state <> 'purged'"
	}
	return "true"
}

// requestColumns are the columns for a Request. The schema bounds what operators write into them.
const requestColumns = `id, kind, n, job, who, reason, created_at, state, result, done_at, route_name, routing_key`

// mine is the condition for rows of the slot's own system. It leaves out rows that came with a copy
// of another database.
const mine = `t.slot = $1 AND t.system_id = (SELECT system_id FROM cdc_relay.slots WHERE slot = $1::text)`

// whyNot returns why a request was not stored, or pgx.ErrNoRows when it would be stored now.
func (a *Admin) whyNot(ctx context.Context, action Action) (Request, error) {
	waiting, err := scanRequest(a.db.QueryRow(ctx, `SELECT `+requestColumns+` FROM cdc_relay.request t WHERE n = $2 AND state = 'waiting' AND `+mine, a.slot, action.N))
	switch {
	case err == nil && waiting.Kind == action.Kind && waiting.same(action.Route):
		waiting.Again = true
		return waiting, nil
	case err == nil:
		return Request{}, &NotNow{action.Kind, action.N, fmt.Sprintf("a %s of it waits already (request %d, by %s); `cdc-relay dead-letters request %[2]d --cancel` takes it back", waiting.Kind, waiting.ID, waiting.Who)}
	case !errors.Is(err, pgx.ErrNoRows):
		return Request{}, explain("read cdc_relay.request", err)
	}
	row, is, err := a.find(ctx, action.N)
	switch {
	case err != nil:
		return Request{}, err
	case is != action.Kind.table():
		return Request{}, a.notFound(action.Kind.table(), action.N, is)
	}
	return Request{}, action.Kind.notAllowed(&row)
}

func (a *Admin) notFound(want *Table, n int64, is *Table) error {
	e := &NotFound{What: "dead letter", N: n, Slot: a.slot}
	if want == Deferred {
		e.What = "deferred row"
	}
	switch is {
	case DeadLetters:
		e.Hint = "it is a dead letter: cdc-relay dead-letters show " + fmt.Sprint(n)
	case Deferred:
		e.Hint = "it is deferred: cdc-relay deferred show " + fmt.Sprint(n)
	default: // no table has it
	}
	return e
}

// notAllowed returns why a row of the right table does not allow the request, or pgx.ErrNoRows when
// it does.
func (k Kind) notAllowed(r *Row) error {
	closed := r.ClosedAt != nil && (k == Replay && r.State == Replayed || k == Discard && r.State == Discarded || k == Purge && r.State == Purged)
	switch {
	case r.Copied:
		return &NotNow{k, r.N, "it is of another system (pg_upgrade, restore or copy): see `cdc-relay check`"}
	case closed:
		return &Done{r.N, r.State, *r.ClosedAt}
	case r.State == Purged, (k == Replay || k == Discard) && r.State != Open && r.State != Replaying:
		return &NotNow{k, r.N, "it is " + r.State}
	case k == Redact && r.Redacted:
		return &Done{r.N, "redacted", time.Time{}}
	case k == Replay && r.Redacted:
		return &NotNow{k, r.N, "its contents were removed (redact): there is nothing left to publish"}
	}
	return pgx.ErrNoRows
}

// same reports whether a waiting replay goes to the same place.
func (r *Request) same(to event.Route) bool {
	equal := func(a *string, b []byte) bool { return (a == nil) == (b == nil) && (a == nil || *a == string(b)) }
	return equal(r.RouteName, to.Name) && equal(r.RoutingKey, to.RoutingKey)
}

// Requests returns requests by their ids, in the order of the ids.
func (a *Admin) Requests(ctx context.Context, ids []int64) ([]Request, error) {
	return a.requests(ctx, "WHERE id = ANY ($1) AND slot = $2 ORDER BY array_position($1, id)", ids, a.slot)
}

func (a *Admin) requests(ctx context.Context, which string, args ...any) ([]Request, error) {
	return all(ctx, a, "read cdc_relay.request", `SELECT `+requestColumns+` FROM cdc_relay.request `+which, args,
		func(row pgx.CollectableRow) (Request, error) { return scanRequest(row) })
}

func scanRequest(row pgx.Row) (Request, error) {
	var r Request
	var name, routingKey []byte
	var done *time.Time
	err := row.Scan(&r.ID, &r.Kind, &r.N, &r.Job, &r.Who, &r.Why, &r.At, &r.State, &r.Result, &done, &name, &routingKey)
	r.At, r.DoneAt = r.At.UTC(), utc(done)
	r.RouteName, r.RoutingKey = text(name), text(routingKey)
	return r, err
}

// CheckRequest returns the error that Request would return now. It returns nil also when the same
// request waits already. It changes nothing.
func (a *Admin) CheckRequest(ctx context.Context, action Action) error {
	_, err := a.whyNot(ctx, action)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

// RequestByID returns a request by its id.
func (a *Admin) RequestByID(ctx context.Context, id int64) (Request, error) {
	list, err := a.Requests(ctx, []int64{id})
	if err == nil && len(list) == 0 {
		err = &NotFound{What: "request", N: id, Slot: a.slot}
	}
	return append(list, Request{})[0], err
}

// Withdraw cancels a request that waits. It does not stop a request that is being carried out at
// this moment, and does not change one that has ended; the returned request says which.
func (a *Admin) Withdraw(ctx context.Context, id int64, by Requester) (Request, error) {
	err := by.Check()
	if err == nil {
		err = explain("cancel the request", a.cancel(ctx, id, by))
	}
	if err != nil {
		return Request{}, err
	}
	return a.RequestByID(ctx, id)
}

func (a *Admin) cancel(ctx context.Context, id int64, by Requester) error {
	if by.Who == "" {
		_, err := a.db.Exec(ctx, `SELECT cdc_relay.cancel_request($1, $2, $3)`, id, a.slot, by.Why)
		return err
	}
	// the same as the SQL function cancel_request, but as the relay's role, which may name who asks
	_, err := a.db.Exec(ctx, `WITH q AS (UPDATE cdc_relay.request SET state = 'cancelled', done_at = now()
			WHERE id = $1 AND slot = $2 AND state = 'waiting' RETURNING *)
		INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result, request)
		SELECT slot, system_id, $3, 'cancel', n, $4, kind || ' is not done', id FROM q`, id, a.slot, by.Who, by.Why)
	return err
}
