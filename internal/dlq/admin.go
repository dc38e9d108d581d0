// Package dlq is the operators' view of events that could not be delivered. It lists and shows
// deferred rows and dead letters, stores requests, and reports their results. The leading relay
// carries the requests out; for that it also uses this package's Leader (bulk jobs, the purge by
// age) and Mirror.
package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier is a pool or a connection.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Admin reads and requests for the operators of one slot. It needs only the database, so it works
// whether a relay runs or not.
type Admin struct {
	db   Querier
	slot string

	// OnDeadLetter is the relay's dead_letters.on_dead_letter; "" means that it is not known.
	OnDeadLetter string

	mu    sync.Mutex
	ended map[int64]Job // see Jobs
}

// New makes an Admin for the rows of a slot.
func New(db Querier, slot string) *Admin { return &Admin{db: db, slot: slot} }

// Requester is who requests something, and why. The audit has both.
//
// The relay's API sets Who, because it knows the token. Every other caller leaves Who empty, and
// the database fills in the session user: an operator's role may not write that column.
type Requester struct {
	Who string // "" is the session user of the database
	Why string
}

// column returns what an INSERT needs to name the requester: a column, and its value as parameter
// n. Both are empty when the database is to fill the column in.
func (r Requester) column(n int) (column, value string, args []any) {
	if r.Who == "" {
		return "", "", nil
	}
	return ", who", fmt.Sprintf(", $%d", n), []any{r.Who}
}

// ErrNoSchema says that no relay has created the tables in this database, or an older version has.
var ErrNoSchema = errors.New("the schema cdc_relay is not in this database, or is older than this version")

// NoSlot is the error for a slot that no relay of this database has used, so that it can have no
// rows.
type NoSlot struct {
	Slot  string
	Known []string
}

func (e *NoSlot) Error() string {
	return fmt.Sprintf("no relay has used slot %q in this database, but %s", e.Slot, strings.Join(e.Known, ", "))
}

// Check returns nil when the tables exist and know the slot, or know no slot yet. Without it the
// lists of a mistyped slot would be empty, which looks as if all was well.
func (a *Admin) Check(ctx context.Context) error {
	var known []string
	err := a.one(ctx, "read cdc_relay.slots", `SELECT coalesce(array_agg(slot ORDER BY slot), '{}') FROM cdc_relay.slots`, nil, &known)
	if err == nil && len(known) > 0 && !slices.Contains(known, a.slot) {
		return &NoSlot{a.slot, known}
	}
	return err
}

// NotFound is the error for a row, request or job that does not exist.
type NotFound struct {
	What string // "dead letter", "deferred row", "job"
	N    int64
	Slot string
	Hint string
}

func (e *NotFound) Error() string {
	msg := fmt.Sprintf("there is no %s %d of slot %q", e.What, e.N, e.Slot)
	if e.Hint != "" {
		msg += "; " + e.Hint
	}
	return msg
}

// explain adds to an error what was being done. It returns ErrNoSchema when the tables are missing
// or of an older version.
func explain(what string, err error) error {
	if err == nil {
		return nil
	}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		switch server.Code {
		// no such table, schema, column, function or default
		case "42P01", "3F000", "42703", "42883", "23502":
			return fmt.Errorf("%s: %w", what, ErrNoSchema)
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// one reads the only row of a query. Its error may be pgx.ErrNoRows.
func (a *Admin) one(ctx context.Context, what, sql string, args []any, into ...any) error {
	return explain(what, a.db.QueryRow(ctx, sql, args...).Scan(into...))
}

// all reads all rows of a query. Without rows the result is [] as JSON.
func all[T any](ctx context.Context, a *Admin, what, sql string, args []any, scan func(pgx.CollectableRow) (T, error)) ([]T, error) {
	rows, err := a.db.Query(ctx, sql, args...)
	if err != nil {
		return nil, explain(what, err)
	}
	list, err := pgx.CollectRows(rows, scan)
	return append([]T{}, list...), explain(what, err)
}

// RelayRuns reports whether a relay uses the slot, so that requests will be carried out soon.
func (a *Admin) RelayRuns(ctx context.Context) (active bool, err error) {
	err = a.one(ctx, "read pg_replication_slots", `SELECT coalesce((SELECT active FROM pg_replication_slots WHERE slot_name = $1), false)`, []any{a.slot}, &active)
	return active, err
}

// Bounds for what operators are shown and may store, so that an answer takes little memory whatever
// a key or a reason is.

const (
	listText  = 1 << 10  // bytes of a value in a list
	showText  = 64 << 10 // bytes of an id, a key and so on of a row that is shown alone
	showBytes = 1 << 20  // bytes of a payload, the headers and so on
	pageBytes = 1 << 20  // bytes of all values on a page, which has at least one row

	// MaxReason is how many characters the reason of a request may have. The schema checks it, too.
	MaxReason = 1000
	// maxFilter is how many bytes the values of a filter may have, and maxStored how many the JSON
	// in which a job stores it. The schema checks that, too.
	maxFilter = 1 << 20
	maxStored = 2 << 20
	// maxRoute is how many bytes a part of a route may have; no broker takes as many. The schema
	// checks it, too.
	maxRoute = 1 << 10
	// leaderFilters is how many bytes of filters a leader has in memory at a time.
	leaderFilters = 2 * maxStored
)

// Check returns an error for a reason that is too long.
func (r Requester) Check() error {
	if n := utf8.RuneCountInString(r.Why); n > MaxReason {
		return &BadInput{"reason", fmt.Sprintf("has %d characters, want at most %d", n, MaxReason)}
	}
	return nil
}

// check returns an error for a request that is too long.
func (a *Action) check() error {
	if len(a.Route.Name) > maxRoute || len(a.Route.RoutingKey) > maxRoute {
		return &BadInput{"route", fmt.Sprintf("has a name of more than %d bytes", maxRoute)}
	}
	return a.By.Check()
}

// start makes SQL that reads the beginning of a value, and one byte more than is shown, so that
// shorten knows whether something is cut.
func start(column string, most int) string {
	return fmt.Sprintf("substring(%s, 1, %d)", column, most+1)
}

// shorten cuts a value that start has read, and reports whether it did.
func shorten(b *[]byte, most int) bool {
	if len(*b) <= most {
		return false
	}
	*b = (*b)[:most]
	return true
}
