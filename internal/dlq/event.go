// Event finds out where the event with an id is.

package dlq

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
)

// Outbox is a table in which an event's row is searched.
type Outbox struct {
	Schema, Table string
	ID            []string // the id column: the first of these that the table has
	Transaction   []string // likewise that of the row's transaction
}

// Relay is the state that the running relay reports; the zero value when it was not asked or does
// not answer.
type Relay struct {
	Streaming bool
	InFlight  int           // events that are read and not settled
	Settled   pglogrepl.LSN // everything committed below it is settled; 0: not known
}

// Event is where an event is.
type Event struct {
	ID    string `json:"id"` // in the form that its row has it
	State string `json:"state"`
	Why   string `json:"why"`  // how that is known
	Rows  []Row  `json:"rows"` // deferred ones and dead letters with this id

	// of a deferred event: when it is tried again, and the deferred row that it waits for
	NextAttempt *time.Time `json:"next_attempt,omitempty"`
	Behind      *int64     `json:"behind,omitempty"`

	Table string `json:"table,omitempty"` // the outbox table that has its row
	// of that row, or of the deferred row or dead letter; null: not known, as when
	// track_commit_timestamp is off
	CommittedAt *time.Time `json:"committed_at"`

	// further rows with this id, of other tables or transactions: each is an event of its own
	Others []OtherRow `json:"others,omitempty"`
}

// OtherRow is where the event of a further row is.
type OtherRow struct {
	Table       string     `json:"table"`
	State       string     `json:"state"`
	Why         string     `json:"why"`
	CommittedAt *time.Time `json:"committed_at"`
}

// The states of an Event.
const (
	EventNotSeen    = "not seen"             // its row is committed, and no relay has read it
	EventInFlight   = "in flight"            // it is read and not settled
	EventDeferred   = "deferred"             // it is in the retry table
	EventDeadLetter = "dead letter"          // it was given up
	EventDelivered  = "delivered"            // the broker has confirmed it
	EventUnknown    = "not known to be sent" // the slot is past it, and no confirm is recorded
	EventNotThere   = "not in the table"     // it was deleted, or never written
)

// maxRows is how many rows of one id are shown: ids need not be unique.
const maxRows = 20

// While a relay streams, its word on how far it is comes within moments of the row's commit: Event
// asks again for a short time before it answers that an event is in flight.
const (
	askAgainAfter = 100 * time.Millisecond
	askAgain      = 5
)

// Event returns where the event with an id is. ask returns what the running relay reports; it may
// be called several times.
func (a *Admin) Event(ctx context.Context, id string, tables []Outbox, ask func(context.Context) Relay) (*Event, error) {
	var rows []*outboxRow
	for n := 0; ; n++ {
		relay := ask(ctx)
		e, found, err := a.lookUp(ctx, id, tables, relay, rows)
		unsettled := err == nil && (e.State == EventInFlight || e.State == EventNotSeen)
		if !unsettled || !relay.Streaming || relay.Settled == 0 || n == askAgain {
			return e, err
		}
		rows = found
		select {
		case <-ctx.Done():
			return e, nil
		case <-time.After(askAgainAfter):
		}
	}
}

// lookUp is Event, once. The rows are searched unless an earlier call has found them.
//
// How far the slot and the relay are is read first, then the retry table, then the dead-letter
// table. An event that was settled at the first read is then either delivered, or it was in the
// retry table at that time: it is found there, or in the dead-letter table, or it has been
// delivered since. In another order an event could be deferred in between, and look delivered.
func (a *Admin) lookUp(ctx context.Context, id string, tables []Outbox, relay Relay, rows []*outboxRow) (*Event, []*outboxRow, error) {
	e := &Event{ID: id, Rows: []Row{}}
	far, err := a.progress(ctx)
	if err != nil {
		return nil, nil, err
	}
	if !far.known || !far.active { // it streams from another database, of which this one is a copy
		relay = Relay{}
	}
	for _, of := range []*Table{Deferred, DeadLetters} {
		page, err := a.List(ctx, of, Filter{ID: []byte(id)}, "", maxRows)
		if err != nil {
			return nil, nil, err
		}
		e.Rows = append(e.Rows, page.Rows...)
	}
	ours := slices.IndexFunc(e.Rows, func(r Row) bool { return !r.Copied })
	unread := ""
	search := tables
	if len(rows) > 0 {
		search = nil
	}
	for _, t := range search {
		row, why, err := a.committed(ctx, id, t)
		if err != nil {
			return nil, nil, err
		}
		if row != nil {
			rows = append(rows, row)
		}
		unread = cmp.Or(why, unread)
	}
	// what is recorded of it has its own form of the id
	if ours < 0 && len(rows) > 0 && rows[0].id != id {
		return a.lookUp(ctx, rows[0].id, tables, relay, rows)
	}
	var places []OtherRow
	for _, row := range rows {
		if ours >= 0 {
			if theirs, err := a.isRetried(ctx, id, row); err != nil {
				return nil, nil, err
			} else if theirs {
				continue
			}
		}
		at := Event{ID: row.id}
		if err := a.place(ctx, &at, row, far, relay); err != nil {
			return nil, nil, err
		}
		places = append(places, OtherRow{row.table, at.State, at.Why, row.committedAt})
	}
	switch {
	case ours >= 0:
		e.Others = places
		return e, rows, a.retryRow(ctx, e, &e.Rows[ours])
	case len(places) > 0:
		first := places[0]
		e.State, e.Why, e.Table, e.CommittedAt, e.Others = first.State, first.Why, first.Table, first.CommittedAt, places[1:]
	case unread != "":
		e.State, e.Why = EventNotThere, "no deferred row or dead letter has this id; the outbox table "+unread
	default:
		e.State = EventNotThere
		e.Why = "no outbox table, deferred row or dead letter has this id: its row was deleted, or never written"
	}
	if len(e.Rows) > 0 {
		e.Why = fmt.Sprintf("row %d of it is of another system (pg_upgrade, restore or copy), and is not sent here: see `cdc-relay check`; of this system: %s", e.Rows[0].N, e.Why)
	}
	return e, rows, nil
}

// retryRow describes an event that has a row, by the first of its rows that is ours: its deferred
// row, or its newest dead letter.
func (a *Admin) retryRow(ctx context.Context, e *Event, r *Row) error {
	e.CommittedAt = &r.CommittedAt
	if r.State != Waiting {
		e.State, e.Why = EventDeadLetter, fmt.Sprintf("dead letter %d: %s", r.N, r.State)
		if r.State == Replayed {
			e.State = EventDelivered
		}
		return nil
	}
	e.State, e.NextAttempt = EventDeferred, r.NextAttempt
	var why []string
	if r.Reason != "" {
		why = append(why, "refused, "+r.Reason)
	}
	var err error
	if e.Behind, err = a.behind(ctx, r.N); err != nil {
		return err
	}
	switch {
	case e.Behind != nil:
		why = append(why, fmt.Sprintf("it waits behind deferred row %d, an earlier event of its ordering group", *e.Behind))
	case e.NextAttempt != nil:
		why = append(why, "it is tried again at "+e.NextAttempt.Format(time.RFC3339))
	default:
		dead, err := a.behindDeadLetter(ctx, r.N)
		if err != nil {
			return err
		}
		wait := "it is sent as soon as its destination, " + r.Destination + ", is tried again and takes it"
		if dead != nil {
			wait += fmt.Sprintf("; with dead_letters.on_dead_letter: block it waits until dead letter %d is replayed or discarded", *dead)
		}
		why = append(why, wait)
	}
	e.Why = fmt.Sprintf("deferred row %d: %s", r.N, strings.Join(why, "; "))
	return nil
}
