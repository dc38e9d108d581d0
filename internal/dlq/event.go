// Event finds out where the event with an id is.

package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// Outbox is a table in which an event's row is searched.
type Outbox struct {
	Schema, Table string
	ID            []string // the id column: the first of these that the table has
}

// Relay is the state that the running relay reports; the zero value when it was not asked or does
// not answer.
type Relay struct {
	Streaming bool
	// commit time of the oldest transaction that is not settled; zero: there is none
	OldestUnsettled time.Time
}

// Event is where an event is.
type Event struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Why   string `json:"why"`  // how that is known
	Rows  []Row  `json:"rows"` // deferred ones and dead letters with this id

	Table string `json:"table,omitempty"` // the outbox table that has its row
	// of that row; null: no row, or track_commit_timestamp is off
	CommittedAt *time.Time `json:"committed_at"`
}

// The states of an Event.
const (
	EventDeferred = "deferred"
	EventDead     = "dead"
	EventSettled  = "settled"
	EventInFlight = "in flight"
	EventNotHeld  = "not held by the relay"
)

// maxRows is how many rows of one id are shown: ids need not be unique.
const maxRows = 20

// lately is how far commit times and the order of commits may differ.
const lately = 5 * time.Second

// Event returns where the event with an id is: in the retry table or the dead letters, in flight,
// or settled.
func (a *Admin) Event(ctx context.Context, id string, tables []Outbox, relay Relay) (*Event, error) {
	e := &Event{ID: id, Rows: []Row{}}
	for _, of := range []*Table{Deferred, DeadLetters} {
		page, err := a.List(ctx, of, Filter{ID: []byte(id)}, "", maxRows)
		if err != nil {
			return nil, err
		}
		e.Rows = append(e.Rows, page.Rows...)
	}
	if i := slices.IndexFunc(e.Rows, func(r Row) bool { return !r.Copied }); i >= 0 {
		e.retryRow(&e.Rows[i])
		return e, nil
	}
	e.State = EventNotHeld
	e.Why = "no outbox table, deferred row or dead letter has this id: the event was delivered and its row deleted, or it was never committed"
	for _, t := range tables {
		found, unread, err := a.committed(ctx, e, t, relay)
		if err != nil {
			return e, err
		}
		if found {
			break
		}
		if unread != "" {
			e.Why = "no deferred row or dead letter has this id; the outbox table " + unread
		}
	}
	if len(e.Rows) > 0 {
		e.Why = fmt.Sprintf("row %d of it is of another system (pg_upgrade, restore or copy), and is not sent here: see `cdc-relay check`; of this system: %s", e.Rows[0].N, e.Why)
	}
	return e, nil
}

// retryRow describes an event that has a row, by the first of its rows that is ours: its deferred
// row, or its newest dead letter.
func (e *Event) retryRow(r *Row) {
	e.CommittedAt = &r.CommittedAt
	if r.State == Waiting {
		e.State = EventDeferred
		e.Why = fmt.Sprintf("deferred row %d: it waits", r.N)
		if r.Reason != "" {
			e.Why = fmt.Sprintf("deferred row %d: refused, %s", r.N, r.Reason)
		}
		return
	}
	e.State = EventDead
	e.Why = fmt.Sprintf("dead letter %d: %s", r.N, r.State)
	if r.State == Replayed {
		e.State = EventSettled
	}
}

// committed searches the row in a table. A slot keeps, in catalog_xmin, the oldest transaction that
// it may still have to send: it is past any older one. unread is why the table is not looked into:
// reading it could run code of its owner.
func (a *Admin) committed(ctx context.Context, e *Event, t Outbox, relay Relay) (found bool, unread string, err error) {
	name := pgx.Identifier{t.Schema, t.Table}.Sanitize()
	quoted, kind, unread, err := a.idColumn(ctx, name, t)
	if err != nil || quoted == "" || unread != "" {
		return false, unread, err
	}
	query := func(condition string) error {
		var past bool
		err := tableread.Read(ctx, a.db, name, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, `SELECT CASE WHEN current_setting('track_commit_timestamp')::bool THEN pg_xact_commit_timestamp(t.xmin) END,
					coalesce((SELECT age(t.xmin) > age(s.catalog_xmin) FROM pg_replication_slots s WHERE s.slot_name = $2), false)
				FROM `+name+` t WHERE `+condition+` LIMIT 1`, e.ID, a.slot).Scan(&e.CommittedAt, &past)
		})
		if err == nil {
			found, e.Table = true, t.Schema+"."+t.Table
			e.CommittedAt = utc(e.CommittedAt)
			e.place(past, relay)
		}
		return err
	}
	err = query(quoted + " = $1::text::" + kind)
	// the type has no equality, or is not cast from text
	if sqlClass(err, "42883") || sqlClass(err, "42846") {
		err = query(quoted + "::text = $1")
	}
	if refusal, ok := tableread.IsRefusal(err); ok {
		return false, refusal.Error(), nil
	}
	// not a value of that type, or the table is gone
	if errors.Is(err, pgx.ErrNoRows) || sqlClass(err, "22") || tableread.Undefined(err) {
		return false, "", nil
	}
	if err != nil {
		return false, "", explain("search the row in "+name, err)
	}
	return found, "", nil
}

// idColumn finds the table's id column, quoted, and its type; "": the table, or the column, no
// longer exists. A value of a type that is not PostgreSQL's own is not compared: its casts, and a
// domain's checks, are its owner's functions. So is a column that is computed when it is read.
func (a *Admin) idColumn(ctx context.Context, name string, t Outbox) (quoted, kind, unread string, err error) {
	var column string
	var own, computed bool
	err = a.db.QueryRow(ctx, `SELECT attname, format_type(atttypid, NULL), typnamespace = 'pg_catalog'::regnamespace, attgenerated = 'v'
		FROM pg_attribute JOIN pg_type y ON y.oid = atttypid
		WHERE attrelid = to_regclass($1) AND attnum > 0 AND attname = ANY ($2::text[]) AND NOT attisdropped ORDER BY array_position($2::text[], attname::text) LIMIT 1`,
		name, t.ID).Scan(&column, &kind, &own, &computed)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", "", "", nil
	case err != nil:
		return "", "", "", explain("read the columns of "+name, err)
	case !own:
		unread = fmt.Sprintf("%s is not searched: its column %s has type %s, which is not one of PostgreSQL's own", name, column, kind)
	case computed:
		unread = fmt.Sprintf("%s is not searched: its column %s is computed when it is read", name, column)
	}
	return "t." + pgx.Identifier{column}.Sanitize(), kind, unread, nil
}

func sqlClass(err error, class string) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && strings.HasPrefix(server.Code, class)
}

// place describes an event whose row is in the outbox, and that has no row in the retry table or
// the dead letters.
func (e *Event) place(past bool, relay Relay) {
	at := e.CommittedAt
	if !past && relay.Streaming && at != nil {
		past = at.Before(relay.OldestUnsettled) || relay.OldestUnsettled.IsZero() && time.Since(*at) > lately
	}
	if past {
		e.State = EventSettled
		e.Why = "the slot is past its transaction, and nothing of it is in the retry table: the broker has confirmed it, unless it was committed before the slot was created"
		return
	}
	e.State = EventInFlight
	e.Why = "its row is committed, and the slot is not known to be past it"
}
