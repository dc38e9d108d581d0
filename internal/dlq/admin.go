// Package dlq is the operators' view of events that could not be delivered. It lists and shows
// deferred rows and dead letters, stores requests, and reports their results. The leading relay
// carries out requests. In this package it uses Leader (bulk jobs, the purge by age) and Mirror.
package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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

// Admin is where operators work on the rows of one slot. It needs only the database: a relay may
// run or not.
type Admin struct {
	db   Querier
	slot string
}

// New makes an Admin for the rows of a slot.
func New(db Querier, slot string) *Admin { return &Admin{db: db, slot: slot} }

// Requester is who requests something, and why: both go into the audit.
//
// The relay's API names who: it knows the token. Everybody else leaves Who empty, and the database
// fills in the session user: an operator's role may not write that column.
type Requester struct {
	Who string // "" is the session user of the database
	Why string
}

// column returns what an INSERT adds to name the requester: a column, and its value as parameter n;
// neither if the database is to fill it in.
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

// Check returns nil when the tables exist and know the slot, or know no slot yet. Without this
// check the lists of a mistyped slot would be empty, which looks as if all was well.
func (a *Admin) Check(ctx context.Context) error {
	var known []string
	err := a.db.QueryRow(ctx, `SELECT coalesce(array_agg(slot ORDER BY slot), '{}') FROM cdc_relay.slots`).Scan(&known)
	switch {
	case err != nil:
		return explain("read cdc_relay.slots", err)
	case len(known) > 0 && !slices.Contains(known, a.slot):
		return &NoSlot{a.slot, known}
	}
	return nil
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

// explain returns a server error with its meaning here.
func explain(what string, err error) error {
	if err == nil {
		return nil
	}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		switch server.Code {
		case "42P01", "3F000", "42703", "42883", "23502": // no such table, schema, column, function, default
			return fmt.Errorf("%s: %w", what, ErrNoSchema)
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// RelayRuns reports whether a relay uses the slot, so that requests will be carried out soon.
func (a *Admin) RelayRuns(ctx context.Context) (bool, error) {
	var active bool
	err := a.db.QueryRow(ctx, `SELECT coalesce((SELECT active FROM pg_replication_slots WHERE slot_name = $1), false)`, a.slot).Scan(&active)
	if err != nil {
		return false, explain("read pg_replication_slots", err)
	}
	return active, nil
}
