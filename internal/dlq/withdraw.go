package dlq

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// RequestOf gives a request by its id.
func (d *Desk) RequestOf(ctx context.Context, id int64) (Request, error) {
	list, err := d.Requests(ctx, []int64{id})
	if err != nil {
		return Request{}, err
	}
	if len(list) == 0 {
		return Request{}, &NotFound{What: "request", N: id, Slot: d.slot}
	}
	return list[0], nil
}

// Withdraw cancels a request that waits. What is being carried out at this moment is not called back, and one that has ended is
// left as it is: the request that is returned says which.
func (d *Desk) Withdraw(ctx context.Context, id int64, by By) (Request, error) {
	r, err := scanRequest(d.db.QueryRow(ctx, `WITH q AS (UPDATE cdc_relay.request SET state = 'cancelled', done_at = now()
			WHERE id = $1 AND slot = $2 AND state = 'waiting' RETURNING *),
		noted AS (INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result, request)
			SELECT slot, system_id, $3, 'cancel', n, $4, kind || ' is not done', id FROM q)
		SELECT `+requestColumns+` FROM q`, id, d.slot, by.Who, by.Why))
	if errors.Is(err, pgx.ErrNoRows) {
		return d.RequestOf(ctx, id)
	}
	return r, explain("cancel the request", err)
}
