// MirrorStore is the mirror's interface to the database.

package dlq

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// MirrorStore is the database of a Mirror: MirrorPostgres in production, memorytest.Store in the
// simulation. Both pass one suite (in retry/postgres). Each method is one statement in one round
// trip.
type MirrorStore interface {
	// Unmirrored reads the next dead letters above a number that are not recorded as mirrored, in
	// the order of their numbers: at most limit, and no further ones once these have size bytes.
	// Those whose contents were removed are no longer mirrored. Once a newer leader has raised the
	// epoch it returns an *event.Stop and no dead letters.
	Unmirrored(ctx context.Context, after int64, limit int, size int64) ([]DeadLetterRow, error)
	// NoteMirrored records that dead letters were mirrored. Once a newer leader has raised the
	// epoch it changes nothing and returns an *event.Stop.
	NoteMirrored(ctx context.Context, ns []int64) error
}

// DeadLetterRow is a dead letter as a Mirror reads it.
type DeadLetterRow struct {
	N int64
	// Event is the dead-lettered event, with the Route it was going to. What is not in a copy
	// (Traceparent, Headers, Columns) is left out; Raw is set when it could not be decoded.
	Event               event.Event
	Class, Reason, Text string // of the last rejection
	Attempts            int
	First, Last         *time.Time // of the rejections; nil without one
	Died                time.Time
}

// MirrorPostgres is the MirrorStore in PostgreSQL, for one slot.
type MirrorPostgres struct {
	DB       Querier
	Slot     string
	SystemID string
	Epoch    int64 // of this term: nothing is read or changed once the slot has another one

	patience time.Duration // as of a term
}

func (p *MirrorPostgres) term() *term {
	return &term{db: p.DB, slot: p.Slot, epoch: p.Epoch, patience: p.patience}
}

// NoteMirrored implements MirrorStore.
func (p *MirrorPostgres) NoteMirrored(ctx context.Context, ns []int64) error {
	return p.term().change(ctx, "note mirrored dead letters", `, noted AS (UPDATE cdc_relay.dead_letter t SET mirrored_at = now() FROM fence
			WHERE t.slot = $1 AND t.system_id = $3 AND t.n = ANY ($4) AND t.mirrored_at IS NULL)
		SELECT `+ours, []any{p.SystemID, ns})
}

// Unmirrored implements MirrorStore.
func (p *MirrorPostgres) Unmirrored(ctx context.Context, after int64, limit int, size int64) (list []DeadLetterRow, err error) {
	err = p.term().read(ctx, "read dead letters for the mirror", ` SELECT `+ours+`, t.n, t.commit_lsn::text, t.idx, t.commit_time, t.event_time, t.id, t.key, t.aggregate, t.type,
			t.payload, t.payload_kind, t.raw, t.route_name, t.routing_key, t.class, t.reason, t.error, t.attempts, t.first_failed_at, t.failed_at, t.died_at
		FROM (SELECT n AS x, sum(bytes) OVER (ORDER BY n) - bytes AS before FROM (SELECT n, bytes FROM cdc_relay.dead_letter
				WHERE slot = $1 AND system_id = $3 AND mirrored_at IS NULL AND state <> 'purged' AND redacted_at IS NULL AND n > $4
				ORDER BY n LIMIT $5) page) part
			JOIN cdc_relay.dead_letter t ON t.n = x
		WHERE before < $6 ORDER BY t.n`, []any{p.SystemID, after, limit, size}, func(scan func(...any) error) error {
		l := DeadLetterRow{Event: event.Event{Route: &event.Route{}}}
		ev := &l.Event
		err := scan(&l.N, &ev.Position.Commit, &ev.Position.Index, &ev.CommitTime, &ev.Time, &ev.ID, &ev.Key, &ev.Aggregate, &ev.Type, &ev.Payload, &ev.PayloadKind,
			&ev.Raw, &ev.Route.Name, &ev.Route.RoutingKey, &l.Class, &l.Reason, &l.Text, &l.Attempts, &l.First, &l.Last, &l.Died)
		list = append(list, l)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}
