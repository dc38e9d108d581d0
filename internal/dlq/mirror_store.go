// What the mirror asks of the database.

package dlq

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// MirrorStore is what a Mirror asks of the database: MirrorPostgres in production, memorytest.Store
// in the simulation. One suite holds for both (in retry). Each method is one statement in one round
// trip.
type MirrorStore interface {
	// Unmirrored reads the next dead letters above a number that are not noted as mirrored, in the
	// order of their numbers, without those of except: at most limit, and none once those before it
	// have size bytes. Those whose contents were removed are not mirrored any more. It is an
	// *event.Stop, instead of dead letters, once a newer leader has raised the epoch.
	Unmirrored(ctx context.Context, after int64, except []int64, limit int, size int64) ([]DeadLetterRow, error)
	// NoteMirrored notes that dead letters were mirrored. It changes nothing, and is an
	// *event.Stop, once a newer leader has raised the epoch.
	NoteMirrored(ctx context.Context, ns []int64) error
}

// Dead letter is a dead letter as a Mirror reads it.
type DeadLetterRow struct {
	N int64
	// Event is the one that died, with the Route it was going to; what is not in a copy
	// (Traceparent, Headers, Columns) is left out, and Raw is there when it could not be decoded.
	Event                event.Event
	Class, Reason, Words string // of the last refusal
	Attempts             int
	First, Last          *time.Time // of the refusals; nil without one
	Died                 time.Time
}

// MirrorPostgres is the MirrorStore over PostgreSQL, of one slot.
type MirrorPostgres struct {
	DB       Querier
	Slot     string
	SystemID string
	Epoch    int64 // of this term: nothing is read or changed once it is not the slot's any more

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
func (p *MirrorPostgres) Unmirrored(ctx context.Context, after int64, except []int64, limit int, size int64) (list []DeadLetterRow, err error) {
	err = p.term().read(ctx, "read dead letters for the mirror", ` SELECT `+ours+`, t.n, t.commit_lsn::text, t.idx, t.commit_time, t.event_time, t.id, t.key, t.aggregate, t.type,
			t.payload, t.payload_kind, t.raw, t.route_name, t.routing_key, t.class, t.reason, t.error, t.attempts, t.first_failed_at, t.failed_at, t.died_at
		FROM (SELECT n AS x, sum(bytes) OVER (ORDER BY n) - bytes AS before FROM (SELECT n, bytes FROM cdc_relay.dead_letter
				WHERE slot = $1 AND system_id = $3 AND mirrored_at IS NULL AND state <> 'purged' AND redacted_at IS NULL AND n > $7 AND n <> ALL ($4)
				ORDER BY n LIMIT $5) page) part
			JOIN cdc_relay.dead_letter t ON t.n = x
		WHERE before < $6 ORDER BY t.n`, []any{p.SystemID, except, limit, size, after}, func(scan func(...any) error) error {
		l := DeadLetterRow{Event: event.Event{Route: &event.Route{}}}
		ev := &l.Event
		err := scan(&l.N, &ev.Position.Commit, &ev.Position.Index, &ev.CommitTime, &ev.Time, &ev.ID, &ev.Key, &ev.Aggregate, &ev.Type, &ev.Payload, &ev.PayloadKind,
			&ev.Raw, &ev.Route.Name, &ev.Route.RoutingKey, &l.Class, &l.Reason, &l.Words, &l.Attempts, &l.First, &l.Last, &l.Died)
		list = append(list, l)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}
