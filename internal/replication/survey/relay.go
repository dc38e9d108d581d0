// What the database knows about a relay: status shows it if the relay itself does not answer.

package survey

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Relay is what the database knows about a relay; status shows it if the relay itself does not
// answer.
type Relay struct {
	Slot     *Slot  // nil: no such slot
	Leader   string // as the last leader named itself; "" when no relay ever led
	State    string // of the slot's row in cdc_relay.slots; "" when there is none
	SystemID string // likewise
}

// ReadRelay reads a View of a slot.
func ReadRelay(ctx context.Context, pool *pgxpool.Pool, name string) (Relay, error) {
	view, err := slot.Read(ctx, pool, name)
	if err != nil {
		return Relay{}, err
	}
	var v Relay
	if view != nil {
		public := publicSlot(view)
		v.Slot = &public
	}
	version, err := schema.Version(ctx, pool)
	if err != nil || version == 0 {
		return v, err
	}
	rec, err := slot.ReadRecord(ctx, pool, name)
	if rec != nil {
		v.Leader, v.State, v.SystemID = rec.Leader, rec.State, rec.SystemID
	}
	return v, err
}
