package replication

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// View is what the database knows of a relay, for status when the relay itself does not answer.
type View struct {
	Slot     *Slot  // nil: no such slot
	Leader   string // as the last leader named itself; "" when no relay ever led
	State    string // of the slot's row in cdc_relay.slots; "" when there is none
	SystemID string // likewise
}

// Look reads a View of a slot.
func Look(ctx context.Context, pool *pgxpool.Pool, name string) (View, error) {
	slot, err := readSlot(ctx, pool, name)
	if err != nil {
		return View{}, err
	}
	var v View
	if slot != nil {
		public := slot.public()
		v.Slot = &public
	}
	version, err := schemaVersion(ctx, pool)
	if err != nil || version == 0 {
		return v, err
	}
	rec, err := readRecord(ctx, pool, name)
	if rec != nil {
		v.Leader, v.State, v.SystemID = rec.Leader, rec.State, rec.SystemID
	}
	return v, err
}
