// The secret under which the ordering keys of a slot are digested.

package source

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Keys reads the slot's secret; nil: there is none, as there is no record of the slot yet, or the
// schema is of an earlier version.
func Keys(ctx context.Context, q Querier, slot string) (*event.KeyHash, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	var secret *[16]byte
	err := q.QueryRow(ctx, `SELECT (to_jsonb(s)->>'key_secret')::uuid FROM cdc_relay.slots s WHERE slot = $1`, slot).Scan(&secret)
	switch {
	case err != nil && !IsNoRows(err):
		return nil, fmt.Errorf("read the secret of ordering keys: %w", err)
	case secret == nil:
		return nil, nil
	}
	return event.NewKeyHash(*secret), nil
}
