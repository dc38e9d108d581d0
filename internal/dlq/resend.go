// Resend: rows of the outbox tables that an operator has sent again. Whether they were sent before
// does not matter. A job says which; the leader copies them into the retry table, in one
// transaction, and from there they go like any deferred row (internal/replication/repair).

package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// ResendRows is the kind of a job that sends rows again. No request is made for it.
const ResendRows Kind = "resend"

// Choice says which rows of the outbox tables are sent again, and in which order. A row is chosen
// when it meets all that is set. Texts are bytes, as in Filter.
type Choice struct {
	Table string   `json:"table,omitempty"` // schema.name; "": every outbox table
	IDs   [][]byte `json:"ids,omitempty"`
	Key   []byte   `json:"key,omitempty"` // of the event, as is Aggregate; nil: any

	Aggregate []byte    `json:"aggregate,omitempty"`
	From      time.Time `json:"from,omitzero"` // of the event's time, inclusive; zero: any
	To        time.Time `json:"to,omitzero"`   // exclusive
	Gap       int64     `json:"gap,omitempty"` // rows of an accepted gap; 0: none
	Unsent    bool      `json:"unsent,omitempty"`
	OrderBy   string    `json:"order_by,omitempty"`
	Unordered bool      `json:"unordered,omitempty"`
}

// MaxResent bounds the rows of one job: they are in the retry table at once.
const MaxResent = 1_000_000

// Resend is a request to send rows again.
type Resend struct {
	Choice
	Condition string      // SQL that the rows must meet, which runs as the relay; "": none
	Route     event.Route // where to; nil parts are those that each event has by the configuration
	Rate      int         // rows per second; 0: as fast as they go
	By        Requester
	Matched   int64 // rows that were chosen when it was counted
}

// StartResend stores a Resend as a job. One copies at a time. Until it has copied, it is of no
// system: a leader of the version before would take it for a job that makes requests.
func (a *Admin) StartResend(ctx context.Context, r Resend) (Job, error) {
	choice, err := json.Marshal(&r.Choice)
	if err != nil {
		return Job{}, fmt.Errorf("write the choice: %w", err)
	}
	if err := errors.Join(checkStored(choice), (&Action{Route: r.Route, By: r.By}).check()); err != nil {
		return Job{}, err
	}
	var rate *int
	if r.Rate > 0 {
		rate = &r.Rate
	}
	column, value, who := r.By.column(9)
	args := append([]any{a.slot, ResendRows, choice, r.Route.Name, r.Route.RoutingKey, rate, r.By.Why, r.Matched}, who...)
	if r.Condition != "" { // an operator's role may not write this column
		args = append(args, r.Condition)
		column, value = column+", condition", fmt.Sprintf("%s, $%d", value, len(args))
	}
	var id int64
	err = a.db.QueryRow(ctx, `INSERT INTO cdc_relay.bulk (slot, system_id, kind, filter, route_name, routing_key, rate, reason, matched, in_dead_letters`+column+`)
		SELECT slot, '', $2, $3, $4, $5, $6, $7, $8, false`+value+` FROM cdc_relay.slots WHERE slot = $1::text
		ON CONFLICT (slot) WHERE kind = 'resend' AND state = 'asking' DO NOTHING RETURNING job`, args...).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return Job{}, a.busy(ctx)
	}
	if err != nil {
		return Job{}, explain("write cdc_relay.bulk", err)
	}
	return a.Job(ctx, id)
}

// Busy is the error for a resend while the rows of another one are not copied yet.
type Busy struct {
	Job int64
	Who string
}

func (e *Busy) Error() string {
	return fmt.Sprintf("resend job %d of %s has not copied its rows yet: one does so at a time", e.Job, e.Who)
}

func (a *Admin) busy(ctx context.Context) error {
	var other Busy
	err := a.db.QueryRow(ctx, `SELECT job, who FROM cdc_relay.bulk WHERE slot = $1 AND kind = $2 AND state = 'asking'`, a.slot, ResendRows).Scan(&other.Job, &other.Who)
	if errors.Is(err, pgx.ErrNoRows) { // it is done by now
		return fmt.Errorf("another resend was copying its rows: run it again")
	}
	if err != nil {
		return explain("read cdc_relay.bulk", err)
	}
	return &other
}

// CloseGap closes an accepted gap by an operator's word: nothing of it needs to be sent.
func (a *Admin) CloseGap(ctx context.Context, gap int64, by Requester) error {
	if err := by.Check(); err != nil {
		return err
	}
	var closed bool
	err := a.db.QueryRow(ctx, `WITH closed AS (UPDATE cdc_relay.gap SET recovered_at = now() WHERE id = $2 AND slot = $1::text AND recovered_at IS NULL RETURNING system_id),
		noted AS (INSERT INTO cdc_relay.audit (slot, system_id, action, n, why, result) SELECT $1, system_id, 'close gap', 0, $3, 'gap ' || $2::bigint || ': closed, nothing is sent' FROM closed)
		SELECT EXISTS (SELECT FROM closed)`, a.slot, gap, by.Why).Scan(&closed)
	if err != nil {
		return explain("close the gap", err)
	}
	if !closed {
		return a.NoGap(ctx, gap)
	}
	return nil
}

// NoGap is the error for a gap that is not open; nil: it is.
func (a *Admin) NoGap(ctx context.Context, gap int64) error {
	var open []int64
	err := a.db.QueryRow(ctx, `SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM cdc_relay.gap WHERE slot = $1 AND recovered_at IS NULL`, a.slot).Scan(&open)
	if err != nil {
		return explain("read cdc_relay.gap", err)
	}
	hint := "none is open"
	for i, id := range open {
		if id == gap {
			return nil
		}
		if i == 0 {
			hint = "open are:"
		}
		hint += fmt.Sprintf(" %d", id)
	}
	return &NotFound{What: "open gap", N: gap, Slot: a.slot, Hint: hint}
}
