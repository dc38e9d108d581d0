// The record of a slot, as it is read: what the relay remembers of it in cdc_relay.slots and
// cdc_relay.progress.

package slot

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// Record is our row of cdc_relay.slots with the numbers of cdc_relay.progress: what we remember of
// the slot.
type Record struct {
	SystemID    string
	Timeline    int32
	Publication string
	State       string // StateCreating, StateReady, StateAdopt or StateTakeover
	Incarnation int64
	Epoch       int64
	Leader      string
	// when the row was last changed; distinguishes two relays that raised the epoch to the same
	// number
	Raised     string
	Sends      publication.State
	SendsText  string        // as the row has it: what a write is compared with
	FlushLimit pglogrepl.LSN // 0 while creating
	Reported   pglogrepl.LSN
	Good       pglogrepl.LSN
	TookFrom   string // the other program's slot that this one replaces
	// of this incarnation: everything committed below it was sent by that slot's program; 0: no
	// takeover
	TookUntil pglogrepl.LSN
}

const (
	StateCreating = "creating"
	StateReady    = "ready"
	StateAdopt    = "adopt"
	StateTakeover = "takeover"
)

// ReadRecord returns nil if the database has no record of the slot. to_jsonb also works with the
// schema of the previous version, which commands may find.
func ReadRecord(ctx context.Context, q source.Querier, slot string) (*Record, error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var r Record
	err := q.QueryRow(ctx, `SELECT s.system_id, s.timeline, s.publication, s.state, s.incarnation, s.epoch, s.leader, s.changed_at::text, s.sends, s.sends::text,
			coalesce(p.max_flush_lsn, '0/0'::pg_lsn), coalesce(p.reported, '0/0'::pg_lsn),
			coalesce(p.good, '0/0'::pg_lsn),
			coalesce(to_jsonb(s)->>'took_from', ''), CASE to_jsonb(s)->>'took_incarnation' WHEN s.incarnation::text
				THEN (to_jsonb(s)->>'took_until')::pg_lsn ELSE '0/0' END
		FROM cdc_relay.slots s LEFT JOIN cdc_relay.progress p USING (slot) WHERE s.slot = $1`, slot).
		Scan(&r.SystemID, &r.Timeline, &r.Publication, &r.State, &r.Incarnation, &r.Epoch, &r.Leader, &r.Raised, &r.Sends, &r.SendsText, &r.FlushLimit, &r.Reported, &r.Good, &r.TookFrom, &r.TookUntil)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cdc_relay.slots: %w", err)
	}
	return &r, nil
}
